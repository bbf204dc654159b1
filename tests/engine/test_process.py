"""The engine child as its parent sees it, with the real model: nothing here is a stand-in."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headway.core.errors import EngineError, SettingError
from headway.core.job import FinishReason, JobKey, Message, SamplingParams
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.config import Device, EngineConfig
from headway.engine.messages import Cancel, Ready, SequenceOutput, Submit
from headway.engine.process import EngineProcess

CONFIG = EngineConfig(device=Device.CPU, kv_memory="64MiB", num_threads=1)
TIMEOUT_SECONDS = 120.0


def make_process(config: EngineConfig = CONFIG) -> EngineProcess:
    return EngineProcess(config, SchedulerConfig(max_num_seqs=4))


@asynccontextmanager
async def running() -> AsyncIterator[tuple[EngineProcess, Ready]]:
    process = make_process()
    ready = await process.start()
    try:
        yield process, ready
    finally:
        await process.stop()


def make_submit(name: str, max_tokens: int = 8, **fields: object) -> Submit:
    sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    return Submit(JobKey("acme", name), sampling, "The capital of France is", None, **fields)  # type: ignore[arg-type]


async def outputs(process: EngineProcess) -> AsyncIterator[SequenceOutput]:
    async for report in process.events():
        for output in report.outputs:
            yield output


async def last(stream: AsyncIterator[SequenceOutput]) -> SequenceOutput:
    return [output async for output in stream][-1]


def pid_of(process: EngineProcess) -> int:
    assert process.pid is not None
    return process.pid


def is_alive(pid: int) -> bool:
    """A process that has ended and is not yet waited for does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_SECONDS)


def test_the_parent_side_imports_no_torch() -> None:
    code = """
import sys, headway.engine.process, headway.engine.messages
print(sorted({"torch", "transformers", "numpy", "tokenizers"} & set(sys.modules)))
"""
    assert run_python(code).stdout.strip() == "[]"


async def test_jobs_stream_are_cancelled_and_the_child_stops_cleanly() -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS), running() as (process, ready):
        assert (ready.vocab_size, ready.page_size, ready.device) == (49152, 16, "cpu")
        os.kill(pid_of(process), signal.SIGINT)  # the terminal's Ctrl-C, which the parent is to judge
        process.send(make_submit("endless", max_tokens=2000))
        process.send(make_submit("short"))
        chat = (Message("user", "Say hello."),)
        process.send(Submit(JobKey("acme", "chat"), SamplingParams(max_tokens=8, seed=1), None, chat))
        process.send(make_submit("too-long", max_tokens=10**6))
        texts: dict[str, str] = {}
        reasons: dict[str, FinishReason] = {}
        async for output in outputs(process):
            texts[output.key.id] = texts.get(output.key.id, "") + output.text
            if output.finish_reason is not None:
                reasons[output.key.id] = output.finish_reason
            if len(reasons) == 3:
                process.send(Cancel(JobKey("acme", "endless")))
            if len(reasons) == 4:
                break
        assert reasons.pop("chat") in {FinishReason.STOP, FinishReason.LENGTH}
        assert reasons == {
            "endless": FinishReason.CANCELLED,
            "short": FinishReason.LENGTH,
            "too-long": FinishReason.REJECTED,
        }
        assert texts["short"].startswith(" Paris")
        assert texts["endless"].startswith(texts["short"])
        await process.stop()
        assert not is_alive(pid_of(process))
        assert [output async for output in outputs(process)] == []
        await process.stop()


async def test_a_killed_child_raises_with_how_it_died() -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS), running() as (process, _):
        process.send(make_submit("endless", max_tokens=2000))
        reports = outputs(process)
        await anext(reports)
        os.kill(pid_of(process), signal.SIGKILL)
        with pytest.raises(EngineError, match="SIGKILL"):
            await last(reports)
        process.send(make_submit("lost"))


async def test_the_child_ends_cleanly_on_sigterm_even_while_it_loads() -> None:
    process = make_process()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        with pytest.raises(EngineError, match="exited with status 0"):
            await process.start(lambda stage: os.kill(pid_of(process), signal.SIGTERM))


async def test_a_model_that_cannot_be_loaded_is_said_with_the_reason_to_the_parent_alone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    process = make_process(EngineConfig(model="/no/such/model.gguf", device=Device.CPU))
    stages: list[str] = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        with pytest.raises(SettingError, match="there is no such file"):
            await process.start(stages.append)
    assert stages
    assert not is_alive(pid_of(process))
    assert capfd.readouterr().err == ""


PARENT = """
import asyncio, sys
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.config import EngineConfig
from headway.engine.process import EngineProcess

async def main():
    process = EngineProcess(EngineConfig(device="cpu", kv_memory="64MiB", num_threads=1), SchedulerConfig())
    await process.start(lambda stage: print(process.pid, flush=True))
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_the_child_is_gone_when_its_parent_was_killed() -> None:
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert parent.stdout is not None
        child = int(await parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
        await parent.wait()
        while is_alive(child):  # noqa: ASYNC110 (another process has no event to wait for)
            await asyncio.sleep(0.01)
