"""Everything in one process, when a part of it is gone for good."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headway.broker.errors import EmbeddedNatsFailed
from headway.roles.local import LocalRole
from headway.settings import Settings
from tests.roles.wire import Wire

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_nats_server_that_ends_is_said_at_once_and_no_job_is_waited_for(
    settings: Settings,
    tmp_path: Path,
    open_wire: Callable[[str], Awaitable[Wire]],
    job: Callable[..., dict[str, Any]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    stages: list[str] = []
    async with LocalRole(settings, tmp_path, on_stage=stages.append) as local:
        wire = await open_wire(local.nats.url)
        await wire.publish("acme", job(id="long", max_tokens=900))
        await wire.has_tokens("acme", "long")
        stages.clear()
        os.kill(local.nats.pid, signal.SIGKILL)
        with pytest.raises(EmbeddedNatsFailed, match="ended with status -9"):
            await asyncio.wait_for(local.run(asyncio.Event()), 30)
        assert "ended with status -9; stopping at once" in stages[0]
    await wire.client.close()
    assert len(stages) == 1, "nothing was finished or handed back"
    assert not [message for message in caplog.messages if message.endswith("saving everything: ")]
