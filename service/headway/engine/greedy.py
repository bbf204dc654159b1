"""The op ``headway::greedy``: the likeliest token of every row, and whether the row says anything, in one pass.

headway::greedy(logits) -> tokens
    logits [rows, vocab] bfloat16 or float32; tokens [rows] int64: the first of the row's largest logits, or -1
    (`NO_TOKEN`) where the largest is no finite number or any is NaN
"""

from __future__ import annotations

import torch
from torch import Tensor

from headway.engine.pointwise import DTYPES

OP = "headway::greedy"
NO_TOKEN = -1


def greedy(logits: Tensor) -> Tensor:
    """The op, for logits of any floating type."""
    tokens: Tensor = torch.ops.headway.greedy(logits) if logits.dtype in DTYPES else greedy_reference(logits)
    return tokens


def greedy_reference(logits: Tensor) -> Tensor:
    tokens = argmax(logits)
    return torch.where(is_usable(logits), tokens, NO_TOKEN)


def is_usable(logits: Tensor) -> Tensor:
    """bool [rows]: whether the largest logit of a row is a finite number.

    One maximum per row finds every row that nothing can be drawn from: a NaN anywhere makes it NaN, an infinity makes
    it infinite, and minus infinity is what a row of nothing else has. Single tokens may be ruled out by minus infinity.
    """
    return logits.amax(-1).isfinite()


def argmax(logits: Tensor) -> Tensor:
    """Token ids [rows]. On a CPU through numpy, which vectorises it: torch's own takes ten times as long."""
    if logits.device.type != "cpu":
        return logits.argmax(-1)
    numbers = logits.float() if logits.dtype == torch.bfloat16 else logits
    return torch.from_numpy(numbers.numpy().argmax(-1))


torch.library.define(OP, "(Tensor logits) -> Tensor")
torch.library.impl(OP, "CompositeExplicitAutograd")(greedy_reference)


@torch.library.register_fake(OP)
def _greedy_shape(logits: Tensor) -> Tensor:
    return logits.new_empty(logits.shape[:1], dtype=torch.int64)
