"""An engine child over two ranks as its parent sees it: real processes and gloo, a small random model in float64."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from torch import distributed

from headway.core.errors import EngineError, SettingError
from headway.core.job import JobKey, SamplingParams
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.build import assemble, build_engine
from headway.engine.config import AutoOrOff, Device, DType, EngineConfig
from headway.engine.engine import Engine
from headway.engine.frames import Start
from headway.engine.load import load_model
from headway.engine.messages import StepReport, Submit
from headway.engine.parallel.group import join
from headway.engine.parallel.other_ranks import OtherRanks
from headway.engine.process import EngineProcess

TIMEOUT_SECONDS = 120.0
SCHEDULING = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=16, max_prefill_chunk=8)
GREEDY = SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True)
SAMPLED = SamplingParams(max_tokens=24, temperature=1.3, top_p=0.95, repetition_penalty=1.1, ignore_eos=True)
BYTES_PER_TOKEN = 2 * 2 * 8 * 8
"""Of one rank: two layers, keys and values of one head of 8, float64."""
CULPRIT = 7
"""The number of a job's prompt tokens that the faulty kernel minds."""

PLUGIN = """
import sys
if "{module}" in getattr(sys, "orig_argv", []):
    from headway.engine.attention import register_kernel
    from headway.engine.paged_reference import paged_attention_reference
    def kernel(query, *rest):
        if len(query) == {culprit}:
            raise RuntimeError("illegal instruction")
        return paged_attention_reference(query, *rest)
    register_kernel("cpu", kernel)
"""
"""Python runs `sitecustomize` before a child's main module."""

PARENT = """
import asyncio, sys
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.config import EngineConfig
from headway.engine.process import EngineProcess

async def main():
    config = EngineConfig(sys.argv[1], device="cpu", num_threads=1, tensor_parallel_size=2)
    process = EngineProcess(config, SchedulerConfig())
    await process.start(lambda stage: print(process.pid, flush=True))
    await asyncio.Event().wait()

asyncio.run(main())
"""


def make_config(model: Path, size: int = 2, num_tokens: int = 128) -> EngineConfig:
    return EngineConfig(
        model=str(model),
        device=Device.CPU,
        dtype=DType.FLOAT64,
        num_threads=1,
        native_kernels=AutoOrOff.OFF,
        max_model_len=64,
        kv_memory=str(num_tokens * BYTES_PER_TOKEN * 2 // size),
        tensor_parallel_size=size,
    )


def make_submit(name: str, num_prompt_tokens: int, sampling: SamplingParams = GREEDY) -> Submit:
    prompt = tuple(4 + (len(name) * 31 + place * 7) % 60 for place in range(num_prompt_tokens))
    return Submit(JobKey("acme", name), sampling, prompt, None)


def make_jobs() -> list[Submit]:
    lengths = (3, 30, 17, 24, 9, 31)
    return [
        make_submit("x" * number, length, SAMPLED if number % 2 else GREEDY) for number, length in enumerate(lengths, 1)
    ]


@asynccontextmanager
async def running(config: EngineConfig) -> AsyncIterator[EngineProcess]:
    process = EngineProcess(config, SCHEDULING)
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


async def run_jobs(process: EngineProcess, jobs: list[Submit]) -> tuple[dict[str, list[int]], StepReport]:
    """Tokens by name, and the last report."""
    for job in jobs:
        process.send(job)
    tokens: dict[str, list[int]] = {job.key.id: [] for job in jobs}
    num_left = len(jobs)
    async for report in process.events():
        for output in report.outputs:
            tokens[output.key.id] += output.token_ids
            num_left -= output.finish_reason is not None
        if not num_left:
            return tokens, report
    raise AssertionError("the engine has stopped")


async def last(reports: AsyncIterator[StepReport]) -> StepReport:
    return [report async for report in reports][-1]


def run_whole(model: Path) -> dict[str, list[int]]:
    """The tokens of all jobs by an engine of one rank, in this process and with room for all."""
    return drive(build_engine(make_config(model, size=1, num_tokens=1024), SCHEDULING, print), make_jobs())


def drive(engine: Engine, jobs: list[Submit]) -> dict[str, list[int]]:
    tokens: dict[str, list[int]] = {job.key.id: [] for job in jobs}
    for job in jobs:
        engine.submit(job, 0.0)
    while engine.has_work:
        for output in engine.step(1.0).outputs:
            tokens[output.key.id] += output.token_ids
    return tokens


def ranks_of(first: int | None) -> list[int]:
    """Process ids: that of rank 0, and of those that it has started."""
    assert first is not None
    return [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until_gone(pids: list[int]) -> None:
    while any(map(is_alive, pids)):  # noqa: ASYNC110 (another process has no event to wait for)
        await asyncio.sleep(0.01)


async def test_two_ranks_sample_what_one_does_and_stop_together(tiny_llama: Path) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS), running(make_config(tiny_llama)) as process:
        pids = ranks_of(process.pid)
        assert len(pids) == 2
        tokens, report = await run_jobs(process, make_jobs())
        assert report.scheduler.num_preemptions_total > 0
        assert tokens == run_whole(tiny_llama)
        await process.stop()
        await until_gone(pids)


@pytest.fixture
def second_rank(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OtherRanks]:
    """Beside this process, which is rank 0 meanwhile."""
    monkeypatch.setenv("LOCAL_RANK", "0")  # so that what `join` sets is undone
    ranks = OtherRanks(print)
    config = make_config(tiny_llama)
    ranks.start(Start(config, SCHEDULING))
    listener = ranks.take_listener()
    join(config, 0, listener.getsockname()[1], listener.detach())
    yield ranks
    ranks.stop()
    distributed.destroy_process_group()


def test_steps_in_flight_over_two_ranks_change_no_token(tiny_llama: Path, request: pytest.FixtureRequest) -> None:
    expected = run_whole(tiny_llama)  # before there are other ranks, which would have to do the same
    ranks: OtherRanks = request.getfixturevalue("second_rank")
    config = make_config(tiny_llama)
    engine = assemble(load_model(config, print), config, SCHEDULING, print, ranks=ranks, max_steps_in_flight=2)
    assert drive(engine, make_jobs()) == expected


async def test_a_rank_that_is_killed_ends_the_engine_with_the_reason(tiny_llama: Path) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS), running(make_config(tiny_llama)) as process:
        pids = ranks_of(process.pid)
        process.send(make_submit("endless", 3))
        reports = process.events()
        await anext(reports)
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(EngineError, match=rf"rank 1 \(process {pids[1]}\) was killed by SIGKILL"):
            await last(reports)
        await until_gone(pids)


async def test_sigterm_ends_all_ranks_and_is_rank_0_s_to_hear(tiny_llama: Path) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS), running(make_config(tiny_llama)) as process:
        pids = ranks_of(process.pid)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # as a group of processes gets them
            os.kill(pids[1], number)
        assert (await run_jobs(process, [make_submit("a", 3)]))[0]["a"]
        os.kill(pids[0], signal.SIGTERM)
        with pytest.raises(EngineError, match="exited with status 0"):
            await last(process.events())
        await until_gone(pids)


async def test_no_rank_outlives_the_worker(tiny_llama: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, str(tiny_llama)), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert parent.stdout is not None
        pids = ranks_of(int(await parent.stdout.readline()))
        assert len(pids) == 2
        parent.kill()
        await parent.wait()
        await until_gone(pids)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("headway.engine.main", "cannot go on together: RuntimeError: illegal instruction"),
        ("headway.engine.parallel.rank", r"rank 1 \(process \d+\): RuntimeError: illegal instruction"),
    ],
    ids=["rank 0", "rank 1"],
)
async def test_a_step_that_fails_on_one_rank_ends_all_with_the_reason(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, reason: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(PLUGIN.format(module=module, culprit=CULPRIT))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    async with asyncio.timeout(TIMEOUT_SECONDS), running(make_config(tiny_llama)) as process:
        pids = ranks_of(process.pid)
        assert (await run_jobs(process, [make_submit("innocent", 3)]))[0]["innocent"]
        with pytest.raises(EngineError, match=reason):
            await run_jobs(process, [make_submit("culprit", CULPRIT)])
        await until_gone(pids)


async def test_what_cannot_be_divided_is_a_wrong_setting(tiny_llama: Path) -> None:
    config = replace(make_config(tiny_llama), tensor_parallel_size=3)
    process = EngineProcess(config, SCHEDULING)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        with pytest.raises(SettingError, match="4 attention heads and 2 key/value heads; use 1 or 2") as caught:
            await process.start()
    assert caught.value.setting == "tensor_parallel_size"
