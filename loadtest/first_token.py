"""How long a machine takes from nothing to a first token: `python -m loadtest.first_token`.

Starts NATS, the queue, a worker and its engine as `headway up` does, with a job that comes at once, several times, each
in a fresh process, and prints one JSON object:

    starts                  of each: when each stage of the start began and when the first token came, in seconds since
                            the process began
    first_token_seconds     ``{"median", "min", "max"}`` of all starts but the first, which fills the caches (the
                            converted model, compiled code, files in memory)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headway import Client
from headway.roles.local import LocalRole
from headway.settings import Settings
from loadtest.comparison import spread

FIRST_TOKEN = "first token"
"""The stage that ends a start."""
PROMPT = "Once upon a time"


async def measure(settings: Settings) -> dict[str, float]:
    """Seconds by stage, `FIRST_TOKEN` the last."""
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
                    note(FIRST_TOKEN)
    return stages


def _since_start() -> float:
    """The interpreter's own start is part of what a user waits for; `time.process_time` would count only work."""
    return time.time() - _started_at()


def _started_at() -> float:
    # Field 22 of proc(5): clock ticks after boot.
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted_at + ticks / os.sysconf("SC_CLK_TCK")


def start_afresh() -> dict[str, float]:
    """`measure` in a process of its own. Raises ``CalledProcessError``."""
    command = [sys.executable, "-m", "loadtest.first_token", "--once"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    stages: dict[str, float] = json.loads(done.stdout)
    return stages


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.first_token", description=__doc__.partition("\n")[0])
    parser.add_argument("--starts", type=int, default=4, help="at least 2; the first one is not counted (default: 4)")
    parser.add_argument("--once", action="store_true", help="one start, in this process: its stages alone")
    options = parser.parse_args()
    if options.once:
        stages = asyncio.run(measure(Settings.load({"lease_listen": "127.0.0.1:0"})))
        print(json.dumps({stage: round(seconds, 2) for stage, seconds in stages.items()}))
        return 0
    starts = [start_afresh() for _ in range(max(2, options.starts))]
    counted = [start[FIRST_TOKEN] for start in starts[1:]]
    print(json.dumps({"starts": starts, "first_token_seconds": spread(counted)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
