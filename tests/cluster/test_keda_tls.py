"""TLS of KEDA's scaler: who is answered, and what happens when certificates are replaced while it runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from headway.cluster import externalscaler_pb2 as pb
from headway.cluster.config import ClusterConfig
from headway.cluster.scaler_server import ScalerServer
from headway.core.errors import SettingError

HOST = "queue.example"
METADATA = {"model": "default", "metric": "headway_workers_needed", "target": "0.7"}


@dataclass
class Files:
    """Where the scaler's certificate lies, as a Secret would be mounted."""

    folder: Path

    def issue(self, authority):
        issued = authority.ca.issue_cert(HOST)
        self.write(crt=issued.cert_chain_pems[0].bytes(), key=issued.private_key_pem.bytes(), ca=authority.pem.encode())

    def write(self, **contents):
        for name, content in contents.items():
            (self.folder / name).write_bytes(content)

    def config(self, is_mutual=True):
        files = {"keda_cert_file": str(self.folder / "crt"), "keda_key_file": str(self.folder / "key")}
        ca = str(self.folder / "ca") if is_mutual else None
        return ClusterConfig(keda_listen="127.0.0.1:0", **files, keda_ca_file=ca)


@pytest.fixture
def authority(make_authority):
    return make_authority()


@pytest.fixture
def files(authority, tmp_path):
    files = Files(tmp_path)
    files.issue(authority)
    return files


@pytest.fixture
async def open_port(queue, model, files):
    queue.models = (model(waiting=1),)
    servers = []

    async def open_(is_mutual=True):
        servers.append(ScalerServer(files.config(is_mutual), queue.figures()))
        await servers[-1].start()
        return servers[-1].port

    yield open_
    for server in servers:
        await server.stop()


class Client:
    """A connection as KEDA opens one."""

    def __init__(self, port, authority, person=None):
        pair = (None, None) if person is None else person.read()
        credentials = grpc.ssl_channel_credentials(authority.pem.encode(), *pair)
        # A pool of subchannels of its own: gRPC would else use the connection of an earlier client again.
        options = [("grpc.ssl_target_name_override", HOST), ("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options)

    async def is_active(self):
        ref = pb.ScaledObjectRef(name="so", namespace="inference", scalerMetadata=METADATA)
        method = "/externalscaler.ExternalScaler/IsActive"
        call = self.channel.unary_unary(method, type(ref).SerializeToString, pb.IsActiveResponse.FromString)
        return (await call(ref)).result


async def asked_with(port, authority, person=None):
    client = Client(port, authority, person)
    try:
        return await client.is_active()
    finally:
        await client.channel.close()


async def is_turned_away(port, authority, person=None):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await asked_with(port, authority, person)
    return refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_with_a_certificate_it_speaks_tls(open_port, authority):
    assert await asked_with(await open_port(is_mutual=False), authority)


async def test_with_an_authority_it_answers_only_those_whom_that_knows(open_port, authority, make_authority):
    port = await open_port()
    assert await asked_with(port, authority, authority.person("keda"))
    assert await is_turned_away(port, authority)
    assert await is_turned_away(port, authority, make_authority().person("keda"))


async def test_a_replaced_certificate_is_shown_from_the_next_connection_on(open_port, files, authority, make_authority):
    port, successor = await open_port(), make_authority()
    early = Client(port, authority, authority.person("keda"))
    assert await early.is_active()
    files.issue(successor)
    assert await asked_with(port, successor, successor.person("keda"))
    assert await is_turned_away(port, authority, authority.person("keda"))
    assert await early.is_active(), "a connection that is open stays"
    await early.channel.close()


@pytest.mark.parametrize("fault", ["half replaced", "gone", "nonsense"])
async def test_files_that_do_not_fit_together_leave_the_former_certificate(
    open_port, files, authority, make_authority, fault
):
    port, successor = await open_port(), make_authority()
    match fault:
        case "half replaced":
            files.write(crt=successor.ca.issue_cert(HOST).cert_chain_pems[0].bytes())
        case "gone":
            os.unlink(files.folder / "key")
        case "nonsense":
            files.write(ca=b"no certificate")
    assert await asked_with(port, authority, authority.person("keda"))
    files.issue(successor)
    assert await asked_with(port, successor, successor.person("keda"))


async def test_a_file_that_is_not_there_at_the_start_is_named(files, queue):
    os.unlink(files.folder / "key")
    with pytest.raises(SettingError, match="keda_key_file"):
        await ScalerServer(files.config(), queue.figures()).start()


async def test_plain_text_never_leaves_the_machine_unasked(queue):
    with pytest.raises(SettingError, match="keda_insecure"):
        await ScalerServer(ClusterConfig(keda_listen="0.0.0.0:0"), queue.figures()).start()
    server = ScalerServer(ClusterConfig(keda_listen="0.0.0.0:0", keda_insecure=True), queue.figures())
    await server.start()
    await server.stop()
