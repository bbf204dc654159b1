import asyncio
import socket
import struct
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


async def test_a_user_is_let_in_with_the_right_password_only(locked_nats: EmbeddedNats, eventually: Eventually) -> None:
    async with await connect(config_for(locked_nats, nats_user="me", nats_password="right"), "tests") as connection:
        assert connection.state.connected
    connection = Connection(config_for(locked_nats, nats_user="me", nats_password="no"), "tests")
    opening = asyncio.create_task(connection.open(timeout_seconds=60))
    await eventually(lambda: "Authorization" in connection.state.reason)
    opening.cancel()
    await asyncio.wait((opening,))
    await connection.close()


class Refuser:
    """A server whose answer to the first attempt is a refusal, and to all others what ``then`` does."""

    def __init__(self, then: Callable[[asyncio.StreamWriter], None]) -> None:
        self.attempts = 0
        self._then = then

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.attempts += 1
        writer.write(b'INFO {"server_id": "refuser", "version": "2.15.0", "max_payload": 1048576}\r\n')
        await reader.readuntil(b"PING\r\n")
        if self.attempts == 1:
            writer.write(b"-ERR 'Authorization Violation'\r\n")
            writer.close()
        else:
            self._then(writer)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with an RST: what a host sends if bytes come for a socket that is closed."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def reason_after_three_attempts(refuser: Refuser, eventually: Eventually) -> str:
    async with await asyncio.start_server(refuser, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        config = BrokerConfig(nats_url=f"nats://127.0.0.1:{port}", nats_reconnect_seconds=0.01)
        connection = Connection(config, "tests")
        opening = asyncio.create_task(connection.open(timeout_seconds=60))
        await eventually(lambda: refuser.attempts > 3)
        reason = connection.state.reason
        opening.cancel()
        await asyncio.wait((opening,))
        await connection.close()
    return reason


async def test_a_reset_after_a_refusal_does_not_hide_why(eventually: Eventually) -> None:
    assert "Authorization" in await reason_after_three_attempts(Refuser(reset), eventually)


async def test_another_failure_after_a_refusal_is_told(eventually: Eventually) -> None:
    def refuse_otherwise(writer: asyncio.StreamWriter) -> None:
        writer.write(b"-ERR 'maximum connections exceeded'\r\n")
        writer.close()

    assert "maximum connections" in await reason_after_three_attempts(Refuser(refuse_otherwise), eventually)


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
