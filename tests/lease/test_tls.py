"""Who may attach: certificates of one authority, and nobody in plain text from elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import grpc
import pytest

from headway.core.errors import SettingError
from headway.lease.client import LeaseClient
from headway.lease.config import LeaseConfig
from headway.lease.server import LeaseServer
from headway.lease.versions import METHOD, SERVICE


async def test_queue_and_worker_of_one_authority_meet(stage, certificates, eventually):
    own = certificates("one")
    leader = await stage.server(**own)
    worker = stage.client(leader.server.address, **own)
    await eventually(lambda: worker.client.is_connected)


async def test_a_replica_that_is_reached_by_another_name_than_its_certificates(stage, certificates, eventually):
    own = certificates("one")
    leader = await stage.server(**own)
    port = leader.server.address.rpartition(":")[2]
    worker = stage.client(f"localhost:{port}", lease_server_name="127.0.0.1", **own)
    await eventually(lambda: worker.client.is_connected)


@pytest.mark.parametrize("kind", ["stranger", "plain"])
async def test_a_worker_without_a_certificate_of_the_authority_is_turned_away(stage, certificates, eventually, kind):
    leader = await stage.server(**certificates("one"))
    worker = stage.client(leader.server.address, **(certificates("another") if kind == "stranger" else {}))
    await eventually(lambda: "UNAVAILABLE" in (worker.client.last_error or ""))
    assert not leader.hellos


async def test_an_expired_certificate_is_turned_away_on_either_side(stage, certificates, eventually, tmp_path):
    own = certificates("one", tmp_path)
    expired = certificates("one", tmp_path, "expired", num_days=-1)
    leader, expired_leader = await stage.server(**own), await stage.server(**expired)
    worker = stage.client(leader.server.address, **expired)
    other = stage.client(expired_leader.server.address, **own)
    await eventually(lambda: "UNAVAILABLE" in (worker.client.last_error or ""))
    await eventually(lambda: "UNAVAILABLE" in (other.client.last_error or ""))
    assert not leader.hellos
    assert not expired_leader.hellos
    fine = stage.client(leader.server.address, **own)
    await eventually(lambda: fine.client.is_connected)


async def test_a_worker_without_any_certificate_is_turned_away(stage, certificates, eventually, tmp_path):
    """It knows the authority, and has nothing to show for itself."""
    own = certificates("one", tmp_path)
    leader = await stage.server(**own)
    credentials = grpc.ssl_channel_credentials(read_file(own["lease_ca_file"]))
    async with grpc.aio.secure_channel(leader.server.address, credentials) as channel:
        attach = channel.stream_stream(f"/{SERVICE}/{METHOD}")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await attach(iter([b""])).read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert not leader.hellos


async def test_certificates_that_are_replaced_are_used_from_the_next_handshake_on(
    stage, certificates, eventually, tmp_path
):
    (tmp_path / "live").mkdir()
    old, new = certificates("one"), certificates("another")
    live = {setting: str(tmp_path / "live" / setting) for setting in old}
    replace_files(old, live)
    leader = await stage.server(**live)
    early = stage.client(leader.server.address, **old)
    await eventually(lambda: early.client.is_connected)
    replace_files(new, live)
    late = stage.client(leader.server.address, **new)
    await eventually(lambda: late.client.is_connected)
    stranger = stage.client(leader.server.address, **old)
    await eventually(lambda: "UNAVAILABLE" in (stranger.client.last_error or ""))
    assert early.client.is_connected
    assert len(leader.hellos) == 2


@pytest.mark.parametrize("fault", ["half replaced", "gone", "nonsense"])
async def test_files_that_do_not_fit_together_leave_the_former_certificate(
    stage, certificates, eventually, tmp_path, fault
):
    (tmp_path / "live").mkdir()
    old, new = certificates("one"), certificates("another")
    live = {setting: str(tmp_path / "live" / setting) for setting in old}
    replace_files(old, live)
    leader = await stage.server(**live)
    if fault == "half replaced":
        replace_files({"lease_cert_file": new["lease_cert_file"]}, live)
    elif fault == "gone":
        os.unlink(live["lease_key_file"])
    else:
        replace_files({"lease_ca_file": __file__}, live)
    worker = stage.client(leader.server.address, **old)
    await eventually(lambda: worker.client.is_connected)
    replace_files(new, live)
    later = stage.client(leader.server.address, **new)
    await eventually(lambda: later.client.is_connected)


def read_file(path: str) -> bytes:
    return Path(path).read_bytes()


def replace_files(source: dict[str, str], target: dict[str, str]) -> None:
    for setting, path in source.items():
        Path(target[setting]).write_bytes(read_file(path))


@pytest.mark.parametrize("address", ["0.0.0.0:4280", "10.0.0.7:4280", "queue.headway.svc:4280", "[::]:4280"])
def test_plain_text_beyond_this_machine_is_refused_with_the_way_out(address):
    with pytest.raises(SettingError, match=r"lease_ca_file.*lease_insecure"):
        LeaseServer(LeaseConfig(lease_listen=address), handler=None)
    with pytest.raises(SettingError, match=r"lease_ca_file.*lease_insecure"):
        LeaseClient(LeaseConfig(lease_address=address), hello=None)
    LeaseServer(LeaseConfig(lease_listen=address, lease_insecure=True), handler=None)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:4280", "[::1]:4280"])
def test_plain_text_on_this_machine_is_fine(address):
    LeaseServer(LeaseConfig(lease_listen=address), handler=None)


async def test_a_redirect_leads_nobody_into_plain_text(stage, eventually):
    follower = await stage.server(follows="203.0.113.9:4280")
    worker = stage.client(follower.server.address)
    await eventually(lambda: "lease_ca_file" in (worker.client.last_error or ""))


async def test_a_certificate_that_cannot_be_read_is_named(stage, certificates):
    files = certificates("one") | {"lease_key_file": "/nowhere/key.pem"}
    with pytest.raises(SettingError, match="lease_key_file"):
        await stage.server(**files)
