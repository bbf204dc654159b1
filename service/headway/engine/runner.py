"""Runs one step on the model: plan in, sampled tokens out. It decides nothing and remembers nothing.

plan ── step_inputs ──▶ arrays ── forward ──▶ logits ── sampler ──▶ tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from headway.core.batch import SampledToken, StepPlan, StepResult
from headway.core.sequence import Sequence as TokenSequence
from headway.engine.forward import Forward
from headway.engine.input_buffers import HostInputs, Inputs
from headway.engine.step_inputs import build_step_inputs

NOT_FINITE = "the model gave no finite logits (NaN or infinity)"


class TokenSampler(Protocol):
    def sample(self, logits: Tensor, sequences: Sequence[TokenSequence]) -> Sequence[SampledToken | None]:
        """The next token of each sequence from its row of ``logits`` [len(sequences), vocab_size]; None: there is none
        to be had, since the row is no numbers."""


class Runner:
    """The model over its pages, and a sampler. If a step raises, the sequences and their page tables are as before."""

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

    def run(self, plan: StepPlan) -> StepResult:
        if not plan.chunks:
            return StepResult({})
        logits = self._forward(self._inputs.upload(build_step_inputs(plan, self._page_size)))
        sequences = [chunk.sequence for chunk in plan.chunks if chunk.is_sampled]
        if not sequences:
            return StepResult({})
        sampled: dict[int, SampledToken] = {}
        failed: dict[int, str] = {}
        for sequence, token in zip(sequences, self._sampler.sample(logits, sequences), strict=True):
            if token is None:
                failed[sequence.number] = NOT_FINITE
            else:
                sampled[sequence.number] = token
        return StepResult(sampled, failed)

    def free_memory(self) -> None:
        """Give back what torch keeps of the device's memory for later; after a step that found too little."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def is_device_sound(self) -> bool:
        """Whether the device still computes. After some faults (an illegal access on a GPU) it does not any more, for
        as long as the process lives."""
        try:
            return bool((torch.ones(2, device=self._device).sum() == 2.0).item())
        except RuntimeError:
            return False
