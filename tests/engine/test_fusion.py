"""What is replaced in which architecture, and that it computes the same."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headway.engine.fused_layers import FusedNorm, FusedRotary, GatedMlp
from headway.engine.fusion import ROTARY, Fusion, can_fuse, fuse
from headway.engine.native.kernels import NativeKernels
from tests.engine.model_kinds import KINDS, logits, make_model

DTYPES = [torch.bfloat16, torch.float32]
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def sources_as_they_were(kernels: NativeKernels) -> Iterator[None]:
    """Functions of transformers that a test replaces are put back."""
    yield
    for module in list(sys.modules.values()):
        if isinstance(rotary := vars(module).get(ROTARY), FusedRotary):
            setattr(module, ROTARY, rotary.original)


def fused(model: PreTrainedModel) -> tuple[PreTrainedModel, Fusion]:
    model = copy.deepcopy(model)
    return model, fuse(model, model.dtype, lambda: logits(model, 2))


def error(model: PreTrainedModel, exact: PreTrainedModel, num_tokens: int) -> float:
    reference = logits(exact, num_tokens)
    return float((logits(model, num_tokens).double() - reference).norm() / reference.norm())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fused_model_is_as_exact_as_the_plain_one(kind: str, dtype: torch.dtype) -> None:
    plain = make_model(kind, dtype)
    exact = copy.deepcopy(plain).double()
    lengths = (1, 7, 40)
    allowed = [1.5 * error(plain, exact, num_tokens) + 1e-6 for num_tokens in lengths]
    model, fusion = fused(plain)
    expected = KINDS[kind]
    assert fusion == Fusion(expected.num_norms, expected.num_gates, int(expected.has_rotary))
    assert all(error(model, exact, n) <= most for n, most in zip(lengths, allowed, strict=True))


def test_all_of_a_llama_is_fused() -> None:
    model, _ = fused(make_model("llama", torch.bfloat16))
    kinds = [type(module) for module in model.modules()]
    assert kinds.count(FusedNorm) == 5
    assert kinds.count(GatedMlp) == 2
    assert not any(type(module).__name__ in ("LlamaRMSNorm", "LlamaMLP") for module in model.modules())


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_a_norm_rounds_where_the_model_s_own_does(kind: str) -> None:
    """Llama before the weight is applied, Gemma only after."""
    plain = make_model(kind, torch.bfloat16)
    for module in plain.modules():
        if type(module).__name__.endswith("RMSNorm"):
            nn.init.normal_(module.weight)
    model, _ = fused(plain)
    pairs = [(plain.get_submodule(name), norm) for name, norm in model.named_modules() if isinstance(norm, FusedNorm)]
    assert len(pairs) == KINDS[kind].num_norms
    for own, norm in pairs:
        rows = torch.randn(200, len(norm.weight)).to(torch.bfloat16)
        assert (own(rows) != norm(rows)).float().mean() < 0.01


class Doubled(nn.Module):
    """Looks like a norm, and is none."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = 1e-5

    def forward(self, input: Tensor) -> Tensor:
        return input * self.weight * 2


class SquaredGate(nn.Module):
    """Looks like a gated MLP, and is another."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (nn.Linear(width, width) for _ in range(3))
        self.act_fn = nn.SiLU()

    def forward(self, input: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(input)) * self.up_proj(input) ** 2)


class ExactGelu(SquaredGate):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.act_fn = nn.GELU()

    def forward(self, input: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(input)) * self.up_proj(input))


@pytest.mark.parametrize("layer", [Doubled, SquaredGate, ExactGelu])
def test_what_only_looks_alike_stays(layer: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(layer(32))
    rows = torch.randn(1, 3, 32)
    before = model(rows)
    assert fuse(model, torch.float32, lambda: model(rows)) == Fusion()
    assert torch.equal(model(rows), before)


class ReadsWeight(nn.Module):
    """Code that wants more of its norm than a call."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(32, eps=1e-5)

    def forward(self, input: Tensor) -> Tensor:
        assert isinstance(self.norm.eps, float)
        return self.norm(input)


def test_a_model_that_wants_more_than_a_call_keeps_its_modules() -> None:
    model = ReadsWeight()
    norm = model.norm
    assert fuse(model, torch.float32, lambda: model(torch.randn(1, 3, 32))) == Fusion()
    assert model.norm is norm


@pytest.mark.parametrize("num_sequences", [1, 2])
def test_whoever_else_uses_the_source_file_is_served_as_before(num_sequences: int) -> None:
    plain = make_model("llama", torch.float32)
    ids = torch.arange(12).reshape(num_sequences, -1)
    before = plain(input_ids=ids, labels=ids)
    before.loss.backward()
    gradient = plain.model.layers[0].self_attn.q_proj.weight.grad.clone()
    fused(plain)
    plain.zero_grad()
    after = plain(input_ids=ids, labels=ids)
    after.loss.backward()
    assert torch.equal(after.logits, before.logits)
    assert torch.equal(plain.model.layers[0].self_attn.q_proj.weight.grad, gradient)


def test_a_function_is_wrapped_once() -> None:
    for _ in range(2):
        fused(make_model("llama", torch.bfloat16))
    rotary = vars(sys.modules["transformers.models.llama.modeling_llama"])[ROTARY]
    assert isinstance(rotary, FusedRotary)
    assert not isinstance(rotary.original, FusedRotary)


@pytest.mark.parametrize(
    ("dtype", "device", "expected"),
    [
        (torch.bfloat16, "cpu", True),
        (torch.float32, "cpu", True),
        (torch.float64, "cpu", False),
        (torch.bfloat16, "cuda", False),
    ],
)
def test_other_types_and_devices_keep_what_they_have(dtype: torch.dtype, device: str, expected: bool) -> None:
    assert can_fuse(dtype, torch.device(device)) == expected
