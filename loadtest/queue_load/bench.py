"""`headway bench --target queue`: the queue with many jobs waiting, measured for each policy and number of them.

The JSON is one object. A summary is ``{"mean", "p50", "p90", "p99"}`` in seconds.

    target                            "queue"
    options                           `QueueLoad`: what was run
    stopped_by                        null, or why not all was measured: "interrupted", or what went wrong
    machine                           CPU, cores, versions, load average
    policies                          by policy, by number of waiting jobs, what `parts` were measured:
      core                            the state machine alone: ``adds_per_s``, ``grants_and_settlements_per_s`` and
                                      ``decision_seconds``, a summary
      intake                          the queue process reads a full stream: ``num_jobs``, ``seconds``, ``jobs_per_s``,
                                      ``payload_bytes_held``, ``bytes_per_job_beyond_payload`` (resident memory beyond
                                      that of an empty queue and the payloads held)
      serve, records                  by number of workers:
        num_jobs, num_grants          settled; granted
        ended_per_s                   until the workers had told the last end
        settled_per_s                 until the last job was out of the stream
        grant_seconds                 summary: from when a worker wanted a job until it had it, with all workers busy
        alone_grant_seconds           the same of one worker that wants one job at a time
        decision_seconds              summary: the leader's decision, per grant
        cpu_seconds                   by process: "queue", "nats-server", "workers"
        queue_cpu_seconds_per_job
    growth                            by policy and figure (a cost): ``ratio`` from the least to the most waiting jobs,
                                      ``exponent`` of the power of n that it grows with, and ``of_log_n``: that of log n
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import product
from typing import Any

from headway.core.errors import HeadwayError
from headway.core.queue_config import QueuePolicy
from headway.settings import Settings
from loadtest.errors import reason
from loadtest.machine import describe_machine
from loadtest.queue_load.core_part import measure_core
from loadtest.queue_load.measure import measure
from loadtest.queue_load.options import Part, QueueLoad
from loadtest.queue_load.summaries import at, growth
from loadtest.results.files import check_writable, write_report

Found = dict[str, Any]


def bench_queue(options: QueueLoad, settings: Settings, say: Callable[[str], None]) -> Found:
    """The report, written to ``json_path`` too. Raises ``HeadwayError``."""
    if options.json_path is not None:
        check_writable(options.json_path)
    measured = _measure_all(options, settings, say)
    report = {
        "target": "queue",
        "options": {**asdict(options), "json_path": None if options.json_path is None else str(options.json_path)},
        "machine": describe_machine(),
        **measured,
        "growth": {policy: _growth(options, by_size) for policy, by_size in measured["policies"].items()},
    }
    if options.json_path is not None:
        write_report(options.json_path, json.dumps(report, indent=1) + "\n")
    return report


def _measure_all(options: QueueLoad, settings: Settings, say: Callable[[str], None]) -> Found:
    """``policies``, and ``stopped_by``. What is whole counts, whatever becomes of the next."""
    policies: dict[str, Found] = {}
    for policy, size in product(options.policies, options.sizes):
        try:
            found = _measure(options, settings, policy, size, say)
        except (KeyboardInterrupt, HeadwayError) as stop:
            if not policies:
                raise
            say(f"{policy} with {size} waiting does not count: {reason(stop)}")
            return {"policies": policies, "stopped_by": reason(stop)}
        policies.setdefault(policy.value, {})[str(size)] = found
    return {"policies": policies, "stopped_by": None}


def _measure(
    options: QueueLoad, settings: Settings, policy: QueuePolicy, num_waiting: int, say: Callable[[str], None]
) -> Found:
    found: Found = {}
    if Part.CORE in options.parts:
        say(f"{policy}, {num_waiting} waiting: the state machine alone")
        found["core"] = measure_core(options, replace(settings.queue, policy=policy), num_waiting)
    if set(options.parts) - {Part.CORE}:
        found |= measure(options, settings, policy, num_waiting, say)
    return found


def _growth(options: QueueLoad, by_size: Found) -> Found:
    grown = {}
    for path in ["core/decision_seconds/mean", "intake/seconds_per_job", *_served_costs(options)]:
        costs = {size: cost for size in options.sizes if (cost := at(by_size, f"{size}/{path}")) is not None}
        if costs and (growing := growth(costs)) is not None:
            grown[path] = growing
    return grown


def _served_costs(options: QueueLoad) -> list[str]:
    return [
        f"{part}/{number}/{cost}"
        for part in (Part.SERVE, Part.RECORDS)
        for number in options.num_workers
        for cost in ("decision_seconds/mean", "queue_cpu_seconds_per_job")
    ]
