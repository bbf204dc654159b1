"""Thousands of short jobs while something is killed, stopped or cut off every few seconds: ``make soak``.

    python -m loadtest.soak --seconds 300

Real processes on this machine: nats-server, queues, workers with an engine child each. Faults are drawn at random and
made good again after a while. At the end every job must have ended exactly once, no log may have a gap or an overlap,
and the workers must have given back every page and every lease. The last line is one JSON object; the status is 1 if
anything was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from loadtest.faults.fleet import impatient_settings, running_fleet
from loadtest.faults.template import Template, engine_template
from loadtest.faults.tiny_model import save_tiny_model
from loadtest.soak_faults import FaultMachine
from loadtest.soak_jobs import Traffic
from loadtest.soak_memory import MemoryWatch
from loadtest.soak_report import SoakReport, leftovers

MIN_JOBS = 2000
NUM_WORKERS = 2


async def soak(
    folder: Path, seconds: float, num_jobs: int, num_queues: int = 2, template: Template | None = None, seed: int = 0
) -> SoakReport:
    """Jobs are spread over ``seconds``, and faults over the same time."""
    model = save_tiny_model(folder / "model")
    async with (
        running_fleet(folder / "fleet", impatient_settings(model), template) as fleet,
        FaultMachine(fleet, NUM_WORKERS, num_queues, seed) as faults,
    ):
        await faults.start_all()
        traffic = Traffic(fleet, num_jobs, seconds)
        memory = MemoryWatch(fleet)
        watching = asyncio.create_task(memory.run(), name="memory")
        async with asyncio.TaskGroup() as group:
            group.create_task(traffic.run(seconds))
            group.create_task(_faults_for(faults, seconds, traffic))
        watching.cancel()
        report = SoakReport.of(await traffic.logs(), num_jobs, await leftovers(fleet), faults.counts)
        return replace(report, memory_growth_mib=memory.growth_mib(), exits=dict(faults.exits))


async def _faults_for(faults: FaultMachine, seconds: float, traffic: Traffic) -> None:
    await faults.run(seconds, traffic.is_over)
    await faults.make_good()


async def _main(arguments: argparse.Namespace) -> SoakReport:
    with tempfile.TemporaryDirectory(prefix="headway-soak-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if not arguments.warm:
            return await soak(folder, arguments.seconds, arguments.jobs, arguments.queues, seed=arguments.seed)
        async with engine_template(folder) as template:
            return await soak(folder, arguments.seconds, arguments.jobs, arguments.queues, template, arguments.seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    seconds = float(os.environ.get("SOAK_SECONDS", "300"))
    parser.add_argument("--seconds", type=float, default=seconds, help="of faults; by default SOAK_SECONDS, else 300")
    parser.add_argument("--jobs", type=int, default=MIN_JOBS)
    parser.add_argument("--queues", type=int, default=2, help="one leads, the others stand by")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the faults")
    parser.add_argument("--warm", action="store_true", help="engine children from a template, for a short run")
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
    report = asyncio.run(_main(parser.parse_args()))
    for complaint in report.complaints:
        logging.error("%s", complaint)
    print(json.dumps(report.as_json()))
    sys.exit(0 if report.is_good else 1)


if __name__ == "__main__":
    main()
