"""The rows of a step that yield a token, and those tokens: at once on the device, later on the host."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from headway.core.batch import SampledToken, StepPlan
from headway.core.sequence import Sequence
from headway.engine.greedy import NO_TOKEN
from headway.engine.logprobs import LogprobTensors
from headway.engine.transfer import HostCopies


class SampledRow(NamedTuple):
    """What the host knows of a row before it knows the tokens that steps in flight sample."""

    sequence: Sequence
    position: int
    """Of the row's token in the output of its sequence, from 0."""

    @property
    def num_tokens(self) -> int:
        """Tokens of its sequence before that one; the last may be known to the device only."""
        return self.sequence.num_prompt_tokens + self.position


def sampled_rows(plan: StepPlan) -> list[SampledRow]:
    """In the plan's order."""
    return [SampledRow(chunk.sequence, chunk.output_position) for chunk in plan.chunks if chunk.is_sampled]


class SampledTokens:
    """The copy to the host, of numbers in proportion to the rows, starts when this is made."""

    def __init__(self, tokens: Tensor, logprobs: LogprobTensors | None = None) -> None:
        self.tokens = tokens
        """[rows] int64, on the device; `NO_TOKEN` for a row that says nothing."""
        self._logprobs = logprobs
        self._copies = HostCopies([tokens] if logprobs is None else [tokens, *logprobs.tensors])

    @property
    def have_come(self) -> bool:
        return self._copies.have_come

    def read(self) -> list[SampledToken | None]:
        """One for each row; None where there is no token to be had. Waits for the device."""
        tokens, *values = self._copies.wait()
        logprobs = {} if self._logprobs is None else self._logprobs.read(values)
        return [
            None if token == NO_TOKEN else SampledToken(token, logprobs.get(row))
            for row, token in enumerate(tokens.tolist())
        ]
