"""Puts the Triton kernels behind their ops for CUDA tensors, or says why they are not used."""

from __future__ import annotations

import logging
from functools import cache

import torch

from headway.engine import attention, nucleus

logger = logging.getLogger(__name__)

MIN_CAPABILITY = (8, 0)
"""The oldest with bfloat16 matrix instructions and asynchronous copies."""


def use_triton_kernels(device: torch.device) -> bool:
    """For all CUDA tensors of this process. Where that fails, one warning, and the op stays what it is: the reference.
    Kernels are compiled when they are first needed, seconds each, and kept in Triton's cache folder."""
    if torch._C._dispatch_has_kernel_for_dispatch_key(attention.OP, "CUDA"):
        return True
    capability = torch.cuda.get_device_capability(device)
    if capability < MIN_CAPABILITY:
        _warn("the GPU's compute capability is {}.{}, and 8.0 is needed".format(*capability))
        return False
    try:
        from headway.engine.triton_kernels.nucleus import settle_triton
        from headway.engine.triton_kernels.op import paged_attention_triton
    except ImportError as exc:
        _warn(f"triton cannot be imported: {exc}")
        return False
    attention.register_kernel("cuda", paged_attention_triton, is_extended=True)
    torch.library.impl(nucleus.OP, "cuda")(settle_triton)
    return True


@cache
def _warn(reason: str) -> None:
    logger.warning(
        "attention runs in plain torch, many times slower: %s. Set native_kernels to off to silence this.", reason
    )
