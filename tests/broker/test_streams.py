import asyncio
import dataclasses
from typing import Any

import pytest
from nats.js.api import StreamConfig
from nats.js.errors import APIError

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.errors import StreamMismatch, StreamMissing
from headway.broker.streams import (
    DEAD,
    JOBS,
    RESULTS,
    STATE,
    ensure_streams,
    jobs_subject,
    log_subject,
    results_subject,
    stream_specs,
)
from headway.core.job import JobKey

KEY = JobKey("acme", "a1")
STREAMS = [JOBS, RESULTS, DEAD, STATE]


@pytest.fixture
async def bare(broker_config: BrokerConfig) -> Any:
    """A connection to a server without streams."""
    async with await connect(broker_config, "tests", timeout_seconds=10) as connection:
        yield connection


def with_limits(connection: Connection, **settings: Any) -> BrokerConfig:
    return dataclasses.replace(connection.config, **settings)


def spec(config: BrokerConfig, name: str) -> StreamConfig:
    return next(spec for spec in stream_specs(config) if spec.name == name)


async def test_absent_streams_are_created_once(bare: Connection) -> None:
    reports = await ensure_streams(bare.js, bare.config)
    assert [(report.stream, report.created) for report in reports] == [(name, True) for name in STREAMS]
    again = await ensure_streams(bare.js, bare.config)
    assert not any(report.created or report.updated for report in again)


async def test_several_processes_may_create_the_streams_at_once(bare: Connection) -> None:
    await asyncio.gather(*(ensure_streams(bare.js, bare.config) for _ in range(5)))
    assert len(await bare.js.streams_info()) == len(STREAMS)


async def test_a_missing_stream_is_named_if_it_may_not_be_created(bare: Connection) -> None:
    with pytest.raises(StreamMissing) as caught:
        await ensure_streams(bare.js, with_limits(bare, create_streams=False))
    assert caught.value.stream == JOBS
    assert await bare.js.streams_info() == []


@pytest.mark.parametrize(
    ("stream", "field", "wrong"),
    [
        (JOBS, "subjects", ["headway.jobs.>"]),
        (JOBS, "retention", "limits"),
        (JOBS, "discard_new_per_subject", False),
        (JOBS, "storage", "memory"),
        (JOBS, "allow_msg_ttl", True),
        (RESULTS, "republish", None),
        (RESULTS, "allow_direct", None),
        (RESULTS, "discard", "old"),
        (DEAD, "retention", "workqueue"),
    ],
)
@pytest.mark.parametrize("create_streams", [True, False])
async def test_a_stream_with_other_guarantees_is_a_mismatch(
    bare: Connection, stream: str, field: str, wrong: Any, create_streams: bool
) -> None:
    await ensure_streams(bare.js, bare.config)
    await bare.js.delete_stream(stream)
    await bare.js.add_stream(spec(bare.config, stream).evolve(**{field: wrong}))
    with pytest.raises(StreamMismatch) as caught:
        await ensure_streams(bare.js, with_limits(bare, create_streams=create_streams))
    assert (caught.value.stream, caught.value.field) == (stream, field)
    assert caught.value.expected != caught.value.found


async def test_limits_follow_the_settings_if_streams_may_be_created(bare: Connection) -> None:
    await ensure_streams(bare.js, bare.config)
    reports = await ensure_streams(bare.js, with_limits(bare, max_waiting_jobs=7, results_max_age_seconds=60.0))
    assert [report.stream for report in reports if report.updated] == [JOBS, RESULTS]
    assert (await bare.js.stream_info(JOBS)).config.max_msgs == 7
    assert (await bare.js.stream_info(RESULTS)).config.max_age == 60.0


async def test_limits_of_streams_that_others_made_are_theirs_but_must_exist(bare: Connection) -> None:
    await ensure_streams(bare.js, bare.config)
    strict = with_limits(bare, max_waiting_jobs=7, create_streams=False)
    assert not any(report.updated for report in await ensure_streams(bare.js, strict))
    await bare.js.delete_stream(JOBS)
    await bare.js.add_stream(spec(bare.config, JOBS).evolve(max_msgs=-1))
    with pytest.raises(StreamMismatch, match="max_msgs"):
        await ensure_streams(bare.js, strict)


async def test_a_full_queue_refuses_a_job_and_keeps_the_waiting_ones(bare: Connection) -> None:
    await ensure_streams(bare.js, with_limits(bare, max_waiting_jobs=2, max_waiting_jobs_per_tenant=2))
    first = await bare.js.publish(jobs_subject("default", "acme"), b"1")
    await bare.js.publish(jobs_subject("default", "beta"), b"2")
    with pytest.raises(APIError, match="maximum messages exceeded"):
        await bare.js.publish(jobs_subject("default", "acme"), b"3")
    assert (await bare.js.stream_info(JOBS)).state.first_seq == first.seq


async def test_a_full_tenant_leaves_room_for_others(bare: Connection) -> None:
    await ensure_streams(bare.js, with_limits(bare, max_waiting_jobs_per_tenant=1))
    await bare.js.publish(jobs_subject("default", "acme"), b"1")
    with pytest.raises(APIError, match="per subject"):
        await bare.js.publish(jobs_subject("default", "acme"), b"2")
    await bare.js.publish(jobs_subject("default", "beta"), b"3")


async def test_a_job_larger_than_the_limit_is_refused(bare: Connection) -> None:
    await ensure_streams(bare.js, with_limits(bare, max_job_bytes=100))
    with pytest.raises(APIError, match="exceeds maximum"):
        await bare.js.publish(jobs_subject("default", "acme"), b"x" * 101)


async def test_readers_see_stored_records_only_with_their_sequence(connection: Connection) -> None:
    reader = await connection.client.subscribe(results_subject(KEY))
    first = await connection.js.publish(log_subject(KEY), b"first")
    stale = {"Nats-Expected-Last-Subject-Sequence": "0"}
    with pytest.raises(APIError):
        await connection.js.publish(log_subject(KEY), b"refused", headers=stale)
    second = await connection.js.publish(log_subject(KEY), b"second")
    seen = [await reader.next_msg(timeout=20) for _ in range(2)]
    assert [(message.data, int((message.headers or {})["Nats-Sequence"])) for message in seen] == [
        (b"first", first.seq),
        (b"second", second.seq),
    ]
