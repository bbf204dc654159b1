"""The search for the largest throughput that keeps a goal. It is pure: measuring is somebody else's.

1. **Climb**: the batch doubles while it keeps the goal and gains, then the bound between the last that kept it and the
   first that did not is halved down to an eighth.
2. **Descend** by coordinates: the step's tokens and the chunk cap are doubled and halved, one at a time, and pacing by
   ``tpot_target`` is tried, each at the best batch so far. A change stays if throughput gains, or if it is as good and
   leaves more room to the goal; then somewhat larger batches are tried with it. It ends when no change is for the
   better.

Where not even one sequence keeps the goal, whatever comes nearer to it is better.

A candidate is run again, up to `MAX_RUNS` times, while what it came to is so near to a bound (of the goal, or of the
best candidate's throughput) that noise may decide; for a bound of throughput both are run again, in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from loadtest.tuning.knobs import Candidate, Goal, Knobs, Run

MAX_RUNS = 3
NEAR = 0.1
"""Of a bound: so near, another run is worth its time."""
GAIN = 0.03
"""Of throughput, which counts as a gain; less is noise."""
ROOM = 0.1
"""More of it to the goal, at the same throughput, is better too."""
RESOLUTION = 8
"""A batch is found to one part in so many."""
LEAST_TOKENS = 16
MOST_TOKENS = 16_384

Measure = Callable[[Knobs], Run]
Watch = Callable[[Candidate], None]


class TimeIsUp(Exception):
    """Raised by what measures: what was found so far is the result."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of what is tried."""

    max_num_seqs: int = 512


class Search:
    """``candidates`` and `best` hold at any time what is known by then."""

    def __init__(self, measure: Measure, goal: Goal, limits: Limits, watch: Watch = lambda candidate: None) -> None:
        self.candidates: dict[Knobs, Candidate] = {}
        self._measure = measure
        self._goal = goal
        self._limits = limits
        self._watch = watch

    @property
    def best(self) -> Candidate | None:
        """Of those that keep the goal the one with the most throughput; if there is none, the nearest to it."""
        kept = [candidate for candidate in self.candidates.values() if candidate.keeps]
        if kept:
            return max(kept, key=lambda candidate: candidate.output_tokens_per_s)
        return max(self.candidates.values(), key=lambda candidate: candidate.margin, default=None)

    def run(self, start: Knobs) -> bool:
        """Whether the search came to its end; if not, its time was up."""
        try:
            self._descend(self._climb(start))
        except TimeIsUp:
            return False
        return True

    def _climb(self, start: Knobs) -> Candidate:
        candidate = self._judge(start)
        lower = upper = None
        while candidate.keeps:
            grown = _with_seqs(candidate.knobs, 2 * candidate.knobs.max_num_seqs)
            lower = candidate
            if grown.max_num_seqs > self._limits.max_num_seqs:
                return lower
            candidate = self._judge(grown)
            if candidate.keeps and not self._gains(candidate, lower):
                return self._better(lower, candidate)
        while lower is None and candidate.knobs.max_num_seqs > 1:
            upper = candidate
            candidate = self._judge(_with_seqs(candidate.knobs, candidate.knobs.max_num_seqs // 2))
            lower = candidate if candidate.keeps else None
        return candidate if lower is None else self._bisect(lower, upper or candidate)

    def _bisect(self, lower: Candidate, upper: Candidate) -> Candidate:
        """``lower`` keeps the goal, ``upper`` does not."""
        least, most = lower.knobs.max_num_seqs, upper.knobs.max_num_seqs
        best = lower
        while most - least > max(1, least // RESOLUTION):
            middle = self._judge(_with_seqs(lower.knobs, (least + most) // 2))
            if middle.keeps:
                least, best = middle.knobs.max_num_seqs, self._better(best, middle)
            else:
                most = middle.knobs.max_num_seqs
        return best

    def _descend(self, best: Candidate) -> Candidate:
        has_changed = True
        while has_changed:
            has_changed = False
            for change in CHANGES:
                while (better := self._improved(best, change)) is not None:
                    best, has_changed = self._grow(better), True
        return best

    def _improved(self, best: Candidate, change: Change) -> Candidate | None:
        knobs = change(best.knobs, self._goal)
        if knobs is None or knobs in self.candidates:
            return None
        candidate = self._judge(knobs)
        return candidate if self._is_better(candidate, best) else None

    def _grow(self, candidate: Candidate) -> Candidate:
        """By a quarter, as long as that gains; then to the goal's bound."""
        while candidate.keeps:
            num_seqs = candidate.knobs.max_num_seqs
            knobs = _with_seqs(candidate.knobs, num_seqs + max(1, num_seqs // 4))
            if knobs.max_num_seqs > self._limits.max_num_seqs:
                break
            grown = self._judge(knobs)
            if not grown.keeps:
                return self._bisect(candidate, grown)
            if not self._gains(grown, candidate):
                break
            candidate = grown
        return candidate

    def _is_better(self, candidate: Candidate, best: Candidate) -> bool:
        if not best.keeps:
            return candidate.margin > best.margin * (1 + GAIN)
        if not candidate.keeps:
            return False
        if self._gains(candidate, best):
            return True
        candidate, best = self.candidates[candidate.knobs], self.candidates[best.knobs]
        is_as_good = candidate.output_tokens_per_s >= best.output_tokens_per_s * (1 - GAIN)
        return is_as_good and candidate.margin > best.margin * (1 + ROOM)

    def _gains(self, candidate: Candidate, over: Candidate) -> bool:
        """By throughput; where that is a matter of noise, both are run again."""
        pair = (candidate.knobs, over.knobs)
        while True:
            candidate, over = (self.candidates[knobs] for knobs in pair)
            ratio = candidate.output_tokens_per_s / over.output_tokens_per_s
            short = [knobs for knobs in pair if len(self.candidates[knobs].runs) < MAX_RUNS]
            if not short or abs(ratio - (1 + GAIN)) > NEAR / 2:
                return ratio > 1 + GAIN
            for knobs in short:
                self._run(knobs)

    def _better(self, one: Candidate, other: Candidate) -> Candidate:
        one, other = self.candidates[one.knobs], self.candidates[other.knobs]
        return max(one, other, key=lambda candidate: candidate.output_tokens_per_s)

    def _judge(self, knobs: Knobs) -> Candidate:
        """Measured as often as it takes to say whether it keeps the goal."""
        candidate = self.candidates.get(knobs) or self._run(knobs)
        while len(candidate.runs) < MAX_RUNS and 1 - NEAR < candidate.margin < 1 + NEAR:
            candidate = self._run(knobs)
        return candidate

    def _run(self, knobs: Knobs) -> Candidate:
        known = self.candidates.get(knobs)
        run = self._measure(knobs)
        candidate = Candidate(knobs, self._goal, [*(known.runs if known else ()), run])
        self.candidates[knobs] = candidate
        self._watch(candidate)
        return candidate


def frontier(candidates: Iterator[Candidate]) -> list[Candidate]:
    """Those that no other beats in both throughput and time per token, by time per token."""
    best_first = sorted(candidates, key=lambda candidate: (candidate.tpot_seconds, -candidate.output_tokens_per_s))
    frontier: list[Candidate] = []
    for candidate in best_first:
        if not frontier or candidate.output_tokens_per_s > frontier[-1].output_tokens_per_s:
            frontier.append(candidate)
    return frontier


Change = Callable[[Knobs, Goal], Knobs | None]
"""The knobs after one change; None: it goes no further."""


def _with_seqs(knobs: Knobs, num_seqs: int) -> Knobs:
    """A step has to hold a token of each."""
    return replace(knobs, max_num_seqs=num_seqs, max_num_batched_tokens=max(knobs.max_num_batched_tokens, num_seqs))


def _half_tokens(knobs: Knobs, _: Goal) -> Knobs | None:
    num_tokens = knobs.max_num_batched_tokens // 2
    if num_tokens < max(LEAST_TOKENS, knobs.max_num_seqs):
        return None
    return replace(knobs, max_num_batched_tokens=num_tokens, max_prefill_chunk=min(knobs.max_prefill_chunk, num_tokens))


def _double_tokens(knobs: Knobs, _: Goal) -> Knobs | None:
    num_tokens = 2 * knobs.max_num_batched_tokens
    return None if num_tokens > MOST_TOKENS else replace(knobs, max_num_batched_tokens=num_tokens)


def _half_chunk(knobs: Knobs, _: Goal) -> Knobs | None:
    chunk = knobs.max_prefill_chunk // 2
    return None if chunk < LEAST_TOKENS else replace(knobs, max_prefill_chunk=chunk)


def _double_chunk(knobs: Knobs, _: Goal) -> Knobs | None:
    chunk = min(2 * knobs.max_prefill_chunk, knobs.max_num_batched_tokens)
    return None if chunk == knobs.max_prefill_chunk else replace(knobs, max_prefill_chunk=chunk)


def _pace(knobs: Knobs, goal: Goal) -> Knobs | None:
    return None if knobs.tpot_target is not None else replace(knobs, tpot_target=goal.tpot_seconds)


CHANGES: tuple[Change, ...] = (_half_tokens, _double_tokens, _half_chunk, _double_chunk, _pace)
