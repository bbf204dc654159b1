"""A worker process is killed hard, like a pod whose node is gone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headway.settings import Settings

pytestmark = pytest.mark.asyncio(loop_scope="session")
NUM_JOBS = 64
MAX_TOKENS = 30


def write(path: Path, settings: Settings) -> Path:
    path.write_text(settings.to_yaml())
    return path


@asynccontextmanager
async def worker_process(config_file: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """``headway worker`` as a process of its own; killed at the end if it still runs."""
    command = (sys.executable, "-m", "headway", "worker", "--config", str(config_file))
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_all_jobs_end_once_when_a_worker_is_killed_hard(
    parts: Any, tmp_path: Path, job: Callable[..., dict[str, Any]], eventually: Callable[..., Awaitable[None]]
) -> None:
    queue = await parts.queue(lease_terms={"lease_seconds": 2.0})
    config_file = write(tmp_path / "worker.yaml", parts.worker_settings(roles={"worker_name": "doomed"}))
    async with worker_process(config_file) as process:
        await parts.worker(roles={"worker_name": "staying"})
        await eventually(lambda: len(queue.status().workers) == 2, seconds=60)
        ids = [f"n{number}" for number in range(NUM_JOBS)]
        for job_id in ids:
            await parts.wire.publish("acme", job(id=job_id, max_tokens=MAX_TOKENS))
        await parts.wire.until(lambda: any(is_running_on(parts.wire.log("acme", job_id), "doomed") for job_id in ids))
        process.kill()
        logs = [await parts.wire.ended("acme", job_id) for job_id in ids]
    for log in logs:
        assert (log.end["finish_reason"], len(log.token_ids)) == ("length", MAX_TOKENS)
    assert len({tuple(log.token_ids) for log in logs}) == 1, "the same prompt, so the same output"
    assert any(workers_of(log) == ["doomed", "staying"] for log in logs)

    async def settled() -> bool:
        return await parts.wire.num_jobs() == 0

    await eventually(settled)


def workers_of(log: Any) -> list[str]:
    return [record["worker"] for record in log.of_kind("attempt")]


def is_running_on(log: Any, worker: str) -> bool:
    return workers_of(log)[-1:] == [worker] and log.records[-1]["kind"] == "tokens"
