"""Checks of what surrounds attention on a GPU: rotary positions on the way to the pages, eight bits, captured steps."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from headway.engine.page_scales import EIGHT_BITS, LARGEST, MIN_CAPABILITY, Scales
from headway.engine.paged_reference import paged_attention_reference
from headway.engine.triton_kernels.attend import attention_launches
from headway.engine.triton_kernels.batch import Batch
from headway.engine.triton_kernels.op import chip_of, paged_attention_triton
from headway.engine.triton_kernels.write import rotate_launch, write_launch
from loadtest.gpu.cases import DECODES, MIXED, AttentionCase, draw_arguments, exact_arguments
from loadtest.gpu.checks import AbsentError, Item, Task
from loadtest.gpu.timing import captured
from loadtest.row import Aim

ROTARY = "rotary positions on the way, alone"
ROUNDING = "rounding to eight bits"
CAPTURE = "decodes, replayed with longer contexts"


def rotary_error(device: torch.device, num_tokens: int = 500, dim: int = 128, rotary_dim: int = 64) -> float:
    """The largest difference from float64 of queries and keys, in float32."""
    query, key = (torch.randn(num_tokens, heads, dim, device=device) for heads in (32, 8))
    angles = torch.rand(num_tokens, rotary_dim // 2, device=device).repeat(1, 2) * 6
    key_pages, value_pages = (torch.zeros(-(-num_tokens // 16), 16, 8, dim, device=device) for _ in range(2))
    rotated, slots = torch.empty_like(query), torch.arange(num_tokens, device=device)
    cos, sin = angles.cos(), angles.sin()
    rotate_launch(rotated, query, key, key, cos, sin, key_pages, value_pages, slots).run()
    written = key_pages.flatten(0, 1)[:num_tokens]
    errors = [(rotated - rotate(query, angles)).abs().max(), (written - rotate(key, angles)).abs().max()]
    return float(torch.stack(errors).max())


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """The definition, in float64: the columns of both halves are a complex number's parts."""
    half = angles.shape[1] // 2
    pairs = torch.complex(x[..., :half].double(), x[..., half : 2 * half].double())
    turned = pairs * torch.polar(torch.ones_like(angles[:, None, :half]).double(), angles[:, None, :half].double())
    return torch.cat((turned.real, turned.imag, x[..., 2 * half :].double()), -1)


def eight_bit_error(device: torch.device, lengths: tuple[tuple[int, int], ...] = MIXED) -> float:
    """Of attention over pages of eight bits, relative to attention over the numbers that were rounded (root mean
    squares)."""
    case = AttentionCase("eight bits", lengths, dtype=torch.float16)
    arguments = draw_arguments(case, device)
    exact = paged_attention_reference(**exact_arguments(arguments, case))
    scale = torch.full((case.num_kv_heads,), 4 / LARGEST, device=device)
    batch = eight_bit_batch(arguments, Scales(scale, scale))
    output = torch.full_like(exact, torch.nan, dtype=case.dtype)
    for launch in attention_launches(batch, output, chip_of(device)):
        launch.run()
    return float((output.double() - exact).pow(2).mean().sqrt() / exact.pow(2).mean().sqrt())


def eight_bit_batch(arguments: dict[str, Any], scales: Scales) -> Batch:
    """The batch over rounded pages: the past rounded by torch, the new tokens by the kernel."""
    key_pages, value_pages = (
        (arguments[name].float() / scale[:, None]).clamp(-LARGEST, LARGEST).to(EIGHT_BITS)
        for name, scale in (("key_pages", scales.key), ("value_pages", scales.value))
    )
    write_launch(arguments["key"], arguments["value"], key_pages, value_pages, arguments["slot_mapping"], scales).run()
    return Batch(
        arguments["query"],
        key_pages,
        value_pages,
        arguments["page_table"],
        arguments["query_start"],
        arguments["context_lens"],
        arguments["scale"],
        scales=scales,
    )


def captured_differs_from_plain(device: torch.device) -> float:
    """Captures decodes over short contexts and replays them over long ones, in the same tensors: the share of elements
    that are not the same bits."""
    arguments = draw_arguments(AttentionCase("captured", DECODES), device)
    lengths = arguments["context_lens"].clone()
    arguments["context_lens"].fill_(1)
    outputs: list[Tensor] = []
    graph = captured(lambda: outputs.append(paged_attention_triton(**arguments)))
    arguments["context_lens"].copy_(lengths)
    graph.replay()
    return float((outputs[-1] != paged_attention_triton(**arguments)).double().mean())


def tasks(device: torch.device) -> list[Task]:
    """The kernels that write pages, by themselves; how much rounding to eight bits costs; and that a captured decode,
    replayed over other numbers, gives the very bits of an ordinary one."""
    return [
        Task(Item(ROTARY, ("error",), Aim(1e-5, is_least=False)), partial(_rotary, device)),
        Task(Item(ROUNDING, ("relative_error",), Aim(0.06, is_least=False)), partial(_rounding, device)),
        Task(Item(CAPTURE, ("differing_share",), Aim(0.0, is_least=False)), partial(_capture, device)),
    ]


def _rotary(device: torch.device) -> dict[str, float]:
    return {"error": rotary_error(device)}


def _rounding(device: torch.device) -> dict[str, float]:
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < MIN_CAPABILITY:
        raise AbsentError("eight bits need compute capability {}.{}".format(*MIN_CAPABILITY))
    return {"relative_error": eight_bit_error(device)}


def _capture(device: torch.device) -> dict[str, float]:
    return {"differing_share": captured_differs_from_plain(device)}
