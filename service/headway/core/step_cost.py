"""What a step costs, learned from the steps that were run.

    seconds ≈ a + b·prefill tokens + c·decodes + d·context tokens + e·prefill pairs

``a`` is what every step costs (launching kernels, reading the weights), ``b`` a prompt token's way through the layers,
``c`` that of a decoding sequence, ``d`` the reading of one key and value, ``e`` one pair of a prompt token and a token
before it in attention: what makes the end of a long prompt dearer than its beginning.

The coefficients are the non-negative least squares over past steps, of *relative* errors, so that short steps count as
much as long ones. A step counts as `LARGEST_SURPRISE` times as long as predicted at the most: one in which the process
was stopped is soon forgotten. Steps with prompt tokens and steps without fade apart, each by `FADE` with every new one
of its kind: an hour of decoding must not wear away what is known about prompts. The minimum is followed by a few
sweeps of coordinate descent per step from where it was, which needs no inverse, cannot blow up where steps have been
too alike to tell coefficients apart, and leaves those where they were.

What slows the whole machine (neighbours, heat) changes all costs alike, also those of which no step tells now. The
mean surprise of the last few steps, the *pace*, is part of every prediction at once. Once it is more than noise
(`LARGEST_PACE`) everything known is rescaled by it, so that prompts are known to be dearer when decoding has become so.

Plain Python on five numbers: some 50 µs per step.
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
LARGEST_PACE = 1.25
"""Or its inverse: beyond it, all that is known is rescaled."""
LARGEST_SURPRISE = 3.0
"""A step counts as at most so many times as long, or as short, as predicted. A machine that really became slower is
followed all the same, as each step's prediction starts from the one before."""
NUM_STEPS_KNOWN = 4
"""Steps with prompt tokens, and steps with decodes, from which on there are predictions."""
NUM_SWEEPS = 6
LEAST_SECONDS, MOST_SECONDS = 1e-9, 1e9
"""A step that says otherwise teaches nothing; a clock may have been set."""

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
        """Learn from a step."""
        if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
            return
        features = _features(work)
        scale = seconds
        if self.is_known and _dot(features, self._costs) > LEAST_SECONDS:
            seconds = self._believe(features, seconds)
            scale = _dot(features, self._costs)
        evidence = self._prefilling if work.num_prefill_tokens else self._decoding
        evidence.add([feature / scale for feature in features], seconds / scale)
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

    def _believe(self, features: Sequence[float], seconds: float) -> float:
        """The step's time as it counts. Moves the pace."""
        predicted = _dot(features, self._costs)
        expected = self._pace * predicted
        believed = min(max(seconds, expected / LARGEST_SURPRISE), expected * LARGEST_SURPRISE)
        self._pace += PACE_SHARE * (believed / predicted - self._pace)
        if not 1.0 / LARGEST_PACE <= self._pace <= LARGEST_PACE:
            self._rescale(self._pace)
            self._pace = 1.0
        return believed

    def _rescale(self, ratio: float) -> None:
        """As if every step so far had taken ``ratio`` times as long."""
        self._costs = [ratio * cost for cost in self._costs]
        self._decoding.rescale(ratio)
        self._prefilling.rescale(ratio)

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

    def add(self, row: Sequence[float], ratio: float) -> None:
        """One equation row · θ = ratio, both sides over what the step was to take."""
        for products, feature in zip(self.products, row, strict=True):
            products[:] = [FADE * product + feature * other for product, other in zip(products, row, strict=True)]
        self.sums = [FADE * total + ratio * feature for total, feature in zip(self.sums, row, strict=True)]

    def rescale(self, ratio: float) -> None:
        for products in self.products:
            products[:] = [product / (ratio * ratio) for product in products]
        self.sums = [total / ratio for total in self.sums]


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
