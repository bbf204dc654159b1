"""Captured decodes on a CPU: the padded steps, called where a GPU would replay them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from headway.core.job import JobKey, SamplingParams
from headway.core.pages import PagePool
from headway.core.scheduler import Scheduler, SchedulerConfig
from headway.core.sequence import Sequence
from headway.engine import attention
from headway.engine.attention import ATTENTION_NAME
from headway.engine.captured.forward import CapturedForward
from headway.engine.captured.ladder import DecodeShape, Ladder
from headway.engine.captured.recording import DirectRecorder, Recorder, Replay
from headway.engine.config import EngineConfig
from headway.engine.forward import DeviceInputs, EagerForward, Forward
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel, prepare
from headway.engine.paged_reference import paged_attention_reference
from headway.engine.runner import Runner
from headway.engine.sampling import Sampler
from tests.engine.model_kinds import make_model

CPU = torch.device("cpu")
PAGE_SIZE, NUM_PAGES = 4, 24
MAX_NUM_SEQS = 6
PROMPTS = ((5,), (7, 8, 9), tuple(range(20, 37)), (3, 4), (11, 12, 13, 14, 15), (40,), (41, 42))


@pytest.fixture(autouse=True)
def reference_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "paged_attention", paged_attention_reference)


def load(kind: str) -> LoadedModel:
    """In float64, so that another number of rows changes no token."""
    model = make_model(kind, torch.float64)
    model.set_attn_implementation(ATTENTION_NAME)
    return prepare(model, None, EngineConfig(model=kind), print)


@pytest.fixture(scope="module", params=["llama", "gemma3", "gpt-oss", "mixtral"])
def loaded(request: pytest.FixtureRequest) -> LoadedModel:
    return load(request.param)


@pytest.fixture(scope="module")
def llama() -> LoadedModel:
    return load("llama")


def make_cache(loaded: LoadedModel) -> KvCache:
    """Full of NaN, the scratch page too."""
    cache = KvCache(loaded, NUM_PAGES, PAGE_SIZE)
    for pages in (*cache.key_pages, *cache.value_pages):
        pages.fill_(torch.nan)
    return cache


@dataclass
class CountedForward:
    """Also notes how many tokens and sampled rows each call has."""

    forward: Forward
    calls: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, inputs: DeviceInputs) -> Tensor:
        self.calls.append((len(inputs.token_ids), len(inputs.sampled_rows)))
        return self.forward(inputs)


@dataclass
class GrowingRecorder(DirectRecorder):
    """Each recording takes a byte; the one with the number ``fails_at`` fails."""

    fails_at: int | None = None
    num_bytes: int = 0

    def record(self, step: Callable[[], None]) -> Replay:
        if self.num_bytes == self.fails_at:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.num_bytes += 1
        return super().record(step)


@dataclass
class Captured:
    """A captured forward and what is below it."""

    forward: CapturedForward
    below: CountedForward
    cache: KvCache


def make_captured(loaded: LoadedModel, recorder: Recorder | None = None, budget_bytes: int = 100) -> Captured:
    cache = make_cache(loaded)
    below = CountedForward(EagerForward(loaded, cache))
    ladder = Ladder(MAX_NUM_SEQS, cache.max_model_len, PAGE_SIZE)
    forward = CapturedForward(below, ladder, cache.scratch_page, CPU)
    forward.capture(recorder or DirectRecorder(), budget_bytes)
    below.calls.clear()
    return Captured(forward, below, cache)


def make_decodes(*rows: tuple[int, int, list[int]]) -> DeviceInputs:
    """(token, context length, pages) of each sequence."""
    num_columns = max(len(pages) for _, _, pages in rows)
    positions = torch.tensor([length - 1 for _, length, _ in rows])
    table = torch.tensor([pages + [0] * (num_columns - len(pages)) for _, _, pages in rows], dtype=torch.int32)
    pages = table[torch.arange(len(rows)), positions // PAGE_SIZE].long()
    return DeviceInputs(
        token_ids=torch.tensor([token for token, _, _ in rows]),
        positions=positions,
        slot_mapping=pages * PAGE_SIZE + positions % PAGE_SIZE,
        page_table=table,
        query_start=torch.arange(len(rows) + 1, dtype=torch.int32),
        context_lens=(positions + 1).int(),
        sampled_rows=torch.arange(len(rows)),
    )


def generate(loaded: LoadedModel, cache: KvCache, forward: Forward) -> list[list[int]]:
    """Every prompt's output, of six lengths, so that the batch shrinks and grows; pages run out on the way."""
    runner = Runner(forward, Sampler(loaded.vocab_size, CPU), CPU, PAGE_SIZE)
    config = SchedulerConfig(
        max_num_seqs=MAX_NUM_SEQS, max_prefill_chunk=8, page_watermark_low=0.0, page_watermark_high=0.0
    )
    scheduler = Scheduler(config, PagePool(NUM_PAGES, PAGE_SIZE), cache.max_model_len)
    sequences = []
    for number, prompt in enumerate(PROMPTS):
        sampling = SamplingParams(temperature=0.0, max_tokens=9 + 3 * number)
        key = JobKey("acme", f"job-{number}")
        sequences.append(Sequence(number, key, sampling, list(prompt), len(prompt), 0.0, eos_token_ids=frozenset()))
        scheduler.add(sequences[-1])
    while scheduler.has_work:
        plan = scheduler.schedule(0.0)
        scheduler.update(plan, runner.run(plan), 0.0)
    assert any(sequence.num_preemptions for sequence in sequences)
    return [sequence.output_token_ids for sequence in sequences]


def test_captured_decodes_give_the_tokens_of_plain_ones(loaded: LoadedModel) -> None:
    cache = make_cache(loaded)
    expected = generate(loaded, cache, EagerForward(loaded, cache))
    captured = make_captured(loaded)
    assert generate(loaded, captured.cache, captured.forward) == expected
    assert len({token for output in expected for token in output}) > 20
    sizes = {tokens for tokens, sampled in captured.below.calls if tokens == sampled}
    assert sizes == {2, 4, 6}, "a decode was not padded"
    assert any(tokens != sampled for tokens, sampled in captured.below.calls)


def test_a_step_with_a_chunk_in_it_or_a_row_that_is_not_sampled_is_not_replayed(llama: LoadedModel) -> None:
    captured = make_captured(llama)
    decodes = make_decodes((5, 1, [0]), (6, 1, [1]), (7, 1, [2]))
    values = {name: getattr(decodes, name) for name in DeviceInputs.__slots__}
    two_sampled = DeviceInputs(**{**values, "sampled_rows": torch.tensor([0, 2])})
    chunk = DeviceInputs(
        **{
            **values,
            "page_table": decodes.page_table[:2],
            "query_start": torch.tensor([0, 1, 3], dtype=torch.int32),
            "context_lens": torch.tensor([1, 2], dtype=torch.int32),
            "positions": torch.tensor([0, 0, 1]),
            "slot_mapping": torch.tensor([0, 4, 5]),
            "sampled_rows": torch.tensor([0, 2]),
        }
    )
    for inputs in (two_sampled, chunk, decodes):
        captured.forward(inputs)
    assert captured.below.calls == [(3, 2), (3, 2), (4, 4)]


def test_logits_are_those_of_the_steps_rows(llama: LoadedModel) -> None:
    captured = make_captured(llama)
    cache = make_cache(llama)
    decodes = make_decodes((5, 1, [3]), (6, 1, [1]), (7, 1, [2]))
    logits = captured.forward(decodes)
    assert logits.shape == (3, llama.vocab_size)
    torch.testing.assert_close(logits, EagerForward(llama, cache)(decodes))


def test_padding_never_writes_to_pages_of_sequences_that_have_left(llama: LoadedModel) -> None:
    captured = make_captured(llama)
    captured.forward(make_decodes((5, 1, [0]), (6, 1, [1]), (7, 1, [2])))
    for pages in (*captured.cache.key_pages, *captured.cache.value_pages):
        pages.fill_(torch.nan)
    assert captured.forward(make_decodes((8, 1, [4]))).isfinite().all()
    for pages in (*captured.cache.key_pages, *captured.cache.value_pages):
        assert pages[[*range(4), *range(5, NUM_PAGES)]].isnan().all()
        assert not pages[4, 0].isnan().any()


def test_nan_in_the_scratch_page_reaches_nobody(llama: LoadedModel) -> None:
    captured = make_captured(llama)
    before = captured.forward(make_decodes((5, 1, [0]), (6, 1, [1]), (7, 1, [2]))).clone()
    for pages in (*captured.cache.key_pages, *captured.cache.value_pages):
        pages[captured.cache.scratch_page] = torch.nan
    again = captured.forward(make_decodes((5, 1, [0]), (6, 1, [1]), (7, 1, [2])))
    assert torch.equal(again, before)


def test_capturing_stops_when_the_budget_is_used(llama: LoadedModel) -> None:
    captured = make_captured(llama, GrowingRecorder(), budget_bytes=2)
    assert captured.forward.shapes == {DecodeShape(6, 16), DecodeShape(4, 16)}
    captured.forward(make_decodes((5, 1, [0])))
    assert captured.below.calls == [(4, 4)], "a missing shape is padded to a larger one"


def test_what_cannot_be_captured_runs_all_the_same(llama: LoadedModel, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        captured = make_captured(llama, GrowingRecorder(fails_at=0))
    assert captured.forward.shapes == frozenset()
    assert captured.forward(make_decodes((5, 1, [0]))).isfinite().all()
    assert captured.below.calls == [(1, 1)]
    assert "stream is capturing" in caplog.text
