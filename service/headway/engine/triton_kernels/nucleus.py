"""``headway::settle`` on NVIDIA GPUs."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.engine.nucleus import NUM_BITS
from headway.engine.triton_kernels.device.nucleus import settle_rows
from headway.engine.triton_kernels.launch import Launch

BLOCK = 4096
"""Weights of one program at a time: with 16 warps 64 bytes per thread, 32 KB under way."""
NUM_WARPS = 16


def settle_triton(least: Tensor, is_settled: Tensor, weights: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """See `headway.engine.nucleus`; on the current device."""
    output = torch.empty_like(least)
    settle_launch(output, least, is_settled, weights.contiguous(), top_k, top_p).run()
    return output


def settle_launch(
    output: Tensor, least: Tensor, is_settled: Tensor, weights: Tensor, top_k: Tensor, top_p: Tensor
) -> Launch:
    """``weights`` contiguous, at least one row."""
    return Launch(
        kernel=settle_rows,
        grid=(len(weights),),
        arguments={
            "output": output,
            "least": least,
            "is_settled": is_settled.view(torch.uint8),
            "weights": weights,
            "top_k": top_k,
            "top_p": top_p,
            "vocab_size": weights.shape[1],
        },
        constants={"NUM_DIGITS": -(-NUM_BITS // 2), "BLOCK": BLOCK},
        num_warps=NUM_WARPS,
    )
