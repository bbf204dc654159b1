"""A scenario's requests, drawn from its seed: the same on every machine and for every system.

Each part has a random stream of its own, so that changing one leaves the others' requests as they are; the order in
which parts are mixed and the gaps between requests have theirs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from loadtest.workloads.arrivals import Arrivals
from loadtest.workloads.distributions import draw_tokens
from loadtest.workloads.requests import Request, WorkloadError
from loadtest.workloads.scenario import RequestPart
from loadtest.workloads.scenario_arrivals import AnyArrivals, Burst, Gamma
from loadtest.workloads.scenario_files import NamedScenario
from loadtest.workloads.trace import TraceRow

DEFAULT_VOCAB_SIZE = 32000
"""Fewer tokens than nearly every model has."""
MARGIN = 16
"""One in so many tokens at either end of a vocabulary is never drawn: special tokens are there."""


def draw_requests(named: NamedScenario, vocab_size: int = DEFAULT_VOCAB_SIZE) -> tuple[Request, ...]:
    """Those that come by the scenario's arrivals first, mixed; then those of parts with arrivals of their own. Raises
    `WorkloadError` if the numbers do not come out, or a trace is too short."""
    scenario = named.scenario
    scheduled: list[Request] = []
    apart: list[Request] = []
    for number, size in enumerate(part_sizes(named)):
        drawn = _Drawing(named, number, size, scenario.vocab_size or vocab_size).requests()
        (scheduled if scenario.parts[number].arrivals is None else apart).extend(drawn)
    random.Random(f"{scenario.seed}/order").shuffle(scheduled)
    gaps = _gaps(scenario.arrivals, random.Random(f"{scenario.seed}/arrivals"))
    return tuple([replace(request, gap=next(gaps)) for request in scheduled] + apart)


def part_sizes(named: NamedScenario) -> list[int]:
    """How many requests each part has: its count (a trace's rows, where it has neither count nor share), and what is
    left of all by shares. Where no part has a share, ``num_requests`` scales the counts."""
    scenario = named.scenario
    counts = [_count(part, trace) for part, trace in zip(scenario.parts, named.traces, strict=True)]
    shares = [0.0 if count else part.share or 1.0 for part, count in zip(scenario.parts, counts, strict=True)]
    if not any(shares):
        total = sum(counts)
        return counts if scenario.num_requests is None else _divide(scenario.num_requests, [c / total for c in counts])
    if scenario.num_requests is None:
        raise WorkloadError(f"scenario {named.name}: num_requests is missing; it is what the parts have shares of")
    left = scenario.num_requests - sum(counts)
    if left < 1:
        raise WorkloadError(f"scenario {named.name}: num_requests must be above {sum(counts)}, the sum of all counts")
    return [count + size for count, size in zip(counts, _divide(left, shares), strict=True)]


def _count(part: RequestPart, trace: Sequence[TraceRow] | None) -> int:
    """0: it has a share."""
    return part.count or (len(trace) if trace is not None and part.share is None else 0)


def _divide(total: int, shares: Sequence[float]) -> list[int]:
    """In whole numbers whose sum is the total."""
    bounds = [round(total * upto / sum(shares)) for upto in accumulate(shares, initial=0.0)]
    return [end - start for start, end in pairwise(bounds)]


def _gaps(arrivals: AnyArrivals, rng: random.Random) -> Iterator[float]:
    """With mean 1."""
    if isinstance(arrivals, Gamma):
        shape = 1 / arrivals.cv**2
        while True:
            yield rng.gammavariate(shape, 1 / shape)
    while True:
        yield rng.expovariate(1.0)


class _Drawing:
    """The requests of one part."""

    def __init__(self, named: NamedScenario, number: int, size: int, vocab_size: int) -> None:
        self._part = named.scenario.parts[number]
        self._uses_trace_times = named.scenario.arrivals.kind == Arrivals.TRACE and self._part.arrivals is None
        self._name = f"scenario {named.name}, part {number + 1}"
        self._seed = f"{named.scenario.seed}/{number}"
        self._size = size
        self._rows = self._trace_rows(named.traces[number])
        self._tokens = range(vocab_size // MARGIN, vocab_size - vocab_size // MARGIN)
        self._prefix = random.Random(f"{self._seed}/prefix").choices(self._tokens, k=self._part.prefix_tokens)

    def requests(self) -> list[Request]:
        rng = random.Random(self._seed)
        return [
            replace(self._request(row, rng), due_at=due_at)
            for row, due_at in zip(self._rows or self._lengths(rng), self._due_at(), strict=True)
        ]

    def _request(self, row: TraceRow, rng: random.Random) -> Request:
        part = self._part
        num_own = max(1, row.num_prompt_tokens - len(self._prefix))
        return Request(
            prompt_token_ids=(*self._prefix, *rng.choices(self._tokens, k=num_own)),
            num_output_tokens=row.num_output_tokens,
            tenant=row.tenant or part.tenant,
            label=part.label,
            priority=part.priority,
            cancel_after_seconds=self._cancel_after(rng),
        )

    def _lengths(self, rng: random.Random) -> list[TraceRow]:
        prompt, output = self._part.prompt, self._part.output
        assert prompt is not None
        assert output is not None
        try:
            return [TraceRow(None, draw_tokens(prompt, rng), draw_tokens(output, rng), None) for _ in range(self._size)]
        except ValueError as exc:
            raise WorkloadError(f"{self._name}: {exc}") from exc

    def _cancel_after(self, rng: random.Random) -> float | None:
        cancel = self._part.cancel
        return cancel.after_seconds.draw(rng) if cancel is not None and rng.random() < cancel.share else None

    def _trace_rows(self, rows: Sequence[TraceRow] | None) -> Sequence[TraceRow] | None:
        if rows is not None and len(rows) < self._size:
            raise WorkloadError(f"{self._name}: the trace has {len(rows)} rows, and {self._size} requests are wanted")
        return None if rows is None else rows[: self._size]

    def _due_at(self) -> list[float | None]:
        """Of a part whose requests do not come by the scenario's arrivals."""
        own = self._part.arrivals
        if own is not None:
            gaps = _gaps(own, random.Random(f"{self._seed}/arrivals"))
            requests = [Request((0,), 1, gap) for gap, _ in zip(gaps, range(self._size), strict=False)]
            moments = own.schedule.plan(requests, own.schedule.rate)
            assert isinstance(moments, list)
            start = own.at_seconds if isinstance(own, Burst) else 0.0
            return [start + moment for moment in moments]
        if not self._uses_trace_times or self._rows is None:
            return [None] * self._size
        if any(row.arrived_at is None for row in self._rows):
            raise WorkloadError(f"{self._name}: arrivals are those of the trace, which has no times")
        return [row.arrived_at for row in self._rows]
