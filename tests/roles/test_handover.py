"""Work changes hands: between workers, and between one queue and the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from headway.broker.client import Client
from headway.broker.config import BrokerConfig
from headway.broker.connection import connect
from headway.broker.errors import Busy, Deposed
from headway.broker.streams import ensure_streams
from headway.core.election import ElectionKind
from headway.lease.health import Probe

pytestmark = pytest.mark.asyncio(loop_scope="session")
Job = Callable[..., dict[str, Any]]
Eventually = Callable[..., Awaitable[None]]
LONG = 300


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def fleet(open_parts: Callable[[], Any]) -> AsyncIterator[Any]:
    """A queue and a worker."""
    async with open_parts() as fleet:
        fleet.leader = await fleet.queue()
        fleet.staying = await fleet.worker(roles={"worker_name": "staying"})
        yield fleet


async def publish(parts: Any, tenant: str, num_jobs: int, **fields: Any) -> list[str]:
    ids = [f"n{number}" for number in range(num_jobs)]
    for job_id in ids:
        await parts.wire.publish(tenant, {"id": job_id, "prompt": "Hello", "ignore_eos": True, **fields})
    return ids


def workers_of(log: Any) -> list[str]:
    return [record["worker"] for record in log.of_kind("attempt")]


async def test_a_second_worker_takes_its_share_and_hands_back_what_it_cannot_finish(fleet: Any, tenant: str) -> None:
    leaving = await fleet.worker(roles={"worker_name": "leaving", "drain_seconds": 0.0})
    ids = await publish(fleet, tenant, 8, max_tokens=LONG, seed=1)
    await asyncio.gather(*(fleet.wire.has_tokens(tenant, job_id) for job_id in ids))
    first_workers = [workers_of(fleet.wire.log(tenant, job_id))[0] for job_id in ids]
    assert first_workers.count("leaving") == first_workers.count("staying") == 4
    await leaving.close()
    logs = [await fleet.wire.ended(tenant, job_id) for job_id in ids]
    for log in logs:
        check_nothing_lost(log)
    handed_over = [log for log in logs if workers_of(log)[0] == "leaving"]
    for log in handed_over:
        assert log.kinds == ["attempt", "tokens", "released", "attempt", "tokens", "end"]
        assert workers_of(log)[1] == "staying"
    assert len({tuple(log.token_ids) for log in logs}) == 1, "the same seed, so the same output, handed over or not"


async def test_a_worker_that_is_hurried_hands_back_what_it_would_have_finished(fleet: Any, tenant: str) -> None:
    leaving = await fleet.worker(roles={"worker_name": "hurried", "drain_seconds": 600.0})
    ids = await publish(fleet, tenant, 8, max_tokens=LONG)
    await asyncio.gather(*(fleet.wire.has_tokens(tenant, job_id) for job_id in ids))
    closing = asyncio.create_task(leaving.close())
    leaving.hurry()
    await closing
    logs = [await fleet.wire.ended(tenant, job_id) for job_id in ids]
    for log in logs:
        check_nothing_lost(log)
    assert any(workers_of(log) == ["hurried", "staying"] for log in logs)


def check_nothing_lost(log: Any) -> None:
    """Whoever gave the job away said so, and each token came once."""
    assert len(log.of_kind("attempt")) == 1 + len(log.of_kind("released"))
    assert [record["token_start"] for record in log.of_kind("tokens")] == [
        sum(len(earlier["token_ids"]) for earlier in log.of_kind("tokens")[:number])
        for number in range(len(log.of_kind("tokens")))
    ]
    assert (log.end["finish_reason"], len(log.token_ids)) == ("length", LONG)


async def test_a_new_queue_adopts_what_runs_and_grants_what_waits(
    fleet: Any, tenant: str, eventually: Eventually
) -> None:
    ids = await publish(fleet, tenant, 12, max_tokens=LONG)
    await fleet.wire.has_tokens(tenant, "n3")
    await fleet.leader.close()
    fleet.leader = await fleet.queue()
    logs = [await fleet.wire.ended(tenant, job_id) for job_id in ids]
    for log in logs:
        check_nothing_lost(log)

    async def settled() -> bool:
        return await fleet.wire.num_jobs() == 0

    await eventually(settled)
    assert [worker.num_held_jobs for worker in fleet.leader.status().workers] == [0]


async def test_jobs_go_on_when_nats_was_away(fleet: Any, tenant: str, eventually: Eventually) -> None:
    ids = await publish(fleet, tenant, 6, max_tokens=LONG, seed=1)
    await fleet.wire.has_tokens(tenant, ids[0])
    await fleet.nats.stop(kill=True)
    await fleet.nats.start()
    async with Client.connect(fleet.nats.url, tenant=tenant) as client:
        results = [await client.result(job_id, timeout_seconds=60) for job_id in ids]
    assert [len(result.token_ids) for result in results] == [LONG] * 6
    assert len({result.token_ids for result in results}) == 1
    await eventually(lambda: is_back(fleet))


def is_back(fleet: Any) -> bool:
    """All connections to NATS are there again: their tasks must not appear during the next test."""
    roles = (fleet.leader, fleet.staying)
    return fleet.wire.client.is_connected and all(role.health.is_ok(Probe.READINESS) for role in roles)


async def test_a_new_queue_without_workers_rebuilds_itself_from_the_stream(parts: Any, tenant: str) -> None:
    first = await parts.queue()
    await publish(parts, tenant, 200)
    await first.close()
    second = await parts.queue()
    (model,) = second.status().models
    assert model.num_waiting_jobs == 200
    assert model.queue.num_waiting_by_tenant == {tenant: 200}
    assert second.health.is_ok(Probe.READINESS)


async def test_a_worker_may_be_there_before_nats_and_the_queue(parts: Any, tenant: str, eventually: Eventually) -> None:
    await (await parts.queue()).close()  # the port of the next one is known now
    await parts.nats.stop()
    probes: list[Any] = []
    starting = asyncio.create_task(parts.worker(on_probes=probes.append))

    def waits_for_nats_alone() -> bool:
        reason = probes[0].answers[Probe.READINESS].reason if probes else ""
        return "nats:" in reason and "engine:" not in reason

    await eventually(waits_for_nats_alone, seconds=60)
    await parts.nats.start()
    await parts.queue()
    await starting
    (job_id,) = await publish(parts, tenant, 1, max_tokens=4)
    assert (await parts.wire.ended(tenant, job_id)).end["finish_reason"] == "length"


async def test_jobs_in_flight_to_a_queue_whose_connection_breaks_are_in_it_all_the_same(
    parts: Any, tenant: str, open_proxy: Any, eventually: Eventually
) -> None:
    async with open_proxy(parts.nats.url) as proxy:
        queue = await parts.queue(broker={"nats_url": proxy.url, "nats_reconnect_seconds": 0.1})
        proxy.cut_after(60_000)
        await parts.wire.publish_all(
            (tenant, {"id": f"n{number}", "prompt": "Hello" * 20, "max_tokens": 4}) for number in range(600)
        )
        await eventually(lambda: queue.status().models[0].num_waiting_jobs == 600, seconds=60)
        assert proxy.num_cuts == 1
        await queue.close()


async def test_without_an_election_a_queue_that_another_one_replaced_stops_with_an_error(parts: Any) -> None:
    first = await parts.queue(election={"election": ElectionKind.NONE})
    parts.lease_port = 0
    await parts.queue(election={"election": ElectionKind.NONE})
    with pytest.raises(Deposed):
        async with asyncio.timeout(30):
            await first.run(asyncio.Event())


async def test_a_full_queue_refuses_a_job_and_says_so(parts: Any, tenant: str) -> None:
    await parts.queue(broker={"max_waiting_jobs_per_tenant": 3})
    async with Client.connect(parts.nats.url, tenant=tenant) as client:
        for _ in range(3):
            await client.submit("Hello")
        with pytest.raises(Busy):
            await client.submit("Hello")
    async with Client.connect(parts.nats.url, tenant=f"{tenant}-other") as client:
        await client.submit("Hello")


@pytest.mark.parametrize("role", ["queue", "worker"])
async def test_without_its_streams_a_process_is_not_ready_and_says_why(
    parts: Any, role: str, eventually: Eventually
) -> None:
    probes: list[Any] = []
    start = parts.queue if role == "queue" else parts.worker
    starting = asyncio.create_task(start(broker={"create_streams": False}, on_probes=probes.append))
    await eventually(lambda: bool(probes) and "HEADWAY_JOBS" in probes[0].answers[Probe.READINESS].reason)
    await eventually(lambda: probes[0].is_ok(Probe.STARTUP))
    assert not probes[0].is_ok(Probe.READINESS)
    assert probes[0].is_ok(Probe.LIVENESS), "whoever kills it now brings no stream, and has a model to load again"
    if role == "queue":
        async with await connect(BrokerConfig(nats_url=parts.nats.url), "operator") as connection:
            await ensure_streams(connection.js, BrokerConfig())
        await starting
        assert probes[0].is_ok(Probe.READINESS)
    else:
        starting.cancel()
        await asyncio.wait([starting])
