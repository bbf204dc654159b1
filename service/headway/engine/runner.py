"""Runs steps on the model: plan in, sampled tokens out. It decides nothing.

    plan ── step_inputs ──▶ arrays ─┬─ forward ──▶ logits ── sampler ──▶ tokens ──▶ host, when they have come
              ┌──── last_tokens ────┘                                      │
              └────────────────────────────────────────────────────────────┘  for the step after

`Runner.launch` only puts the work in line on a GPU, and computes it at once on a CPU. Steps that are launched one after
the other run one after the other: what a step reads, those before it have written.
"""

from __future__ import annotations

from collections.abc import Sequence as Rows
from contextlib import suppress
from typing import Protocol

import torch
from torch import Tensor

from headway.core.batch import SampledToken, StepPlan, StepResult
from headway.engine.forward import Forward
from headway.engine.input_buffers import HostInputs, Inputs
from headway.engine.last_tokens import LastTokens
from headway.engine.sampled_rows import SampledRow, SampledTokens, sampled_rows
from headway.engine.step_inputs import build_step_inputs

NOT_FINITE = "the model gave no finite logits (NaN or infinity)"


class TokenSampler(Protocol):
    def launch(self, logits: Tensor, rows: Rows[SampledRow]) -> SampledTokens:
        """The next token of each row of ``logits`` [len(rows), vocab_size]."""


class PendingStep:
    """A step that was launched. Its numbers come to the host in their own time."""

    def __init__(self, numbers: list[int], tokens: SampledTokens) -> None:
        self._numbers = numbers
        self._tokens = tokens

    @property
    def has_ended(self) -> bool:
        return self._tokens.have_come

    def result(self) -> StepResult:
        """Waits for the device, also for a step that samples nothing."""
        sampled: dict[int, SampledToken] = {}
        failed: dict[int, str] = {}
        for number, token in zip(self._numbers, self._tokens.read(), strict=True):
            if token is None:
                failed[number] = NOT_FINITE
            else:
                sampled[number] = token
        return StepResult(sampled, failed)


class Runner:
    """The model over its pages, and a sampler. If a step raises, the sequences and their page tables are as before.

    It remembers the tokens of the step before, for one that is launched before the host knows them.
    """

    def __init__(
        self,
        forward: Forward,
        sampler: TokenSampler,
        device: torch.device,
        page_size: int,
        inputs: Inputs | None = None,
    ) -> None:
        self._forward = forward
        self._sampler = sampler
        self._device = device
        self._page_size = page_size
        self._inputs = inputs or HostInputs(device)
        self._last_tokens = LastTokens()

    def launch(self, plan: StepPlan) -> PendingStep:
        """Begin a step, after those that were launched before. What is pending in it, the last one samples."""
        rows = sampled_rows(plan)
        numbers = [row.sequence.number for row in rows]
        if not plan.chunks:
            return PendingStep(numbers, self._no_tokens())
        inputs = self._inputs.upload(build_step_inputs(plan, self._page_size))
        self._last_tokens.feed(inputs.token_ids, plan)
        logits = self._forward(inputs)
        tokens = self._sampler.launch(logits, rows) if rows else self._no_tokens()
        self._last_tokens.keep(tokens.tokens, numbers)
        return PendingStep(numbers, tokens)

    def run(self, plan: StepPlan) -> StepResult:
        return self.launch(plan).result()

    def _no_tokens(self) -> SampledTokens:
        return SampledTokens(torch.empty(0, dtype=torch.int64, device=self._device))

    def free_memory(self) -> None:
        """Give back what torch keeps of the device's memory for later; after a step that found too little."""
        if self._device.type == "cuda":
            with suppress(RuntimeError):  # of a device that computes no more, which `is_device_sound` says
                torch.cuda.empty_cache()

    def is_device_sound(self) -> bool:
        """Whether the device still computes. After some faults (an illegal access on a GPU) it does not any more, for
        as long as the process lives."""
        try:
            return bool((torch.ones(2, device=self._device).sum() == 2.0).item())
        except RuntimeError:
            return False
