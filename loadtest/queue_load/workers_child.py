"""The simulated workers, all of one measurement in one process."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headway.broker.connection import connect
from headway.broker.joblog import LogState
from headway.broker.log_pace import Pace
from headway.broker.log_store import JobLogs
from headway.broker.log_writer import LogWriter
from headway.core.job import FinishReason
from headway.core.lease_messages import Grant
from headway.core.records import Attempt, End, Usage
from headway.core.worker_leases import WorkerFacts
from headway.settings import Settings
from loadtest.child import Child, Questions, asked
from loadtest.queue_load.parts import until_first_ends
from loadtest.queue_load.simulated_worker import NUM_OUTPUT_TOKENS, SimulatedWorker, WriteLog

PAGE_SIZE = 16
PAGES_PER_SEQUENCE = 64
WELCOME_SECONDS = 30.0
SERVE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class StartWorkers:
    settings: Settings
    model: str
    num_workers: int
    max_num_seqs: int
    prefetch: int
    writes_records: bool


@dataclass(frozen=True, slots=True)
class Serve:
    """Take so many jobs, all workers alike, and end them; answered by `Served`."""

    num_jobs: int


@dataclass(frozen=True, slots=True)
class Served:
    num_jobs: int
    """As many as were asked for, or a few more."""
    seconds: float
    """From the first demand to the last end told."""
    latencies: list[float]
    """Seconds from when a worker wanted a job to when it had it."""


@contextmanager
def open_workers(start: StartWorkers, say: Callable[[str], None]) -> Iterator[Child]:
    """All are welcome when this returns. Raises `BenchError`."""
    child = Child("loadtest.queue_load.workers_child", say)
    try:
        child.ask(start)
        yield child
    finally:
        child.close()


async def _run(start: StartWorkers, questions: Questions) -> None:
    connection = await connect(start.settings.broker, "load-workers", timeout_seconds=WELCOME_SECONDS)
    write_log = _log_writing(JobLogs(connection)) if start.writes_records else None
    workers = [
        SimulatedWorker(_facts(start, number), start.prefetch, start.settings.lease, write_log)
        for number in range(start.num_workers)
    ]
    try:
        await until_first_ends(_answer_all(workers, questions), *(worker.run() for worker in workers))
    finally:
        await connection.close()


async def _answer_all(workers: list[SimulatedWorker], questions: Questions) -> None:
    async with asyncio.timeout(WELCOME_SECONDS):
        await asyncio.gather(*(worker.is_welcome.wait() for worker in workers))
    questions.answer(None)
    async for question in questions.following():
        questions.answer(await _serve(question, workers))
    await asyncio.gather(*(worker.close() for worker in workers))


def _facts(start: StartWorkers, number: int) -> WorkerFacts:
    name = f"load-{start.num_workers}-{number}"
    num_pages = PAGES_PER_SEQUENCE * start.max_num_seqs
    return WorkerFacts(secrets.token_hex(8), name, start.model, PAGE_SIZE, num_pages, start.max_num_seqs)


async def _serve(serve: Serve, workers: list[SimulatedWorker]) -> Served:
    num_before, started = sum(worker.num_taken for worker in workers), time.perf_counter()
    shares = [len(range(number, serve.num_jobs, len(workers))) for number in range(len(workers))]
    async with asyncio.timeout(SERVE_SECONDS):
        await asyncio.gather(*(worker.serve(share) for worker, share in zip(workers, shares, strict=True)))
    seconds = time.perf_counter() - started
    num_jobs = sum(worker.num_taken for worker in workers) - num_before
    return Served(num_jobs, seconds, [latency for worker in workers for latency in worker.latencies])


def _log_writing(logs: JobLogs) -> WriteLog:
    """The records of a short job, fenced like any other."""
    pace = Pace()

    async def write(grant: Grant) -> None:
        writer = LogWriter(logs, LogState(grant.key), pace)
        await writer.attempt(Attempt(1, grant.token, "load", payload_hash=""))
        writer.tokens(range(NUM_OUTPUT_TOKENS), "word")
        await writer.end(End(FinishReason.LENGTH, usage=Usage(1, 0, NUM_OUTPUT_TOKENS)))

    return write


def main() -> None:
    with asked() as questions:
        asyncio.run(_run(questions.next(), questions))
