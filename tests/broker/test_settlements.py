"""Whoever settles a job does not wait, and whoever must know that all are settled can."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from headway.broker.connection import Connection
from headway.broker.errors import Deposed
from headway.broker.intake import JobsIntake
from headway.broker.settlements import MAX_TOGETHER, Settlements
from headway.broker.streams import JOBS, jobs_subject

TIMEOUT_SECONDS = 20.0

Acknowledge = Callable[[Sequence[int]], Awaitable[None]]


async def held_jobs(connection: Connection, count: int) -> tuple[JobsIntake, list[int]]:
    intake = JobsIntake(connection)
    await intake.takeover(1)
    for _ in range(count):
        await connection.client.publish(jobs_subject("default", "acme"), b"{}")
    held: list[int] = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(held) < count:
            held += [job.stream_sequence for job in await intake.fetch(count, TIMEOUT_SECONDS)]
    return intake, held


async def num_stored(connection: Connection) -> int:
    return (await connection.js.stream_info(JOBS)).state.messages


def counting(ack: Acknowledge, sizes: list[int]) -> Acknowledge:
    """The same, and how many each time."""

    async def counted(stream_sequences: Sequence[int]) -> None:
        sizes.append(len(stream_sequences))
        await ack(stream_sequences)

    return counted


async def test_more_jobs_than_go_together_are_all_out_of_the_stream_when_it_is_finished(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    intake, held = await held_jobs(connection, MAX_TOGETHER + 50)
    monkeypatch.setattr(intake, "ack_together", counting(intake.ack_together, together := []))
    settlements = Settlements(intake)
    running = asyncio.create_task(settlements.run())
    for sequence in held[1:]:
        settlements.settle(sequence)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await settlements.finish()
    assert await num_stored(connection) == 1
    settlements.settle(held[0])
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await settlements.finish()
    assert await num_stored(connection) == 0
    assert together == [MAX_TOGETHER, 49, 1]
    running.cancel()


async def test_it_is_finished_where_nothing_was_settled(connection: Connection) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await Settlements(JobsIntake(connection)).finish()


async def test_a_leader_that_was_deposed_learns_it(connection: Connection) -> None:
    intake, [sequence] = await held_jobs(connection, 1)
    settlements = Settlements(intake)
    await JobsIntake(connection).takeover(2)
    settlements.settle(sequence)
    with pytest.raises(Deposed):
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await settlements.run()
