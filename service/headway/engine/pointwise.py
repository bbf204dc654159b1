"""What stands between a model's matrix products, as ops that read and write their rows once.

    headway::rms_norm(input, weight, epsilon, rounds_first) -> output
        input, output [..., width]; weight [width] float32, the factor itself (1 + w where a model stores w)
        output = input / sqrt(mean(input²) + epsilon) · weight, computed in float32; ``rounds_first``: rounded to the
        input's type before the weight is applied, as Llama does, and not only after, as Gemma does
        (Zhang and Sennrich, Root Mean Square Layer Normalization, 2019)

    headway::gated(gate, up, activation) -> output                    all [..., width]
        output = activation(gate) · up, the activation's value rounded first (Shazeer, GLU Variants, 2020);
        ``activation`` is the position of its name in `ACTIVATIONS`

    headway::rotary(query, key, cos, sin) -> (query, key)
        query, key [1, heads, T, width] to [1, T, heads, width]; cos, sin [1, T, width]; element i turns with element
        i + width / 2 (Su et al., RoFormer, 2021)

All for bfloat16 and float32, inputs and outputs of one type; rows may lie apart. Rounded wherever transformers' models
round, so that a model whose code is replaced by these gives the same tokens.

The functions below compute the same in plain torch, wherever the native kernels are not loaded.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

ACTIVATIONS = ("silu", "gelu_tanh")
"""By the number that the op takes; pointwise.h knows the same ones."""
DTYPES = (torch.bfloat16, torch.float32)


def rms_norm_reference(input: Tensor, weight: Tensor, epsilon: float, rounds_first: bool) -> Tensor:
    wide = input.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    if rounds_first:
        normed = normed.to(input.dtype).float()
    return (normed * weight).to(input.dtype)


def gated_reference(gate: Tensor, up: Tensor, activation: int) -> Tensor:
    name = ACTIVATIONS[activation]
    return (silu(gate) if name == "silu" else gelu(gate, approximate="tanh")) * up


def rotary_reference(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return _rotate(query, cos, sin), _rotate(key, cos, sin)


def _rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = heads.chunk(2, dim=-1)
    turned = heads * cos[:, None] + torch.cat((-high, low), dim=-1) * sin[:, None]
    return turned.transpose(1, 2).contiguous()


torch.library.define("headway::rms_norm", "(Tensor input, Tensor weight, float epsilon, bool rounds_first) -> Tensor")
torch.library.define("headway::gated", "(Tensor gate, Tensor up, int activation) -> Tensor")
torch.library.define("headway::rotary", "(Tensor query, Tensor key, Tensor cos, Tensor sin) -> (Tensor, Tensor)")
torch.library.impl("headway::rms_norm", "CompositeExplicitAutograd")(rms_norm_reference)
torch.library.impl("headway::gated", "CompositeExplicitAutograd")(gated_reference)
torch.library.impl("headway::rotary", "CompositeExplicitAutograd")(rotary_reference)


@torch.library.register_fake("headway::rms_norm")
def _norm_shape(input: Tensor, weight: Tensor, epsilon: float, rounds_first: bool) -> Tensor:
    return input.new_empty(input.shape)


@torch.library.register_fake("headway::gated")
def _gated_shape(gate: Tensor, up: Tensor, activation: int) -> Tensor:
    return gate.new_empty(gate.shape)


@torch.library.register_fake("headway::rotary")
def _rotary_shape(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return query.new_empty(query.transpose(1, 2).shape), key.new_empty(key.transpose(1, 2).shape)
