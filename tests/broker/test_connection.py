import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, ConnectionState, connect
from headway.broker.embedded import EmbeddedNats
from headway.broker.errors import BrokerRefused, BrokerUnavailable, MessageMissing, translated
from headway.broker.streams import JOBS
from headway.core.errors import SettingError

Eventually = Callable[..., Awaitable[None]]
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
USER = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
"""A key pair for this test only."""


def config_for(server: EmbeddedNats, **settings: Any) -> BrokerConfig:
    return BrokerConfig(nats_url=server.url, nats_reconnect_seconds=0.05, nats_timeout_seconds=2.0, **settings)


async def test_a_connection_has_a_name_that_monitoring_shows(own_nats: EmbeddedNats) -> None:
    async with await connect(config_for(own_nats), "queue") as connection:
        assert connection.state == ConnectionState(True)
        assert connection.client.options["name"] == "queue"


async def test_a_lost_server_is_a_state_with_a_reason_until_it_is_back(
    own_nats: EmbeddedNats, eventually: Eventually
) -> None:
    states: list[ConnectionState] = []
    async with await connect(config_for(own_nats), "tests", on_change=states.append) as connection:
        await own_nats.stop()
        await eventually(lambda: not connection.state.connected)
        assert own_nats.url in connection.state.reason
        await own_nats.start()
        await eventually(lambda: connection.state.connected)
        await connection.client.flush()
    assert [state.connected for state in states if state.connected] == [True, True]
    assert states[-1] == ConnectionState(False, "closed")


async def test_whoever_cannot_wait_is_told_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    config = BrokerConfig(nats_url=f"nats://me:secret@127.0.0.1:{port}", nats_reconnect_seconds=0.05)
    with pytest.raises(BrokerUnavailable) as caught:
        await connect(config, "tests", timeout_seconds=0.3)
    assert "refused" in caught.value.reason.lower() or "connect call failed" in caught.value.reason.lower()
    assert "secret" not in str(caught.value)


async def test_whoever_waits_gets_the_connection_when_the_server_comes(
    own_nats: EmbeddedNats, eventually: Eventually
) -> None:
    await own_nats.stop()
    connection = Connection(config_for(own_nats), "tests")
    opening = asyncio.create_task(connection.open())
    await eventually(lambda: "cannot reach" in connection.state.reason)
    await own_nats.start()
    await opening
    assert connection.state.connected
    await connection.close()


async def test_replies_can_come_to_a_private_inbox(own_nats: EmbeddedNats) -> None:
    async with await connect(config_for(own_nats, nats_inbox_prefix="_INBOX_acme"), "tests") as connection:
        assert connection.client.new_inbox().startswith("_INBOX_acme.")
        assert await connection.js.streams_info() == []


@pytest.fixture
async def locked_nats(tmp_path: Path) -> AsyncIterator[EmbeddedNats]:
    """A server that lets in one user by password and one by nkey."""
    users = f'authorization {{ users = [ {{ user: "me", password: "right" }}, {{ nkey: "{USER}" }} ] }}'
    async with EmbeddedNats(tmp_path / "locked", extra_config=users) as server:
        yield server


async def test_a_user_is_let_in_with_the_right_password_only(locked_nats: EmbeddedNats) -> None:
    async with await connect(config_for(locked_nats, nats_user="me", nats_password="right"), "tests") as connection:
        assert connection.state.connected
    with pytest.raises(BrokerUnavailable, match=r"(?i)authorization"):
        await connect(config_for(locked_nats, nats_user="me", nats_password="no"), "tests", timeout_seconds=0.5)


async def test_a_user_is_let_in_with_an_nkey(locked_nats: EmbeddedNats, tmp_path: Path) -> None:
    (tmp_path / "seed.nk").write_text(SEED)
    async with await connect(config_for(locked_nats, nats_nkey_file=str(tmp_path / "seed.nk")), "tests") as connection:
        assert connection.state.connected


async def test_access_that_is_taken_away_is_a_reason_until_it_is_given_back(
    locked_nats: EmbeddedNats, eventually: Eventually
) -> None:
    config = config_for(locked_nats, nats_user="me", nats_password="right")
    allowed = locked_nats.extra_config
    async with await connect(config, "tests") as connection:
        locked_nats.extra_config = 'authorization { users = [ { user: "other", password: "right" } ] }'
        await locked_nats.reload()
        await eventually(lambda: "Authorization" in connection.state.reason)
        locked_nats.extra_config = allowed
        await locked_nats.reload()
        await eventually(lambda: connection.state.connected)
    await connection.wait_closed()


@pytest.mark.parametrize("setting", ["nats_tls_ca_file", "nats_credentials_file", "nats_nkey_file"])
async def test_a_file_that_cannot_be_read_is_a_setting_error(own_nats: EmbeddedNats, setting: str) -> None:
    with pytest.raises(SettingError, match=setting):
        await connect(config_for(own_nats, **{setting: "/nonexistent.pem"}), "tests")


async def test_errors_of_the_library_become_ours_with_the_cause(connection: Connection) -> None:
    with pytest.raises(MessageMissing) as missing, translated("read"):
        await connection.js.get_msg(JOBS, seq=4711)
    assert missing.value.__cause__ is not None
    with pytest.raises(BrokerRefused) as refused, translated("look"):
        await connection.js.consumer_info(JOBS, "none")
    assert (refused.value.operation, refused.value.code) == ("look", 404)
    with pytest.raises(BrokerUnavailable), translated("look"):
        await connection.js.stream_info("NONE")  # somebody may create it
    with pytest.raises(BrokerUnavailable), translated("ask"):
        await connection.client.request("nobody.listens", b"", timeout=1)


@pytest.mark.parametrize("is_noticed", [False, True])
async def test_closing_without_a_server_leaves_no_task_behind(
    own_nats: EmbeddedNats, eventually: Eventually, is_noticed: bool
) -> None:
    async def ignore(message: object) -> None: ...

    tasks = asyncio.all_tasks()
    connection = await connect(config_for(own_nats), "tests")
    await connection.client.subscribe("any", cb=ignore)
    await connection.client.flush()
    await own_nats.stop(kill=True)
    if is_noticed:
        await eventually(lambda: not connection.state.connected)
    await connection.client.publish("any", b"pending")
    await connection.close()
    await eventually(lambda: asyncio.all_tasks() <= tasks)


async def test_a_line_that_swallows_everything_is_found_out_and_left(
    own_nats: EmbeddedNats, open_proxy: Any, eventually: Eventually
) -> None:
    """No connection breaks, and nothing says so but the missing answers to our pings."""
    async with open_proxy(own_nats.url) as proxy:
        config = BrokerConfig(nats_url=proxy.url, nats_timeout_seconds=0.2, nats_reconnect_seconds=0.1)
        async with await connect(config, "tests", timeout_seconds=10) as connection:
            proxy.hold()
            await eventually(lambda: not connection.state.connected)
            assert connection.state.reason
            proxy.release()
            await eventually(lambda: connection.state.connected)
            await connection.client.flush()
