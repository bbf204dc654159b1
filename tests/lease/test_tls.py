"""Who may attach: certificates of one authority, and nobody in plain text from elsewhere."""

from __future__ import annotations

import pytest

from headway.core.errors import SettingError
from headway.lease.client import LeaseClient
from headway.lease.config import LeaseConfig
from headway.lease.server import LeaseServer


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
