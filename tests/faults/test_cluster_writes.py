"""Writes that meet in a replicated stream: the servers refuse one of them while the other is still on its way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from nats.js.errors import APIError

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.election import KeyValueLock
from headway.broker.errors import WRITE_IN_FLIGHT
from headway.broker.log_store import Append, JobLogs, Refused, Stored
from headway.broker.streams import ensure_streams, log_subject
from headway.core.election import LockRecord
from headway.core.job import JobKey
from headway.core.records import Tokens
from tests.nats_cluster import NatsCluster

KEY = JobKey("acme", "a1")
NUM_WRITERS = 6
NUM_ROUNDS = 20
MAX_ROUNDS = 1000
"""Writes that really meet are a matter of luck."""


@pytest.fixture
async def connections(nats_cluster: NatsCluster) -> AsyncIterator[list[Connection]]:
    config = BrokerConfig(nats_url=nats_cluster.url, num_stream_replicas=3, nats_timeout_seconds=2.0)
    async with AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(await connect(config, f"writer {n}", timeout_seconds=10))
            for n in range(NUM_WRITERS)
        ]
        await ensure_streams(connections[0].js, config)
        yield connections


async def test_of_writers_that_meet_at_every_record_one_is_stored_and_the_others_know_it(
    connections: list[Connection],
) -> None:
    sequence, number, seen = 0, 0, set[int]()
    while number < NUM_ROUNDS or (WRITE_IN_FLIGHT not in seen and number < MAX_ROUNDS):
        outcomes = await asyncio.gather(
            *(JobLogs(connection).append(_append(number, n, sequence)) for n, connection in enumerate(connections))
        )
        [stored] = [outcome for outcome in outcomes if isinstance(outcome, Stored)]
        refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
        assert len(refused) == NUM_WRITERS - 1
        assert {outcome.tail.sequence for outcome in refused if outcome.tail} == {stored.sequence}
        sequence = stored.sequence
        seen |= await _refusals(connections, f"bare-{number}")
        number += 1
    state = await JobLogs(connections[0]).read(KEY)
    assert len(state.output_token_ids) == number
    assert WRITE_IN_FLIGHT in seen, "this is what the test is about"


async def test_of_processes_that_take_the_lock_at_once_one_has_it(connections: list[Connection]) -> None:
    locks, version = [KeyValueLock(connection) for connection in connections], None
    for _ in range(NUM_ROUNDS):
        records = [LockRecord(f"queue-{number}", None, 3.0) for number in range(NUM_WRITERS)]
        versions = await asyncio.gather(
            *(lock.write(record, version) for lock, record in zip(locks, records, strict=True))
        )
        [winner] = [number for number, stored in enumerate(versions) if stored is not None]
        version = versions[winner]
        found = await locks[0].read()
        assert found is not None
        assert (found.record, found.version) == (records[winner], version)


def _append(number: int, writer: int, sequence: int) -> Append:
    record = Tokens(seq=number, token_start=number, token_ids=(writer,), text="x", logprobs=None)
    return Append(KEY, record, sequence, f"{number}-{writer}")


async def _refusals(connections: list[Connection], job_id: str) -> set[int]:
    """The error codes of bare writes that all expect an empty log."""

    async def write(connection: Connection) -> int:
        headers = {"Nats-Expected-Last-Subject-Sequence": "0"}
        try:
            await connection.js.publish(log_subject(JobKey("acme", job_id)), b"{}", headers=headers)
        except APIError as exc:
            return exc.err_code or 0
        return 0

    return set(await asyncio.gather(*map(write, connections)))
