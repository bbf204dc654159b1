"""From a step's inputs to logits: the model's forward over the pages.

    EagerForward        op by op; on a CPU, and wherever the others cannot serve
    CompiledForward     the same through torch.compile, for any step (`headway.engine.compiled`)
    CapturedForward     steps that only decode, as one launch; others go to one of the two (`headway.engine.captured`)

All chunks of a step go through the model as one row, [1, total tokens], so decodes and prefill chunks share every
matrix multiplication. The head is computed for sampled rows only: with a large vocabulary the rest would cost
more than the layers. The model's own forward does it (``logits_to_keep``), since some do more than multiply there
(Gemma 2 caps its logits).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headway.engine.attention import PagedBatch
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel
from headway.engine.step_inputs import StepInputs


@dataclass(frozen=True, slots=True)
class DeviceInputs:
    """`StepInputs` on the model's device, with the same shapes and types."""

    token_ids: Tensor
    positions: Tensor
    slot_mapping: Tensor
    page_table: Tensor
    query_start: Tensor
    context_lens: Tensor
    sampled_rows: Tensor

    @classmethod
    def of(cls, inputs: StepInputs, device: torch.device) -> DeviceInputs:
        arrays = {name: getattr(inputs, name) for name in cls.__slots__}
        return cls(**{name: torch.from_numpy(array) for name, array in arrays.items()}).to(device)

    def to(self, device: torch.device) -> DeviceInputs:
        tensors = {name: getattr(self, name) for name in self.__slots__}
        return DeviceInputs(**{name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()})


class Forward(Protocol):
    """A way of running the model."""

    def __call__(self, inputs: DeviceInputs) -> Tensor:
        """Logits [number of sampled rows, vocab_size], valid until the next call; new keys and values are in their
        pages."""


class EagerForward:
    """Op by op, whatever the shapes."""

    def __init__(self, loaded: LoadedModel, cache: KvCache) -> None:
        self._model = loaded.model
        self._cache = cache

    @torch.inference_mode()
    def __call__(self, inputs: DeviceInputs) -> Tensor:
        return run_model(self._model, self._cache, inputs)


def run_model(model: PreTrainedModel, cache: KvCache, inputs: DeviceInputs) -> Tensor:
    """What every `Forward` computes."""
    batch = PagedBatch(
        key_pages=cache.key_pages,
        value_pages=cache.value_pages,
        slot_mapping=inputs.slot_mapping,
        page_table=inputs.page_table,
        query_start=inputs.query_start,
        context_lens=inputs.context_lens,
        scales=cache.scales,
    )
    output = model(
        input_ids=inputs.token_ids[None],
        position_ids=inputs.positions[None],
        use_cache=False,
        logits_to_keep=inputs.sampled_rows,
        paged=batch,
    )
    logits: Tensor = output.logits[0]
    return logits
