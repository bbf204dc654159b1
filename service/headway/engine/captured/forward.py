"""The forward that replays captured decodes, and how they are captured at the start."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from headway.engine.captured.ladder import DecodeShape, Ladder, best_fit
from headway.engine.captured.recording import Recorder, Replay
from headway.engine.captured.static_inputs import StaticInputs
from headway.engine.forward import DeviceInputs, Forward

logger = logging.getLogger(__name__)


class CapturedForward:
    """Replays the decodes that fit the ladder, and leaves everything else to ``forward``, which also computes what is
    captured."""

    def __init__(self, forward: Forward, ladder: Ladder, scratch_page: int, device: torch.device) -> None:
        self._forward = forward
        self._ladder = ladder
        num_rows = ladder.batch_sizes[-1]
        self._inputs = {
            width: StaticInputs(num_rows, width, scratch_page, ladder.page_size, device) for width in ladder.widths
        }
        self._replays: dict[DecodeShape, Replay] = {}
        self._logits = torch.empty(0)
        """[largest batch size, vocab_size]. In memory of their own: what graphs allocate, the next one overwrites."""

    @property
    def shapes(self) -> frozenset[DecodeShape]:
        """That are captured."""
        return frozenset(self._replays)

    @torch.inference_mode()
    def capture(self, recorder: Recorder, budget_bytes: int) -> None:
        """The ladder's shapes, in its order, until they take ``budget_bytes``. What cannot be captured is not, with a
        warning. Steps of a missing shape are padded to a larger one, or not replayed."""
        try:
            self._logits = torch.empty_like(self._forward(self._view(self._ladder.shapes[0])))
            for shape in self._ladder.shapes:
                if recorder.num_bytes >= budget_bytes:
                    return
                self._replays[shape] = recorder.record(self._step(shape))
        except Exception as exc:  # of torch, Triton, or the driver
            logger.warning("decodes beyond %d shapes are not captured: %s", len(self._replays), exc, exc_info=True)

    @torch.inference_mode()
    def __call__(self, inputs: DeviceInputs) -> Tensor:
        shape = self._fitting(inputs)
        if shape is None:
            return self._forward(inputs)
        self._inputs[shape.num_columns].fill(inputs)
        self._replays[shape]()
        return self._logits[: len(inputs.token_ids)]

    def _fitting(self, inputs: DeviceInputs) -> DecodeShape | None:
        """Decided from shapes alone. A sequence has at least one token, so as many tokens as sequences are one each."""
        num_sequences, num_columns = inputs.page_table.shape
        if not num_sequences == len(inputs.token_ids) == len(inputs.sampled_rows):
            return None
        return best_fit(self._replays, num_sequences, num_columns)

    def _step(self, shape: DecodeShape) -> Callable[[], None]:
        def step() -> None:
            self._logits[: shape.batch_size].copy_(self._forward(self._view(shape)))

        return step

    def _view(self, shape: DecodeShape) -> DeviceInputs:
        return self._inputs[shape.num_columns].view(shape.batch_size)
