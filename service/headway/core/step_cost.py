"""What a step costs, learned from the steps that were run.

    seconds ≈ a + b·prefill tokens + c·decodes + d·context tokens + e·prefill pairs

``a`` is what every step costs (launching kernels, reading the weights), ``b`` a prompt token's way through the layers,
``c`` that of a decoding sequence, ``d`` the reading of one key and value, ``e`` one pair of a prompt token and a token
before it in attention: what makes the end of a long prompt dearer than its beginning.

The coefficients are the non-negative least squares over past steps, of *relative* errors: each step counts as
x·θ / seconds = 1. A step that took a hundred times as long (the process was stopped) then pulls no harder than any
other, since whatever it divides by its seconds is small. Steps with prompt tokens and steps without fade apart, each by
`FADE` with every new one of its kind: an hour of decoding must not wear away what is known about prompts. The minimum
is followed by a few sweeps of coordinate descent per step from where it was, which needs no inverse, cannot blow up
where steps have been too alike to tell coefficients apart, and leaves those where they were.

What slows the whole machine (neighbours, heat) shows within a few steps in `_pace`, the ratio of real to predicted
time lately, long before the coefficients have followed. It also takes out the bias of relative errors, which fit
somewhat low under noise.

Plain Python on five numbers: some 40 µs per step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.core.batch import ScheduledChunk

FADE = 0.98
"""What a step still counts after another of its kind: the last 50 or so decide."""
PACE_SHARE = 0.125
"""Of the newest step in the pace."""
LARGEST_SURPRISE = 3.0
"""A step counts as at most so many times as long, or as short, as predicted. A machine that really became slower is
followed all the same, as each step's prediction starts from the one before."""
NUM_STEPS_KNOWN = 4
"""Steps with prompt tokens, and steps with decodes, from which on there are predictions."""
NUM_SWEEPS = 6

_NUM_COSTS = 5
_TOKEN, _DECODE, _CONTEXT, _PAIR, _STEP = range(_NUM_COSTS)
"""In this order they are fitted: while it cannot be told, time is put down to tokens and not to the step, so that long
steps are over- and not underrated."""


@dataclass(frozen=True, slots=True)
class StepWork:
    """What makes a step long."""

    num_prefill_tokens: int = 0
    num_prefill_pairs: int = 0
    """Of a prompt token and itself or a token before it, cached ones included."""
    num_decodes: int = 0
    num_context_tokens: int = 0
    """Keys that the decodes read."""

    @classmethod
    def of(cls, chunks: Iterable[ScheduledChunk]) -> StepWork:
        num_prefill_tokens = num_prefill_pairs = num_decodes = num_context_tokens = 0
        for chunk in chunks:
            if chunk.is_prefill:
                num_prefill_tokens += chunk.num_tokens
                num_prefill_pairs += num_pairs(chunk.start, chunk.num_tokens)
            else:
                num_decodes += 1
                num_context_tokens += chunk.end
        return cls(num_prefill_tokens, num_prefill_pairs, num_decodes, num_context_tokens)


def num_pairs(start: int, num_tokens: int) -> int:
    """Of the tokens from ``start`` on with themselves and all before each."""
    return num_tokens * start + num_tokens * (num_tokens + 1) // 2


class StepCostModel:
    """All times in seconds; a prediction is 0 or more, and finite."""

    def __init__(self) -> None:
        self._decoding = _Evidence()
        self._prefilling = _Evidence()
        self._costs = [0.0] * _NUM_COSTS
        self._pace = 1.0
        self._num_with_decodes = 0
        self._num_with_prefill = 0

    @property
    def is_known(self) -> bool:
        """Whether there were enough steps to predict others."""
        return min(self._num_with_decodes, self._num_with_prefill) >= NUM_STEPS_KNOWN

    def observe(self, work: StepWork, seconds: float) -> None:
        """Learn from a step. What no step can take (0, less, infinity, NaN) teaches nothing."""
        if not 0.0 < seconds < math.inf:
            return
        features = _features(work)
        if self.is_known:
            seconds = self._believe(seconds, _dot(features, self._costs))
        evidence = self._prefilling if work.num_prefill_tokens else self._decoding
        evidence.add([feature / seconds for feature in features])
        self._num_with_prefill += work.num_prefill_tokens > 0
        self._num_with_decodes += work.num_decodes > 0
        self._fit()

    def predict(self, work: StepWork) -> float:
        return self._pace * _dot(_features(work), self._costs)

    def num_tokens_within(self, seconds: float, start: int) -> float:
        """Prompt tokens from position ``start`` on that take so long beside a step's other work; infinite where tokens
        have no known cost.

        The positive root of b·n + e·(n·start + n·(n + 1) / 2) = seconds, in the form that stays exact as e goes to 0.
        """
        if seconds <= 0.0:
            return 0.0
        pair = self._pace * self._costs[_PAIR]
        first = self._pace * self._costs[_TOKEN] + pair * (start + 0.5)
        denominator = first + math.sqrt(first * first + 2.0 * pair * seconds)
        return 2.0 * seconds / denominator if denominator else math.inf

    def seconds_of_tokens(self, start: int, num_tokens: int) -> float:
        """What so many prompt tokens from ``start`` on add to a step."""
        pairs = num_pairs(start, num_tokens)
        return self._pace * (self._costs[_TOKEN] * num_tokens + self._costs[_PAIR] * pairs)

    def _believe(self, seconds: float, predicted: float) -> float:
        """The step's time as it counts; moves the pace."""
        expected = self._pace * predicted
        if expected <= 0.0:
            return seconds
        believed = min(max(seconds, expected / LARGEST_SURPRISE), expected * LARGEST_SURPRISE)
        self._pace += PACE_SHARE * (believed / predicted - self._pace)
        return believed

    def _fit(self) -> None:
        matrix = [
            [one + other for one, other in zip(*rows, strict=True)]
            for rows in zip(self._decoding.products, self._prefilling.products, strict=True)
        ]
        target = [one + other for one, other in zip(self._decoding.sums, self._prefilling.sums, strict=True)]
        costs = self._costs
        for _ in range(NUM_SWEEPS):
            for index, row in enumerate(matrix):
                if row[index] > 0.0:
                    rest = target[index] - _dot(row, costs) + row[index] * costs[index]
                    costs[index] = max(0.0, rest / row[index])


class _Evidence:
    """The normal equations of past steps of one kind, older ones fading."""

    def __init__(self) -> None:
        self.products = [[0.0] * _NUM_COSTS for _ in range(_NUM_COSTS)]
        self.sums = [0.0] * _NUM_COSTS

    def add(self, row: Sequence[float]) -> None:
        """One equation row · θ = 1."""
        for products, feature in zip(self.products, row, strict=True):
            products[:] = [FADE * product + feature * other for product, other in zip(products, row, strict=True)]
        self.sums = [FADE * total + feature for total, feature in zip(self.sums, row, strict=True)]


def _features(work: StepWork) -> list[float]:
    return [
        float(work.num_prefill_tokens),
        float(work.num_decodes),
        float(work.num_context_tokens),
        float(work.num_prefill_pairs),
        1.0,
    ]


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
