"""Runs one step on the model: plan in, sampled tokens out. It decides nothing and remembers nothing.

All chunks of a step go through the model as one row, [1, total tokens], so decodes and prefill chunks share every
matrix multiplication. The head is computed for sampled rows only: with a large vocabulary the rest would cost
more than the layers. The model's own forward does it (``logits_to_keep``), since some do more than multiply there
(Gemma 2 caps its logits).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.batch import SampledToken, StepPlan, StepResult
from headway.core.sequence import Sequence as TokenSequence
from headway.engine.attention import PagedBatch
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel
from headway.engine.step_inputs import StepInputs, build_step_inputs

NOT_FINITE = "the model gave no finite logits (NaN or infinity)"


class TokenSampler(Protocol):
    def sample(self, logits: Tensor, sequences: Sequence[TokenSequence]) -> Sequence[SampledToken | None]:
        """The next token of each sequence from its row of ``logits`` [len(sequences), vocab_size]; None: there is none
        to be had, since the row is no numbers."""


class Runner:
    """The model, its pages and a sampler. If a step raises, the sequences and their page tables are as before."""

    def __init__(self, loaded: LoadedModel, cache: KvCache, sampler: TokenSampler) -> None:
        self._model = loaded.model
        self._device = loaded.device
        self._cache = cache
        self._sampler = sampler

    def run(self, plan: StepPlan) -> StepResult:
        if not plan.chunks:
            return StepResult({})
        logits = self.logits(build_step_inputs(plan, self._cache.page_size))
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

    @torch.inference_mode()
    def logits(self, inputs: StepInputs) -> Tensor:
        """Computes the step; [number of sampled rows, vocab_size]."""
        batch = PagedBatch(
            key_pages=self._cache.key_pages,
            value_pages=self._cache.value_pages,
            slot_mapping=self._tensor(inputs.slot_mapping),
            page_table=self._tensor(inputs.page_table),
            query_start=self._tensor(inputs.query_start),
            context_lens=self._tensor(inputs.context_lens),
        )
        output = self._model(
            input_ids=self._tensor(inputs.token_ids)[None],
            position_ids=self._tensor(inputs.positions)[None],
            use_cache=False,
            logits_to_keep=self._tensor(inputs.sampled_rows),
            paged=batch,
        )
        logits: Tensor = output.logits[0]
        return logits

    def _tensor(self, array: NDArray[np.int32] | NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(self._device, non_blocking=True)
