"""Everything on one machine with the default model: what somebody gets who only says ``headway up``."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from pathlib import Path

import pytest

from headway.broker.client import Client
from headway.broker.errors import EmbeddedNatsFailed
from headway.core.job import FinishReason
from headway.engine.config import EngineConfig
from headway.roles.local import LocalRole
from headway.settings import Settings

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_default_model_answers_in_english_and_the_end_of_nats_ends_it_all(
    settings: Settings, tmp_path: Path
) -> None:
    engine = EngineConfig(kv_memory="64MiB", num_threads=1)
    async with LocalRole(dataclasses.replace(settings, engine=engine), tmp_path / "nats") as local:
        async with Client.connect(local.nats.url) as client:
            question = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
            result = await client.submit(messages=question, max_tokens=24, temperature=0).result()
        assert "Paris" in result.text
        assert result.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)

        running = asyncio.create_task(local.run(asyncio.Event()))
        assert local.nats.pid is not None
        os.kill(local.nats.pid, signal.SIGKILL)
        with pytest.raises(EmbeddedNatsFailed):
            await running
