"""Whether a leader is the newest one, shown by a write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headway.broker.connection import Connection
from headway.broker.epoch_proof import EpochProof
from headway.broker.errors import BrokerUnavailable, Deposed
from headway.broker.log_end import append_end
from headway.broker.log_pace import Pace
from headway.broker.log_store import JobLogs
from headway.broker.log_writer import LogWriter
from headway.broker.state import StateStore
from headway.broker.streams import STATE, STATE_BUCKET
from headway.core.job import FinishReason, JobKey
from headway.core.records import Attempt, End, GrantToken

KEY = JobKey("acme", "a1")
CANCELLED = End(FinishReason.CANCELLED)


@pytest.fixture
def store(connection: Connection) -> StateStore:
    return StateStore(connection.js)


async def num_writes(connection: Connection) -> int:
    """To the state bucket, ever."""
    return (await connection.js.stream_info(STATE)).state.last_seq


async def test_the_newest_leader_can_show_it_again_and_again(store: StateStore) -> None:
    proof = EpochProof(store, await store.raise_epoch())
    for _ in range(3):
        await proof.renew()
    assert await store.epoch() == 1


async def test_a_leader_that_has_a_successor_cannot(store: StateStore) -> None:
    proof = EpochProof(store, await store.raise_epoch())
    await store.raise_epoch()
    with pytest.raises(Deposed):
        await proof.renew()
    assert await store.epoch() == 2


async def test_a_leader_whose_epoch_was_forgotten_cannot(store: StateStore, connection: Connection) -> None:
    """The same one could be given out again."""
    proof = EpochProof(store, await store.raise_epoch())
    await (await connection.js.key_value(STATE_BUCKET)).delete("epoch")
    with pytest.raises(Deposed):
        await proof.renew()


async def test_many_that_ask_at_once_share_a_proof(store: StateStore, connection: Connection) -> None:
    proof = EpochProof(store, await store.raise_epoch())
    before = await num_writes(connection)
    await asyncio.gather(*(proof.renew() for _ in range(100)))
    assert await num_writes(connection) - before <= 2


async def test_a_proof_that_began_before_somebody_asked_does_not_count_for_him(
    store: StateStore, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm, begun, go_on = StateStore.confirm_epoch, asyncio.Event(), asyncio.Event()

    async def confirm_slowly(self: StateStore, *arguments: Any) -> int:
        revision = await confirm(self, *arguments)
        begun.set()
        await go_on.wait()
        return revision

    monkeypatch.setattr(StateStore, "confirm_epoch", confirm_slowly)
    proof = EpochProof(store, await store.raise_epoch())
    first = asyncio.create_task(proof.renew())
    await begun.wait()
    second = asyncio.create_task(proof.renew())
    await asyncio.sleep(0)
    await store.raise_epoch()
    go_on.set()
    await first
    with pytest.raises(Deposed):
        await second


async def test_a_proof_is_tried_again_while_nats_is_away(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    confirm, failures = StateStore.confirm_epoch, iter([BrokerUnavailable("confirm the epoch", "away")] * 2)

    async def confirm_at_last(self: StateStore, *arguments: Any) -> int:
        if (failure := next(failures, None)) is not None:
            raise failure
        return await confirm(self, *arguments)

    monkeypatch.setattr(StateStore, "confirm_epoch", confirm_at_last)
    monkeypatch.setattr("headway.broker.epoch_proof.RETRY_SECONDS", 0.01)
    await EpochProof(store, await store.raise_epoch()).renew()


async def test_a_successor_raises_the_epoch_however_often_the_leader_confirms_its_own(store: StateStore) -> None:
    proof = EpochProof(store, await store.raise_epoch())

    async def confirm_for_ever() -> None:
        while True:
            await proof.renew()

    confirming = [asyncio.create_task(confirm_for_ever()) for _ in range(20)]
    assert await store.raise_epoch() == 2
    ends = await asyncio.gather(*confirming, return_exceptions=True)
    assert {type(end) for end in ends} == {Deposed}


# -- what it is for --------------------------------------------------------------------------------------------------


async def attempted(logs: JobLogs, epoch: int) -> LogWriter:
    """A worker that runs the job under a grant of that epoch."""
    writer = LogWriter(logs, await logs.read(KEY), Pace())
    await writer.attempt(Attempt(0, GrantToken(epoch, 1), "worker", "mine"))
    return writer


def proven_by(proof: EpochProof, then: Callable[[], object] = lambda: None):
    async def may_end(_: object) -> None:
        await proof.renew()
        result = then()
        if asyncio.iscoroutine(result):
            await result

    return may_end


async def test_a_former_leader_ends_no_job_that_its_successor_has_granted(
    store: StateStore, connection: Connection
) -> None:
    """It was paused anywhere between its decision and the reading of the log."""
    logs, proof = JobLogs(connection), EpochProof(store, await store.raise_epoch())
    await store.raise_epoch()
    writer = await attempted(logs, epoch=2)
    with pytest.raises(Deposed):
        await append_end(logs, KEY, CANCELLED, "mine", proven_by(proof))
    await writer.end(End(FinishReason.STOP))


async def test_a_leader_that_is_deposed_right_after_its_proof_ends_no_job_that_has_gone_on(
    store: StateStore, connection: Connection
) -> None:
    """It was paused between its proof and the writing: the takeover and the attempt fit in between."""
    logs, proof = JobLogs(connection), EpochProof(store, await store.raise_epoch())
    writers: list[LogWriter] = []

    async def take_over() -> None:
        await store.raise_epoch()
        writers.append(await attempted(logs, epoch=2))

    with pytest.raises(Deposed):
        await append_end(logs, KEY, CANCELLED, "mine", proven_by(proof, take_over))
    await writers[0].end(End(FinishReason.STOP))


async def test_an_end_of_the_last_moment_stands_before_whatever_the_successor_grants(
    store: StateStore, connection: Connection
) -> None:
    logs, proof = JobLogs(connection), EpochProof(store, await store.raise_epoch())
    outcome = await append_end(logs, KEY, CANCELLED, "mine", proven_by(proof, store.raise_epoch))
    assert outcome.state.end is not None
    assert (await logs.read(KEY)).num_attempts == 0


async def test_who_gives_way_to_a_forgotten_epoch_has_the_next_one_above_it(store: StateStore) -> None:
    proof = EpochProof(store, await store.raise_epoch())
    with pytest.raises(Deposed):
        await proof.give_way(to=7)
    assert await store.raise_epoch() > 7


async def test_who_gives_way_to_a_known_epoch_does_not_depose_its_leader(store: StateStore) -> None:
    former, newest = [EpochProof(store, await store.raise_epoch()) for _ in range(2)]
    with pytest.raises(Deposed):
        await former.give_way(to=2)
    await newest.renew()


async def test_a_proof_whose_answer_was_lost_is_given_again(store: StateStore) -> None:
    """The revision that we know is not the newest then."""
    epoch = await store.raise_epoch()
    revision = await store.confirm_epoch(epoch)
    await store.confirm_epoch(epoch, revision)
    assert await store.confirm_epoch(epoch, revision) > revision
