"""Three probes, three answers, each with its reason."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headway.core.errors import SettingError
from headway.lease.config import LeaseConfig
from headway.lease.health import REASON_KEY, HealthServer, Probe, ProbeAnswer

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
async def health() -> AsyncIterator[HealthServer]:
    async with HealthServer(LeaseConfig()) as server:
        yield server


@pytest.fixture
async def stub(health):
    async with grpc.aio.insecure_channel(health.address) as channel:
        yield health_pb2_grpc.HealthStub(channel)


async def check(stub, service: str) -> tuple[int, str]:
    call = stub.Check(health_pb2.HealthCheckRequest(service=service))
    status = (await call).status
    return status, dict(await call.trailing_metadata())[REASON_KEY]


async def test_a_process_that_loads_is_alive_but_neither_started_nor_ready(stub):
    statuses = [(await check(stub, probe))[0] for probe in ("startup", "readiness", "liveness")]
    assert statuses == [NOT_SERVING, NOT_SERVING, SERVING]


async def test_each_probe_is_set_by_itself_and_says_why(stub, health):
    health.set(Probe.READINESS, False, "stream HEADWAY_JOBS is missing")
    health.set(Probe.STARTUP, True)
    assert await check(stub, "readiness") == (NOT_SERVING, "stream HEADWAY_JOBS is missing")
    assert (await check(stub, "startup"))[0] == SERVING
    assert health.answers[Probe.READINESS] == ProbeAnswer(False, "stream HEADWAY_JOBS is missing")
    assert health.is_ok(Probe.STARTUP)


async def test_the_service_without_a_name_is_readiness(stub, health):
    health.set(Probe.READINESS, True)
    assert (await check(stub, ""))[0] == SERVING


async def test_a_reason_of_any_characters_can_be_read(stub, health):
    health.set(Probe.READINESS, False, "weights → GPU\nline two")
    assert (await check(stub, "readiness"))[1] == "weights \\u2192 GPU line two"


async def test_an_unknown_probe_is_not_found(stub):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(stub, "livelyness")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "readiness" in caught.value.details()


async def test_a_watcher_hears_of_every_change(stub, health):
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="readiness"))
    async with asyncio.timeout(20):
        assert (await watch.read()).status == NOT_SERVING
        health.set(Probe.READINESS, True)
        assert (await watch.read()).status == SERVING


async def test_a_port_that_is_taken_is_an_error(health):
    with pytest.raises(SettingError, match="health_listen"):
        await HealthServer(LeaseConfig(health_listen=health.address)).start()
