"""How long a failover of the queue takes, with so many jobs waiting: the leader is killed, its standby takes over.

    python -m loadtest.failover --jobs 100000

Prints one JSON object. All times are in seconds from the moment of the kill:

    lock      the standby has the lock: the leader's lease is over
    leads     it answers requests: it has taken over and read the stream
    granted   a job that it has granted has begun at a worker

``read`` is the difference of the first two: what the number of jobs decides.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from headway.core.election import ElectionConfig
from loadtest.faults.fleet import Fleet, impatient_settings, running_fleet, with_groups
from loadtest.faults.process import Condition, until
from loadtest.faults.queue_pair import QueuePair, start_pair
from loadtest.faults.tiny_model import save_tiny_model

NUM_TENANTS = 10
START_SECONDS = 300.0
END_SECONDS = 120.0
PUBLISH_BATCH = 1000


@dataclass(frozen=True)
class Failover:
    num_jobs: int
    """That waited when the leader was killed, or nearly: some run."""
    lock: float
    leads: float
    granted: float
    read: float


async def measure(num_jobs: int, folder: Path) -> Failover:
    """On real processes: nats-server, two queues, one worker with a tiny model; the election as users have it."""
    settings = with_groups(
        replace(impatient_settings(save_tiny_model(folder / "model")), election=ElectionConfig()),
        broker={"max_waiting_jobs": 2 * num_jobs + 1000, "max_waiting_jobs_per_tenant": num_jobs + 1000},
        lease_terms={"lease_seconds": 15.0},
        roles={"save_seconds": 3.0},
    )
    async with running_fleet(folder / "fleet", settings) as fleet:
        pair = await start_pair(fleet)
        fleet.start_worker("w1")
        await fleet.has_workers("w1")
        tell(f"publishing {num_jobs} jobs")
        await publish(fleet, num_jobs)
        tell("waiting until the leader has them all")
        await until(lambda: holds(pair, num_jobs), START_SECONDS, f"{num_jobs} jobs in the queue")
        return await fail_over(pair, num_jobs)


async def publish(fleet: Fleet, num_jobs: int) -> None:
    """Without waiting for each to be stored, but for some of them, so that nothing is refused for haste."""
    client = fleet.logs.connection.client
    for number in range(num_jobs):
        job = {"id": f"n{number}", "prompt": "Hello", "max_tokens": 8, "ignore_eos": True}
        await client.publish(f"headway.jobs.default.tenant-{number % NUM_TENANTS}", json.dumps(job).encode())
        if number % PUBLISH_BATCH == 0:
            await fleet.logs.num_jobs()


async def holds(pair: QueuePair, num_jobs: int) -> bool:
    """Nearly all; some have ended meanwhile."""
    status = await pair.fleet.status()
    return status is not None and status.models[0].num_outstanding_jobs > 0.9 * num_jobs


async def fail_over(pair: QueuePair, num_jobs: int) -> Failover:
    holder = (await pair.lock())["holder"]
    tell("killing the leader")
    killed_at = time.monotonic()
    pair.leader.kill()

    async def is_taken() -> bool:
        return (await pair.lock())["holder"] != holder

    async def leads() -> bool:
        status = await pair.fleet.status()
        return status is not None and status.epoch == 2

    def has_granted() -> bool:
        return any(record["grant"][0] == 2 for record in pair.fleet.logs.in_order("attempt"))

    times: dict[str, float] = {}
    conditions: dict[str, Condition] = {"lock": is_taken, "leads": leads, "granted": has_granted}
    for name, condition in conditions.items():
        await until(condition, END_SECONDS, name)
        times[name] = round(time.monotonic() - killed_at, 2)
    return Failover(num_jobs, **times, read=round(times["leads"] - times["lock"], 2))


def tell(stage: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {stage}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000, help="jobs that wait (default: 1000)")
    num_jobs = parser.parse_args().jobs
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asdict(asyncio.run(measure(num_jobs, Path(folder))))))


if __name__ == "__main__":
    main()
