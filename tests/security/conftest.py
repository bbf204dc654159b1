"""A real nats-server with the example configuration of manifests/nats, and whoever connects to it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.embedded import EmbeddedNats
from headway.broker.streams import ensure_streams

ACCOUNTS = Path(__file__).parents[2] / "manifests" / "nats" / "accounts.conf"
USERS = ("queue", "worker", "operator", "acme", "bob", "system")
HEADWAY_USERS = USERS[:3]

Login = Callable[[str], Awaitable[Connection]]


def broker_settings(url: str, user: str) -> BrokerConfig:
    inbox = f"_INBOX_{user}" if user in HEADWAY_USERS else "_INBOX"
    return BrokerConfig(
        nats_url=url, nats_user=user, nats_password=f"secret-{user}", nats_inbox_prefix=inbox, nats_timeout_seconds=2.0
    )


@pytest.fixture(params=["as it is", "tenants without permissions"])
async def nats(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EmbeddedNats]:
    """The second kind shows that accounts alone keep tenants apart, whatever their users may do inside."""
    for user in USERS:
        monkeypatch.setenv(f"NATS_{user.upper()}_PASSWORD", f"secret-{user}")
    text = ACCOUNTS.read_text()
    if request.param != "as it is":
        head, tenants = text.split("  ACME {\n")
        tenants, num_users = re.subn(r"permissions: \{.*?\n        \}", "", tenants, flags=re.DOTALL)
        assert num_users == 2
        text = head + "  ACME {\n" + tenants
    async with EmbeddedNats(tmp_path / "nats", extra_config=text) as server:
        yield server


@pytest.fixture
async def login(nats: EmbeddedNats) -> AsyncIterator[Login]:
    """User → an open connection; the streams are there."""
    async with AsyncExitStack() as stack:

        async def login(user: str) -> Connection:
            connection = await connect(broker_settings(nats.url, user), user, timeout_seconds=10)
            return await stack.enter_async_context(connection)

        queue = await login("queue")
        await ensure_streams(queue.js, queue.config)
        yield login
