"""How long a machine takes from nothing to a first token: `python -m loadtest.first_token`.

Starts NATS, the queue, a worker and its engine as `headway up` does, in a fresh process, with a job that comes at once,
and prints when each stage of the start began and when the first token came, in seconds since this
process started. Caches (the converted model, compiled code) are used as they are: run it twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from headway import Client
from headway.roles.local import LocalRole
from headway.settings import Settings

PROMPT = "Once upon a time"


async def measure(settings: Settings) -> dict[str, float]:
    """Seconds by stage, the last one ``first token``."""
    stages: dict[str, float] = {}

    def note(stage: str) -> None:
        stages.setdefault(stage, _since_start())

    with tempfile.TemporaryDirectory(prefix="headway-first-token-") as folder:
        async with (
            LocalRole(settings, Path(folder), on_stage=note) as local,
            Client.connect(local.nats.url, tenant="loadtest", model=settings.engine.served_model) as client,
        ):
            async for chunk in client.submit(PROMPT, max_tokens=4):
                if chunk.token_ids:
                    note("first token")
    return stages


def _since_start() -> float:
    """The interpreter's own start is part of what a user waits for; `time.process_time` would count only work."""
    return time.time() - _started_at()


def _started_at() -> float:
    # Field 22 of proc(5): clock ticks after boot.
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted_at + ticks / os.sysconf("SC_CLK_TCK")


def main() -> int:
    stages = asyncio.run(measure(Settings.load({"lease_listen": "127.0.0.1:0"})))
    print(json.dumps({stage: round(seconds, 2) for stage, seconds in stages.items()}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
