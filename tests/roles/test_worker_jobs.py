"""The way of a job through the worker where events come close together: a real log, and both neighbours by hand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from headway.broker.connection import Connection
from headway.broker.joblog import LogState
from headway.broker.log_pace import Pace
from headway.broker.log_store import JobLogs
from headway.broker.log_writer import LogWriter
from headway.core.job import FinishReason, JobKey
from headway.core.lease_messages import CancelJob, Ended, Grant, Recall, Refused, Returned, WorkerMessage
from headway.core.records import Attempt, GrantToken, Usage
from headway.core.worker_leases import WorkerFacts, WorkerLeases
from headway.engine.messages import Command, SequenceOutput, Submit, Withdraw
from headway.roles.job_run import JobRun
from headway.roles.supervisor import Supervisor
from headway.roles.worker_jobs import WorkerJobs
from headway.telemetry.config import TelemetryConfig
from headway.telemetry.telemetry import Telemetry

KEY = JobKey("acme", "a1")
TOKEN = GrantToken(1, 1)
FACTS = WorkerFacts("incarnation", "worker", "default", page_size=16, num_pages=64, max_num_seqs=4)
PAYLOAD = json.dumps({"id": KEY.id, "prompt": "Hello", "max_tokens": 8}).encode()
Eventually = Callable[..., Awaitable[None]]


@dataclass
class Bench:
    """What the worker's jobs say to the engine and to the leader."""

    jobs: WorkerJobs
    logs: JobLogs
    to_engine: list[Command] = field(default_factory=list)
    to_leader: list[WorkerMessage] = field(default_factory=list)

    def grant(self, token: GrantToken = TOKEN, num_lost_attempts: int = 0) -> None:
        times = {"arrival_seconds": 0.0, "queue_seconds": 0.0}
        self.jobs.grant(Grant(KEY, token, 1, PAYLOAD, num_lost_attempts=num_lost_attempts, **times))


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    with closing(Telemetry(TelemetryConfig(), "worker", "worker", None)) as telemetry:
        yield telemetry


@pytest.fixture
async def bench(connection: Connection, telemetry: Telemetry) -> AsyncIterator[Bench]:
    to_engine: list[Command] = []
    to_leader: list[WorkerMessage] = []
    supervisor = Supervisor("test")
    jobs = WorkerJobs(
        connection.config,
        FACTS.model,
        FACTS.name,
        connection,
        WorkerLeases(FACTS, prefetch=2),
        supervisor,
        telemetry.tracer,
        telemetry.metrics.worker(FACTS.model),
        to_engine.append,
        to_leader.append,
    )
    yield Bench(jobs, JobLogs(connection), to_engine, to_leader)
    assert not supervisor.has_failed
    await supervisor.close()


async def test_a_granted_job_is_attempted_in_its_log_before_the_engine_gets_it(
    bench: Bench, eventually: Eventually
) -> None:
    bench.grant()
    await eventually(lambda: bool(bench.to_engine))
    (submit,) = bench.to_engine
    assert isinstance(submit, Submit)
    assert (await bench.logs.read(KEY)).num_attempts == 1


async def test_a_cancel_right_behind_the_grant_ends_the_job(bench: Bench, eventually: Eventually) -> None:
    bench.grant()
    bench.jobs.cancel(CancelJob(KEY, TOKEN, FinishReason.CANCELLED))
    await eventually(lambda: bool(bench.to_leader))
    assert bench.to_leader == [Ended(KEY, TOKEN, FinishReason.CANCELLED)]
    end = (await bench.logs.read(KEY)).end
    assert end is not None
    assert end.finish_reason is FinishReason.CANCELLED
    assert bench.to_engine == []


async def test_a_cancel_that_names_another_grant_changes_nothing(bench: Bench, eventually: Eventually) -> None:
    bench.grant()
    bench.jobs.cancel(CancelJob(KEY, GrantToken(1, 9), FinishReason.CANCELLED))
    await eventually(lambda: bool(bench.to_engine))
    assert bench.to_leader == []


@pytest.mark.parametrize("way", ["recall", "stop"])
async def test_a_job_that_is_wanted_back_before_the_engine_has_it_is_released(
    bench: Bench, eventually: Eventually, way: str
) -> None:
    bench.grant()
    if way == "recall":
        bench.jobs.recall(Recall(KEY, TOKEN))
    else:
        bench.jobs.hand_back_all("the worker is stopping")
    await eventually(lambda: bool(bench.to_leader))
    (returned,) = bench.to_leader
    assert isinstance(returned, Returned)
    assert returned.num_lost_attempts == 0
    state = await bench.logs.read(KEY)
    assert (state.num_attempts, state.num_released) == (1, 1)
    assert (bench.to_engine, len(bench.jobs)) == ([], 0)


async def test_a_grant_that_finds_no_engine_goes_back_before_it_has_an_attempt(
    bench: Bench, eventually: Eventually
) -> None:
    await bench.jobs.engine_gone("killed")
    bench.grant()
    await eventually(lambda: bool(bench.to_leader))
    assert isinstance(bench.to_leader[0], Returned)
    assert (await bench.logs.read(KEY)).last_sequence == 0


async def test_an_engine_that_dies_while_the_attempt_is_written_costs_the_job_none(
    bench: Bench, eventually: Eventually
) -> None:
    bench.grant()
    await bench.jobs.engine_gone("killed")
    await eventually(lambda: bool(bench.to_leader))
    (returned,) = bench.to_leader
    assert isinstance(returned, Returned)
    assert returned.num_lost_attempts == 0
    assert bench.to_engine == []


async def test_an_engine_that_dies_under_a_job_costs_it_an_attempt(bench: Bench, eventually: Eventually) -> None:
    bench.grant()
    await eventually(lambda: bool(bench.to_engine))
    await bench.jobs.engine_gone("killed")
    assert bench.to_leader == [Returned(KEY, TOKEN, "killed", num_lost_attempts=1)]


async def test_a_job_whose_log_counts_more_lost_attempts_than_its_grant_goes_back_to_the_leader(
    bench: Bench, eventually: Eventually
) -> None:
    writer = LogWriter(bench.logs, LogState(KEY), Pace())
    await writer.attempt(Attempt(0, GrantToken(0, 1), "a worker that died", hashlib.sha256(PAYLOAD).hexdigest()))
    bench.grant()
    await eventually(lambda: bool(bench.to_leader))
    (returned,) = bench.to_leader
    assert isinstance(returned, Returned)
    assert returned.num_lost_attempts == 1
    assert bench.to_engine == []
    bench.grant(GrantToken(1, 2), num_lost_attempts=1)
    await eventually(lambda: bool(bench.to_engine))


async def test_a_fault_in_the_handling_of_one_job_costs_it_an_attempt_and_others_nothing(
    bench: Bench, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: JobRun) -> Submit:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(JobRun, "submit", fail)
        bench.grant()
        await eventually(lambda: bool(bench.to_leader))
    assert bench.to_leader == [Returned(KEY, TOKEN, "ZeroDivisionError", num_lost_attempts=1)]
    assert len(bench.jobs) == 0


async def test_a_recall_that_crosses_the_start_leaves_the_job_where_it_runs(
    bench: Bench, eventually: Eventually
) -> None:
    """The engine, asked to give it back only if it waits, says nothing; the job ends here as if never recalled."""
    bench.grant()
    await eventually(lambda: bool(bench.to_engine))
    bench.jobs.output(SequenceOutput(KEY, (1,), "a"))
    bench.jobs.recall(Recall(KEY, TOKEN))
    assert bench.to_engine[1:] == [Withdraw(KEY, only_if_waiting=True)]
    bench.jobs.output(SequenceOutput(KEY, (2,), "b", finish_reason=FinishReason.LENGTH, usage=Usage(5, 0, 2)))
    await eventually(lambda: bool(bench.to_leader))
    assert bench.to_leader == [Ended(KEY, TOKEN, FinishReason.LENGTH, 2)]
    state = await bench.logs.read(KEY)
    assert (state.output_token_ids, state.num_released) == ([1, 2], 0)


async def test_a_grant_that_arrives_after_a_newer_attempt_is_refused_and_writes_nothing(
    bench: Bench, eventually: Eventually
) -> None:
    writer = LogWriter(bench.logs, LogState(KEY), Pace())
    newer = Attempt(0, GrantToken(2, 1), "another worker", hashlib.sha256(PAYLOAD).hexdigest())
    last_sequence = (await writer.attempt(newer)).last_sequence
    bench.grant(GrantToken(1, 7))
    await eventually(lambda: bool(bench.to_leader))
    assert bench.to_leader == [Refused(KEY, GrantToken(1, 7), conflict=False, newest_epoch=2)]
    assert bench.to_engine == []
    assert (await bench.logs.read(KEY)).last_sequence == last_sequence
    writer.tokens([1], "a")
    await writer.flush()
