"""Queue and worker with no more rights than the example configuration of NATS gives them, and two tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from headway.broker.client import Client
from headway.broker.config import BrokerConfig
from headway.broker.embedded import EmbeddedNats
from headway.core.job import FinishReason
from headway.core.lease_actions import CancelOutcome

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACCOUNTS = Path(__file__).parents[2] / "manifests" / "nats" / "accounts.conf"
GREEDY = {"max_tokens": 12, "temperature": 0.0, "ignore_eos": True}


def login(user: str, **fields: Any) -> dict[str, Any]:
    return {"nats_user": user, "nats_password": f"secret-{user}", **fields}


@pytest_asyncio.fixture(loop_scope="session")
async def served(parts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[str], Any]]:
    """Tenant → its client, not opened yet."""
    for user in ("queue", "worker", "operator", "acme", "bob", "system"):
        monkeypatch.setenv(f"NATS_{user.upper()}_PASSWORD", f"secret-{user}")
    async with AsyncExitStack() as stack:
        parts.nats = await stack.enter_async_context(EmbeddedNats(tmp_path / "nats", extra_config=ACCOUNTS.read_text()))
        stack.push_async_callback(parts.stack.aclose)
        await parts.queue(broker=login("queue", nats_inbox_prefix="_INBOX_queue"))
        await parts.worker(broker=login("worker", nats_inbox_prefix="_INBOX_worker", create_streams=False))
        yield lambda tenant: Client.connect(
            tenant=tenant, config=BrokerConfig(nats_url=parts.nats.url, **login(tenant))
        )


async def test_tenants_submit_follow_replay_and_cancel_with_rights_of_their_own(served: Callable[[str], Any]) -> None:
    async with served("acme") as acme, served("bob") as bob:
        result = await acme.submit("Hello", id="same", **GREEDY).result(30)
        assert (result.finish_reason, len(result.token_ids)) == (FinishReason.LENGTH, 12)
        other = await bob.submit("Something else", id="same", **GREEDY).result(30)
        assert other.finish_reason is FinishReason.LENGTH
        assert other.text != result.text
        assert await acme.result("same", 30) == result
        endless = await acme.submit("Hello", id="endless", **{**GREEDY, "max_tokens": 900})
        assert (await bob.cancel("endless")).outcome is CancelOutcome.NOT_FOUND
        assert (await acme.cancel("endless")).outcome is CancelOutcome.CANCELLED
        assert (await endless.result(30)).finish_reason is FinishReason.CANCELLED
