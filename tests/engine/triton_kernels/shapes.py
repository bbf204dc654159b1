"""Batches without memory, for what depends on shapes alone: any read of a tensor's numbers fails on them."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.engine.page_scales import Scales
from headway.engine.triton_kernels.batch import Batch


def unreal(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def unreal_batch(
    num_tokens: int = 64,
    num_sequences: int = 64,
    num_heads: int = 32,
    num_kv_heads: int = 8,
    dim: int = 128,
    value_dim: int | None = None,
    max_keys: int = 4096,
    page_size: int = 16,
    dtype: torch.dtype = torch.bfloat16,
    page_dtype: torch.dtype | None = None,
    **rule: object,
) -> Batch:
    """Of the shape of Llama 3 8B, unless told otherwise."""
    value_dim, page_dtype = value_dim or dim, page_dtype or dtype
    pages = (1000, page_size, num_kv_heads)
    scale = unreal(num_kv_heads, dtype=torch.float32)
    return Batch(
        query=unreal(num_tokens, num_heads, dim, dtype=dtype),
        key_pages=unreal(*pages, dim, dtype=page_dtype),
        value_pages=unreal(*pages, value_dim, dtype=page_dtype),
        page_table=unreal(num_sequences, max_keys // page_size),
        query_start=unreal(num_sequences + 1),
        context_lens=unreal(num_sequences),
        scale=dim**-0.5,
        scales=None if page_dtype == dtype else Scales(scale, scale),
        **rule,
    )


def unreal_output(batch: Batch) -> Tensor:
    return unreal(*batch.query.shape[:2], batch.value_dim, dtype=batch.query.dtype)
