"""What a queue process does in a cluster: every replica answers autoscalers, and only the leader knows."""

from __future__ import annotations

import dataclasses
import socket
from contextlib import AsyncExitStack

import grpc
import pytest

from headway.broker.config import BrokerConfig
from headway.broker.connection import connect
from headway.cluster import externalscaler_pb2 as pb
from headway.cluster.config import ClusterConfig
from headway.core.errors import SettingError
from headway.lease.config import LeaseConfig
from headway.roles.cluster_services import ClusterServices, with_pod_address
from headway.roles.queue import QueueRole
from headway.roles.supervisor import Supervisor
from headway.settings import Settings

METADATA = {"model": "default", "metric": "headway_outstanding_jobs", "target": "8"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def num_outstanding(port):
    """As KEDA would hear it."""
    request = pb.GetMetricsRequest(scaledObjectRef=pb.ScaledObjectRef(scalerMetadata=METADATA), metricName="any")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(
            "/externalscaler.ExternalScaler/GetMetrics",
            pb.GetMetricsRequest.SerializeToString,
            pb.GetMetricsResponse.FromString,
        )
        return (await call(request)).metricValues[0].metricValueFloat


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def start_leader(own_nats, stack):
    async def start():
        port = free_port()
        settings = Settings(
            broker=BrokerConfig(nats_url=own_nats.url, nats_timeout_seconds=2.0),
            lease=LeaseConfig(lease_listen="127.0.0.1:0"),
            cluster=ClusterConfig(keda_listen=f"127.0.0.1:{port}"),
        )
        role = QueueRole(settings)
        stack.push_async_callback(role.close)
        await role.start()
        return port

    return start


@pytest.fixture
def start_follower(own_nats, stack):
    """The services alone, of a process that does not lead."""

    async def start(**fields):
        port = free_port()
        connection = await stack.enter_async_context(
            await connect(BrokerConfig(nats_url=own_nats.url), "follower", timeout_seconds=10)
        )
        supervisor = Supervisor("follower")
        services = ClusterServices(ClusterConfig(keda_listen=f"127.0.0.1:{port}", **fields), supervisor)
        stack.push_async_callback(supervisor.close)
        stack.push_async_callback(services.stop)
        await services.start(connection, lambda: None)
        return port

    return start


async def publish_jobs(own_nats, count):
    async with await connect(BrokerConfig(nats_url=own_nats.url), "client", timeout_seconds=10) as connection:
        for _ in range(count):
            await connection.js.publish("headway.jobs.default.acme", b'{"prompt": "Hello", "max_tokens": 1}')


async def test_leader_and_follower_give_the_same_answer(own_nats, start_leader, start_follower, eventually):
    leader, follower = await start_leader(), await start_follower()
    assert await num_outstanding(follower) == 0
    await publish_jobs(own_nats, 3)

    async def has_come():
        return await num_outstanding(leader) == 3

    await eventually(has_come)
    assert await num_outstanding(follower) == 3


async def test_without_a_leader_there_is_no_number(start_follower):
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await num_outstanding(await start_follower())
    assert failed.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_leader_that_has_lost_nats_gives_no_number(own_nats, start_leader, eventually):
    leader = await start_leader()
    await own_nats.stop()

    async def is_unknown():
        try:
            await num_outstanding(leader)
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.UNAVAILABLE
        return False

    await eventually(is_unknown)


async def test_outside_a_cluster_it_says_what_is_missing(start_follower, monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SettingError, match="no service account is mounted"):
        await start_follower(deletion_costs=True)


@pytest.mark.parametrize(
    ("pod_ip", "address"),
    [(None, None), ("10.0.0.7", "10.0.0.7:4280"), ("fd00::7", "[fd00::7]:4280")],
)
def test_a_pod_is_reached_at_its_own_address(pod_ip, address):
    config = LeaseConfig(lease_listen="0.0.0.0:4280", lease_insecure=True)
    assert with_pod_address(config, pod_ip).lease_advertised_address == address


def test_an_address_that_is_given_stays():
    config = dataclasses.replace(LeaseConfig(), lease_advertised_address="queue-0:4280")
    assert with_pod_address(config, "10.0.0.7").lease_advertised_address == "queue-0:4280"
