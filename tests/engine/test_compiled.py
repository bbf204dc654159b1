"""One compiled graph for all steps. The compiler's own code generator is tried once; elsewhere its graph is run as it
is, which is as strict about shapes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch._inductor.config as inductor_config
from torch import Tensor
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code

from headway.engine.attention import ATTENTION_NAME
from headway.engine.captured import ladder
from headway.engine.captured.forward import CapturedForward
from headway.engine.captured.ladder import Ladder
from headway.engine.captured.recording import DirectRecorder
from headway.engine.compiled import CompiledForward, compile_forward
from headway.engine.config import EngineConfig
from headway.engine.forward import DeviceInputs, EagerForward
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel, prepare
from tests.engine.model_kinds import make_model

PAGE_SIZE = 4
NUM_PAGES = 37
"""No other size is this one: code that makes a copy of the pages would say it."""
STEPS = (
    ((12, 12), (1, 5)),
    ((1, 1),),
    ((1, 1), (1, 9)),
    ((1, 9), (1, 2), (1, 3)),
    ((2, 2),),
    ((7, 30),),
    ((3, 3), (1, 4), (5, 20)),
    ((8, 8),) * 4,
    ((1, 4),) * 9,
    ((32, 32), (1, 1)),
)
"""Of each sequence (new tokens, tokens in all)."""


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def no_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the graph does not take fails instead of running op by op."""
    set_stance = torch.compiler.set_stance
    monkeypatch.setattr(torch.compiler, "set_stance", lambda _: set_stance("fail_on_recompile"))


def load(kind: str, dtype: torch.dtype = torch.float64) -> LoadedModel:
    model = make_model(kind, dtype)
    model.set_attn_implementation(ATTENTION_NAME)
    return prepare(model, None, EngineConfig(model=kind, pack_weights="off", native_kernels="off"), print)


def make_caches(loaded: LoadedModel) -> tuple[KvCache, KvCache]:
    """Two with the same numbers in them."""
    caches = KvCache(loaded, NUM_PAGES, PAGE_SIZE), KvCache(loaded, NUM_PAGES, PAGE_SIZE)
    generator = torch.Generator().manual_seed(1)
    for one, other in zip(pages_of(caches[0]), pages_of(caches[1]), strict=True):
        one.copy_(torch.randn(one.shape, generator=generator))
        other.copy_(one)
    return caches


def pages_of(cache: KvCache) -> list[Tensor]:
    return [*cache.key_pages, *cache.value_pages]


def make_step(lengths: tuple[tuple[int, int], ...], num_sampled: int) -> DeviceInputs:
    """``num_sampled`` of the sequences, the last ones, are sampled."""
    num_columns = -(-max(total for _, total in lengths) // PAGE_SIZE)
    pages = torch.arange(len(lengths) * num_columns, dtype=torch.int32) % NUM_PAGES
    table = pages.view(len(lengths), num_columns)
    positions = torch.cat([torch.arange(total - new, total) for new, total in lengths])
    rows = torch.repeat_interleave(torch.tensor([new for new, _ in lengths]))
    ends = torch.tensor([new for new, _ in lengths]).cumsum(0)
    return DeviceInputs(
        token_ids=(positions * 7 + rows * 31) % 199,
        positions=positions,
        slot_mapping=table[rows, positions // PAGE_SIZE].long() * PAGE_SIZE + positions % PAGE_SIZE,
        page_table=table,
        query_start=torch.cat((torch.zeros(1), ends)).int(),
        context_lens=torch.tensor([total for _, total in lengths]).int(),
        sampled_rows=(ends - 1)[len(lengths) - num_sampled :],
    )


def all_steps() -> Iterator[DeviceInputs]:
    for lengths in STEPS:
        for num_sampled in {0, 1, len(lengths)}:
            yield make_step(lengths, num_sampled)


def num_graphs() -> int:
    return counters["stats"]["unique_graphs"]


@pytest.mark.parametrize(
    "kind",
    ["llama", "qwen2", "qwen3", "gemma3", "phi3, whose gate and up are one layer", "gpt2", "gpt-neox"],
)
def test_one_graph_serves_steps_of_all_shapes(kind: str, tmp_path: Path) -> None:
    loaded = load(kind)
    cache, plain_cache = make_caches(loaded)
    plain = EagerForward(loaded, plain_cache)
    forward = compile_forward(loaded, cache, tmp_path, "eager")
    assert isinstance(forward, CompiledForward)
    for inputs in all_steps():
        torch.testing.assert_close(forward(inputs), plain(inputs))
    for ours, theirs in zip(pages_of(cache), pages_of(plain_cache), strict=True):
        torch.testing.assert_close(ours[:NUM_PAGES], theirs[:NUM_PAGES])
    assert num_graphs() == 1
    assert not counters["graph_break"]


@pytest.mark.usefixtures("no_way_out")
def test_no_step_falls_out_of_the_graph(tmp_path: Path) -> None:
    """It would run op by op, and give the same."""
    loaded = load("llama")
    forward = compile_forward(loaded, make_caches(loaded)[0], tmp_path, "eager")
    for inputs in all_steps():
        forward(inputs)


@pytest.mark.usefixtures("no_way_out")
def test_tensors_that_were_made_in_inference_mode_are_no_others(tmp_path: Path) -> None:
    loaded = load("llama")
    forward = compile_forward(loaded, make_caches(loaded)[0], tmp_path, "eager")
    with torch.inference_mode():
        forward(make_step(STEPS[0], 2))


@pytest.mark.usefixtures("no_way_out")
def test_captured_steps_of_all_sizes_and_widths_are_compiled_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "NARROW", 2 * PAGE_SIZE)
    loaded = load("llama")
    cache, plain_cache = make_caches(loaded)
    forward = compile_forward(loaded, cache, tmp_path, "eager")
    shapes = Ladder(9, 15 * PAGE_SIZE, PAGE_SIZE)
    captured = CapturedForward(forward, shapes, cache.scratch_page, torch.device("cpu"))
    captured.capture(DirectRecorder(), 1)
    assert len(captured.shapes) == len(shapes.batch_sizes) * 3
    plain = EagerForward(loaded, plain_cache)
    for length in (1, 9, 60):
        inputs = make_step(((1, length), (1, 3), (1, 2)), 3)
        torch.testing.assert_close(captured(inputs), plain(inputs))


def test_what_the_graph_does_not_take_runs_op_by_op_and_nothing_is_compiled_for_it(tmp_path: Path) -> None:
    loaded = load("llama")
    cache, _ = make_caches(loaded)
    forward = compile_forward(loaded, cache, tmp_path, "eager")
    inputs = make_step(STEPS[0], 2)
    expected = forward(inputs)
    inputs = DeviceInputs(
        **{name: getattr(inputs, name) for name in DeviceInputs.__slots__} | {"token_ids": inputs.token_ids.int()}
    )
    torch.testing.assert_close(forward(inputs), expected)
    assert num_graphs() == 1


def test_the_compiler_starts_no_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inductor_config, "compile_threads", 8)
    loaded = load("llama")
    compile_forward(loaded, make_caches(loaded)[0], tmp_path, "eager")
    assert inductor_config.compile_threads == 1


def test_a_model_that_cannot_be_compiled_runs_op_by_op(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load("llama")
    monkeypatch.setattr(loaded.model, "forward", with_graph_break(loaded.model.forward))
    cache, _ = make_caches(loaded)
    with caplog.at_level(logging.WARNING):
        forward = compile_forward(loaded, cache, tmp_path, "eager")
    assert isinstance(forward, EagerForward)
    assert forward(make_step(STEPS[0], 2)).isfinite().all()
    assert len(caplog.records) == 1
    assert "op by op" in caplog.text


def test_a_graph_that_serves_its_example_only_is_not_taken_for_one_that_serves_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load("llama")
    monkeypatch.setattr(loaded.model, "forward", with_two_ways(loaded.model.forward))
    cache, _ = make_caches(loaded)
    with caplog.at_level(logging.WARNING):
        forward = compile_forward(loaded, cache, tmp_path, "eager")
    assert isinstance(forward, EagerForward)
    assert "op by op" in caplog.text


def with_two_ways(forward):  # type: ignore[no-untyped-def]
    def divided(*arguments: object, **keywords: Tensor) -> object:
        scale = 2 if keywords["input_ids"].shape[1] > 10 else 1
        return forward(*arguments, **{**keywords, "input_ids": keywords["input_ids"] * scale})

    return divided


def with_graph_break(forward):  # type: ignore[no-untyped-def]
    def broken(*arguments: object, **keywords: object) -> object:
        torch._dynamo.graph_break()
        return forward(*arguments, **keywords)

    return broken


def test_the_code_generator_copies_no_pages_and_keeps_its_results_where_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    loaded = load("llama", torch.float32)
    cache, plain_cache = make_caches(loaded)
    forward, codes = run_and_get_code(compile_forward, loaded, cache, tmp_path / "inductor")
    assert isinstance(forward, CompiledForward)
    plain = EagerForward(loaded, plain_cache)
    for inputs in all_steps():
        torch.testing.assert_close(forward(inputs), plain(inputs), atol=1e-4, rtol=1e-4)
    assert num_graphs() == 1
    assert len(codes) == 1
    assert codes[0].count("torch.ops.headway.paged_attention.default(") == 2
    assert f"({NUM_PAGES + 1}," not in "".join(line for line in codes[0].splitlines() if "empty" in line)
    assert any((tmp_path / "inductor").iterdir())
