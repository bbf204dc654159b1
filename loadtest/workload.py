"""Run a workload through Headway and measure it.

    python -m loadtest.workload --target engine --json out.json
    python -m loadtest.workload --target nats --arrivals poisson --rate 1.5

Every request asks for exactly its number of output tokens, greedily, with prefix sharing off, so that all systems do
the same work. Settings come from ``HEADWAY_…`` variables as everywhere; a short warm-up goes before and is not counted.

The JSON is one object. A summary is ``{"mean", "p50", "p90", "p99"}`` in seconds, or null where nothing was measured.

    target, arrivals, rate, workload, model, batching   what was run
    num_requests, num_completed           completed: ended by length with exactly the tokens that were asked for
    num_output_tokens, duration_seconds   of all requests; from the first one's arrival to the last one's end
    output_tokens_per_s                   the quotient
    ttft_seconds, tpot_seconds            summaries over requests: time to first token; mean time per token after it
    e2e_seconds                           from arrival to end
    step_seconds                          of steps that only decode, by number of sequences ("1", "2", …): summaries
                                          with ``num_steps``
    prefill_step_seconds                  the same of all steps with prompt tokens in them
    schedule_seconds                      the part of each step that decides it
    num_steps, num_prefill_tokens
    slot_utilisation                      share of the batch's slots, over all steps, that computed something
    num_preemptions, num_recomputed_tokens
    cpu_seconds                           by process, during the run; "headway" is queue, worker and load generator
    machine                               CPU and its fast instructions, cores, versions, threads, load average

Exits with status 1 if a request was not completed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from headway.core.errors import HeadwayError
from headway.core.scheduler_config import PrefixSharing
from headway.engine.process import child_environment
from headway.settings import Settings
from loadtest.machine import describe_machine
from loadtest.recording import Recording
from loadtest.report import build_report, to_text
from loadtest.requests import DEFAULT_WORKLOAD, Arrivals, Request, arrival_times, load_workload

ANY_PORT = "127.0.0.1:0"
WARM_UP = (Request(tuple(range(3, 19)), num_output_tokens=4, gap=0.0),) * 4
"""Enough for what is set up on first use: threads, allocations, the log's first writes."""


class Target(StrEnum):
    ENGINE = "engine"
    """The engine alone, in this process."""
    NATS = "nats"
    """The whole path: client, NATS, queue, worker, engine."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        settings = Settings.load({"prefix_sharing": PrefixSharing.OFF, "lease_listen": ANY_PORT})
        requests = load_workload(arguments.workload)
        due_at = arrival_times(requests, arguments.arrivals, arguments.rate)
        recording = run(arguments.target, settings, requests, due_at)
    except HeadwayError as exc:
        print(exc, file=sys.stderr)
        return 2
    report = {**_what_was_run(arguments, settings), **build_report(recording), "machine": _machine(settings)}
    print(to_text(report))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if len(recording.completed) == len(requests) else 1


def run(target: Target, settings: Settings, requests: Sequence[Request], due_at: Sequence[float]) -> Recording:
    if target is Target.NATS:
        return asyncio.run(_run_on_nats(settings, requests, due_at))
    os.environ.update(child_environment(settings.engine))  # before torch is imported: the same threads as in a worker
    from headway.engine.build import build_engine
    from loadtest.engine_target import run_on_engine

    engine = build_engine(settings.engine, settings.scheduler, _say)
    run_on_engine(engine, WARM_UP, [0.0] * len(WARM_UP))
    return run_on_engine(engine, requests, due_at)


async def _run_on_nats(settings: Settings, requests: Sequence[Request], due_at: Sequence[float]) -> Recording:
    from headway.roles.local import LocalRole
    from loadtest.nats_target import run_on_nats

    model = settings.engine.served_model
    with tempfile.TemporaryDirectory(prefix="headway-loadtest-") as folder:
        async with LocalRole(settings, Path(folder), on_stage=_say) as local:
            await run_on_nats(local, model, WARM_UP, [0.0] * len(WARM_UP))
            return await run_on_nats(local, model, requests, due_at)


def _what_was_run(arguments: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    return {
        "target": arguments.target,
        "arrivals": arguments.arrivals,
        "rate": arguments.rate,
        "workload": arguments.workload.name,
        "model": settings.engine.model,
        "batching": settings.scheduler.batching,
    }


def _machine(settings: Settings) -> dict[str, object]:
    facts = describe_machine()
    return {**facts, "num_threads": settings.engine.num_threads or facts["num_cores"]}


def _say(stage: str) -> None:
    print(stage, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadtest.workload", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--target", type=Target, choices=list(Target), default=Target.ENGINE)
    add("--workload", type=Path, default=DEFAULT_WORKLOAD, help="a workload file (default: the one in this package)")
    add("--arrivals", type=Arrivals, choices=list(Arrivals), default=Arrivals.BURST)
    add("--rate", type=float, help="requests per second, for --arrivals poisson")
    add("--json", type=Path, metavar="OUT", help="where to write the report")
    return parser


if __name__ == "__main__":
    sys.exit(main())
