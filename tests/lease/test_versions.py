"""Queue and worker of different versions of the lease protocol, over real gRPC."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import grpc
import pytest

from headway.lease import lease_pb2 as pb
from headway.lease import versions
from headway.lease.versions import METHOD, SERVICE, VERSION


@pytest.fixture
async def other_queue() -> AsyncIterator[str]:
    """The address of a server that knows no version of ours."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(grace=None)


def of_version(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """From now on this process's workers are of that version, as far as the wire tells; its queues stay as they are."""
    monkeypatch.setattr("headway.lease.client.SERVICE", SERVICE.replace(f"v{VERSION}", f"v{version}"))


def test_the_version_is_that_of_the_messages():
    assert pb.DESCRIPTOR.package == f"headway.lease.v{VERSION}"
    service = pb.DESCRIPTOR.services_by_name["LeaseService"]
    assert (service.full_name, [method.name for method in service.methods]) == (SERVICE, [METHOD])


@pytest.mark.parametrize(("version", "older"), [(VERSION - 1, "worker"), (VERSION + 1, "queue")])
async def test_a_worker_of_another_version_is_told_which_side_is_older(
    stage, eventually, monkeypatch, caplog, version, older
):
    leader = await stage.server()
    of_version(monkeypatch, version)
    with caplog.at_level(logging.DEBUG, logger="headway.lease"):
        worker = stage.client(leader.server.address, lease_max_backoff_seconds=0.01)
        await eventually(lambda: len(caplog.records) >= 8)
    words = f"queue speaks version {VERSION} of the lease protocol, worker version {version}: the {older} is older"
    assert words in worker.client.last_error
    assert leader.hellos == {}
    told = [record for record in caplog.records if record.levelno == logging.WARNING and words in record.getMessage()]
    assert {record.name for record in told} == {"headway.lease.client", "headway.lease.versions"}
    assert len(told) == 2, "one line on each side, however often it asks"


async def test_a_queue_that_knows_no_version_of_ours_is_called_older(stage, eventually, other_queue):
    worker = stage.client(other_queue)
    await eventually(lambda: f"does not know version {VERSION} of the lease protocol" in worker.client.last_error)
    assert versions.ADVICE in worker.client.last_error


async def test_a_worker_that_was_refused_is_let_in_once_the_queue_is_of_its_version(
    stage, eventually, other_queue, unused_tcp_port
):
    worker = stage.client(f"{other_queue},127.0.0.1:{unused_tcp_port}")
    await eventually(lambda: "lease protocol" in (worker.client.last_error or ""))
    await stage.server(lease_listen=f"127.0.0.1:{unused_tcp_port}")
    await eventually(lambda: worker.client.is_connected)


async def test_other_methods_are_none_of_its_business(stage):
    leader = await stage.server()
    async with grpc.aio.insecure_channel(leader.server.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.stream_stream("/other.Service/Attach")(iter([b""])).read()
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "lease" not in caught.value.details()
