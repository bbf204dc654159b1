"""Faults of single sequences in real steps: a kernel that raises, logits that are no numbers, memory that is short."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from headway.core.errors import EngineBroken, EngineError
from headway.core.job import FinishReason, JobKey, SamplingParams
from headway.core.scheduler_config import SchedulerConfig
from headway.engine import attention, careful_runner
from headway.engine.build import assemble
from headway.engine.config import EngineConfig
from headway.engine.engine import ENGINE_ERROR, Engine
from headway.engine.load import LoadedModel
from headway.engine.messages import SequenceOutput, Submit
from headway.engine.paged_reference import paged_attention_reference
from headway.engine.runner import Runner

pytestmark = pytest.mark.usefixtures("both_loops", "one_tokenizer")

MARK = 7
"""The token whose embedding is NaN: so are its keys and values, and the logits behind it."""
NUM_TOKENS = 12
NUM_PLACES = 13
"""In a run at which memory runs out."""
PROMPT = tuple(range(100, 120))
LACK = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"


@pytest.fixture(scope="session")
def marked(tiny: LoadedModel) -> LoadedModel:
    """The tiny model, which loses its mind at one token."""
    model = copy.deepcopy(tiny.model)
    with torch.no_grad():
        model.get_input_embeddings().weight[MARK] = torch.nan
    return replace(tiny, model=model)


def make_engine(loaded: LoadedModel, **scheduling: object) -> Engine:
    return assemble(loaded, EngineConfig(kv_memory="2MiB"), SchedulerConfig(**scheduling), print)  # type: ignore[arg-type]


def make_submit(name: str, prompt: tuple[int, ...] = PROMPT, **sampling: object) -> Submit:
    params = SamplingParams(**{"max_tokens": NUM_TOKENS, "seed": 1, "ignore_eos": True, **sampling})  # type: ignore[arg-type]
    return Submit(JobKey("acme", name), params, prompt, None)


@dataclass
class Run:
    engine: Engine
    outputs: dict[str, list[SequenceOutput]] = field(default_factory=dict)

    def step(self) -> None:
        for output in self.engine.step(0.0).outputs:
            self.outputs.setdefault(output.key.id, []).append(output)

    def all(self, *jobs: Submit) -> Run:
        for job in jobs:
            self.engine.submit(job, 0.0)
        while self.engine.has_work:
            self.step()
        self.engine._scheduler.check_integrity()
        return self

    def tokens(self, name: str) -> tuple[int, ...]:
        return tuple(token for output in self.outputs[name] for token in output.token_ids)

    def failed(self, name: str) -> str | None:
        """Why; None if it has not."""
        last = self.outputs[name][-1]
        if last.error is None:
            assert last.finish_reason is FinishReason.LENGTH
            return None
        assert (last.finish_reason, last.error.code) == (FinishReason.ERROR, ENGINE_ERROR)
        return last.error.message


Kernel = Callable[..., Tensor]
UseKernel = Callable[[Callable[[Tensor, Tensor], None]], None]


@pytest.fixture
def before_attention(monkeypatch: pytest.MonkeyPatch) -> UseKernel:
    """Let the attention kernel do this first, with query and key of the whole step."""

    def use(check: Callable[[Tensor, Tensor], None]) -> None:
        def kernel(query: Tensor, key: Tensor, *rest: object, **named: object) -> Tensor:
            check(query, key)
            return paged_attention_reference(query, key, *rest, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(attention, "paged_attention", kernel)

    return use


def raise_at_mark(query: Tensor, key: Tensor) -> None:
    if key.isnan().any():
        raise RuntimeError("illegal instruction in the kernel\nwith a second line")


def healthy(name: str, number: int) -> Submit:
    """Jobs that use every part of the sampler, so that a step that is tried again would show."""
    kinds: list[dict[str, object]] = [{"temperature": 0.0}, {}, {"frequency_penalty": 0.5}, {"logprobs": 2}]
    return make_submit(name, tuple(range(200 + number, 220 + 2 * number)), **kinds[number % 4])


@pytest.mark.parametrize("num_marked", [1, 3])
@pytest.mark.parametrize("first", [0, 2, 5])
@pytest.mark.parametrize("fault", ["kernel raises", "logits are NaN"])
def test_only_the_sequences_at_fault_end_in_error(
    marked: LoadedModel, before_attention: UseKernel, fault: str, first: int, num_marked: int
) -> None:
    jobs = [healthy(f"good-{number}", number) for number in range(5)]
    bad = [make_submit(f"bad-{number}", (*PROMPT, MARK)) for number in range(num_marked)]
    alone = Run(make_engine(marked)).all(*jobs)
    if fault == "kernel raises":
        before_attention(raise_at_mark)
    run = Run(make_engine(marked)).all(*jobs[:first], *bad, *jobs[first:])
    for job in jobs:
        assert run.failed(job.key.id) is None
        assert run.tokens(job.key.id) == alone.tokens(job.key.id)
    expected = "engine failed at this job: RuntimeError: illegal" if fault == "kernel raises" else "no finite logits"
    for job in bad:
        assert expected in (run.failed(job.key.id) or "")
        assert "\n" not in (run.failed(job.key.id) or "")
        assert run.tokens(job.key.id) == ()


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {}, {"top_p": 0.5}, {"logprobs": 3}, {"min_tokens": 12}])
def test_what_a_job_had_before_its_fault_is_delivered(marked: LoadedModel, sampling: dict[str, object]) -> None:
    """Its third token is the one that leads to NaN; the other job goes on beside it."""
    biased = make_submit("bad", logit_bias=((MARK, 100.0),), **sampling)
    run = Run(make_engine(marked)).all(biased, make_submit("good"))
    assert run.tokens("bad") == (MARK,)
    assert "no finite logits" in (run.failed("bad") or "")
    assert run.failed("good") is None
    assert len(run.tokens("good")) == NUM_TOKENS


def test_pages_of_a_sequence_that_failed_are_shared_with_nobody(marked: LoadedModel) -> None:
    page_size = EngineConfig().page_size
    run = Run(make_engine(marked, max_prefill_chunk=page_size))
    run.all(make_submit("warm", max_tokens=1), make_submit("bad", (MARK, *PROMPT * 3)))
    assert run.failed("bad") is not None
    pages = run.engine._scheduler.stats().pages
    assert (pages.num_used, pages.num_cached) == (0, len(PROMPT) // page_size)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(LACK),
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_too_little_memory_shrinks_the_step_and_costs_no_job(
    tiny: LoadedModel, before_attention: UseKernel, error: Exception
) -> None:
    long = make_submit("long", tuple(range(300, 400)))
    jobs = [healthy(f"good-{number}", number) for number in range(4)]
    alone = Run(make_engine(tiny)).all(long, *jobs)
    num_lacks = 0

    def lack(query: Tensor, key: Tensor) -> None:
        nonlocal num_lacks
        if key.shape[0] > 24:
            num_lacks += 1
            raise error

    before_attention(lack)
    run = Run(make_engine(tiny)).all(long, *jobs)
    for name in alone.outputs:
        assert run.failed(name) is None
        assert run.tokens(name) == alone.tokens(name)
    learnt = num_lacks
    run.all(make_submit("again", tuple(range(400, 500))))
    assert len(run.tokens("again")) == NUM_TOKENS
    assert num_lacks == learnt > 0


class FailingAllocator(TorchDispatchMode):
    """Every operator of torch allocates; the one with this number finds no memory."""

    def __init__(self, failing: int | None = None) -> None:
        super().__init__()
        self.num_operators = 0
        self._failing = failing

    def __torch_dispatch__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        self.num_operators += 1
        if self.num_operators == self._failing:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return func(*args, **(kwargs or {}))  # type: ignore[operator]


def test_memory_may_run_out_anywhere_in_a_step(tiny: LoadedModel) -> None:
    """In whichever operator of the model or the sampler: every job has its tokens, and pages that are shared from then
    on hold what they should."""
    jobs = [healthy(f"job-{number}", number) for number in range(4)]
    again = [msgspec.structs.replace(job, key=JobKey("acme", f"again-{job.key.id}")) for job in jobs]
    with FailingAllocator() as allocator:
        alone = Run(make_engine(tiny)).all(*jobs)
    for number in range(1, allocator.num_operators, allocator.num_operators // NUM_PLACES):
        run = Run(make_engine(tiny))
        with FailingAllocator(number):
            run.all(*jobs)
        run.all(*again)
        for job in (*jobs, *again):
            assert run.failed(job.key.id) is None, number
            assert run.tokens(job.key.id) == alone.tokens(job.key.id.removeprefix("again-")), number


def test_after_a_while_more_is_tried_again(
    tiny: LoadedModel, before_attention: UseKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(careful_runner, "NUM_STEPS_TO_GROW", 4)
    sizes: list[int] = []

    def lack(query: Tensor, key: Tensor) -> None:
        sizes.append(key.shape[0])
        if min(sizes) == 100:
            raise MemoryError

    before_attention(lack)
    run = Run(make_engine(tiny)).all(make_submit("long", tuple(range(300, 400))))
    first = sizes.index(50)
    assert sizes[: first + 2] == [100] * first + [50, 50]
    run.all(make_submit("again", tuple(range(400, 500))))
    assert 100 in sizes[first + 2 :]


def test_a_sequence_that_does_not_fit_token_by_token_ends_alone(
    marked: LoadedModel, before_attention: UseKernel
) -> None:
    """And slows nobody down: the amount was not at fault."""
    sizes: list[int] = []

    def lack(query: Tensor, key: Tensor) -> None:
        sizes.append(key.shape[0])
        if key.isnan().any():
            raise MemoryError

    before_attention(lack)
    run = Run(make_engine(marked))
    run.all(make_submit("bad", (*PROMPT, MARK)), make_submit("good"), make_submit("better"))
    assert "MemoryError" in (run.failed("bad") or "")
    assert run.failed("good") is run.failed("better") is None
    assert sizes[-1] == 2


def always(query: Tensor, key: Tensor) -> None:
    raise RuntimeError("broken")


@pytest.mark.parametrize("num_jobs", [1, 2])
def test_an_engine_that_never_computed_anything_blames_no_job(
    tiny: LoadedModel, before_attention: UseKernel, num_jobs: int
) -> None:
    before_attention(always)
    with pytest.raises(EngineError, match="broken"):
        Run(make_engine(tiny)).all(*(make_submit(f"job-{number}") for number in range(num_jobs)))


def test_an_engine_that_breaks_takes_two_single_jobs_with_it_at_the_most(
    tiny: LoadedModel, before_attention: UseKernel
) -> None:
    run = Run(make_engine(tiny)).all(make_submit("before"))
    before_attention(always)
    for name in ("first", "second"):
        run.all(make_submit(name))
        assert "broken" in (run.failed(name) or "")
    with pytest.raises(EngineError, match="broken"):
        run.all(make_submit("third"))


def test_a_batch_of_which_nothing_can_be_computed_is_the_engines_fault(
    tiny: LoadedModel, before_attention: UseKernel
) -> None:
    run = Run(make_engine(tiny)).all(make_submit("before"))
    before_attention(always)
    with pytest.raises(EngineError, match="broken"):
        run.all(make_submit("first"), make_submit("second"))
    assert set(run.outputs) == {"before"}


def test_a_device_that_has_stopped_computing_ends_the_engine(
    marked: LoadedModel, before_attention: UseKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_attention(raise_at_mark)
    monkeypatch.setattr(Runner, "is_device_sound", lambda self: False)
    with pytest.raises(EngineError, match=r"the device has stopped computing.*illegal"):
        Run(make_engine(marked)).all(make_submit("bad", (*PROMPT, MARK)), make_submit("good"))


def test_the_rehearsal_proves_the_engine_and_changes_nothing(marked: LoadedModel, before_attention: UseKernel) -> None:
    plain = Run(make_engine(marked)).all(make_submit("good"))
    run = Run(make_engine(marked))
    run.engine.rehearse()
    assert run.engine._scheduler.stats() == make_engine(marked)._scheduler.stats()
    before_attention(raise_at_mark)
    run.all(make_submit("bad", (*PROMPT, MARK)))
    assert run.failed("bad") is not None
    run.all(make_submit("good"))
    assert run.tokens("good") == plain.tokens("good")


def test_an_engine_that_cannot_compute_fails_its_rehearsal(tiny: LoadedModel, before_attention: UseKernel) -> None:
    before_attention(always)
    with pytest.raises(EngineError, match="broken"):
        make_engine(tiny).rehearse()


def test_a_model_without_a_finite_number_fails_its_rehearsal(tiny: LoadedModel) -> None:
    model = copy.deepcopy(tiny.model)
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(torch.nan)
    with pytest.raises(EngineError, match="no finite logits"):
        make_engine(replace(tiny, model=model)).rehearse()


@pytest.mark.parametrize("max_steps_in_flight", [1, 2])
def test_what_must_not_be_tried_again_is_not(
    tiny: LoadedModel, before_attention: UseKernel, max_steps_in_flight: int
) -> None:
    numbers_of_tokens: list[int] = []

    def break_down(query: Tensor, key: Tensor) -> None:
        numbers_of_tokens.append(len(query))
        raise EngineBroken("the ranks have lost each other")

    config = EngineConfig(kv_memory="2MiB")
    engine = assemble(tiny, config, SchedulerConfig(), print, max_steps_in_flight=max_steps_in_flight)
    before_attention(break_down)
    with pytest.raises(EngineBroken, match="lost each other"):
        Run(engine).all(*(make_submit(f"job-{number}") for number in range(4)))
    assert numbers_of_tokens == [4 * len(PROMPT)]
