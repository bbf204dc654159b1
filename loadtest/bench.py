"""`headway bench`: one workload through Headway, and through peers in turns with it, measured the same way.

Every request asks for exactly its number of output tokens, greedily, with prefix sharing off, so that all systems do
the same work. A short warm-up goes before and is not counted.

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
    floor                                 `loadtest.floor.Floor`, with ``context_tokens`` (of this workload's decodes,
                                          on average) and, by number of sequences, ``decode_step_seconds`` and
                                          ``share``: the floor of a step over its median
    machine                               CPU and its fast instructions, cores, versions, threads, load average
    runs                                  the figures of every run; those above are of the one with median throughput
    peers                                 by name: ``facts``, ``runs`` and ``ratios``: of output_tokens_per_s and of
                                          mean latencies, ours over theirs, ``{"median", "min", "max"}`` over the runs
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headway.settings import Settings
from loadtest.comparison import compare, comparison_text, median_run
from loadtest.floor import Floor, measure_floor
from loadtest.machine import describe_machine
from loadtest.peers.process import Peer, open_peer
from loadtest.recording import Recording
from loadtest.report import build_report, floor_text, to_text
from loadtest.requests import DEFAULT_WORKLOAD, Arrivals, Request, arrival_times, load_workload
from loadtest.systems import BenchError, Say, System, Target, open_target

WARM_UP = (Request(tuple(range(3, 19)), num_output_tokens=4, gap=0.0),) * 4
"""Enough for what is set up on first use: threads, allocations, the log's first writes."""
NUM_COMPARED_RUNS = 3


@dataclass(frozen=True, slots=True)
class BenchOptions:
    target: Target = Target.ENGINE
    workload: Path = DEFAULT_WORKLOAD
    arrivals: Arrivals = Arrivals.BURST
    rate: float | None = None
    """Requests per second, for Poisson arrivals."""
    peers: tuple[Peer, ...] = ()
    num_runs: int | None = None
    """Of each system; none: one, or three with peers."""


def bench(options: BenchOptions, settings: Settings, say: Say) -> dict[str, Any]:
    """The report. Raises ``HeadwayError`` for what cannot be run."""
    requests = load_workload(options.workload)
    due_at = arrival_times(requests, options.arrivals, options.rate)
    say("measuring what this machine can do")
    measured = measure_floor(settings.engine)
    with ExitStack() as stack:
        systems: dict[str, System] = {"headway": stack.enter_context(open_target(options.target, settings, say))}
        for peer in options.peers:
            say(f"starting {peer}")
            systems[peer] = stack.enter_context(open_peer(peer, measured.model_source, settings.engine))
        runs = _take_turns(systems, requests, due_at, options.num_runs or _default_runs(options), say)
        facts = {peer: getattr(systems[peer], "facts", {}) for peer in options.peers}
    return {
        **_what_was_run(options, settings),
        **median_run(runs["headway"]),
        "floor": _floor_report(measured.floor, requests, median_run(runs["headway"])),
        "machine": _machine(settings),
        "runs": runs["headway"],
        "peers": {
            peer: {"facts": facts[peer], "runs": runs[peer], "ratios": compare(runs["headway"], runs[peer])}
            for peer in options.peers
        },
    }


def report_text(report: dict[str, Any]) -> str:
    peers = (comparison_text(peer, of_peer["ratios"]) for peer, of_peer in report["peers"].items())
    return "\n".join([to_text(report), floor_text(report["floor"]), *peers])


def is_complete(report: dict[str, Any]) -> bool:
    """Whether every run of every system did all of the work."""
    of_peers = [run for of_peer in report["peers"].values() for run in of_peer["runs"]]
    return all(run["num_completed"] == run["num_requests"] for run in (*report["runs"], *of_peers))


def _take_turns(
    systems: dict[str, System], requests: Sequence[Request], due_at: Sequence[float], num_runs: int, say: Say
) -> dict[str, list[dict[str, Any]]]:
    for system in systems.values():
        system.run(WARM_UP, [0.0] * len(WARM_UP))
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in systems}
    for number in range(num_runs):
        for name, system in systems.items():
            report = _summed_up(system.run(requests, due_at))
            runs[name].append(report)
            say(f"run {number + 1} of {num_runs}: {name} {report['output_tokens_per_s']:.1f} output tokens/s")
    return runs


def _summed_up(recording: Recording) -> dict[str, Any]:
    if not recording.timelines:
        raise BenchError("the workload has no requests")
    return build_report(recording)


def _default_runs(options: BenchOptions) -> int:
    return NUM_COMPARED_RUNS if options.peers else 1


def _floor_report(floor: Floor, requests: Sequence[Request], run: Any) -> dict[str, Any]:
    context = mean_context_tokens(requests)
    least = {size: floor.decode_step_seconds(int(size), context) for size in run["step_seconds"]}
    share = {size: least[size] / summary["p50"] for size, summary in run["step_seconds"].items()}
    return {**asdict(floor), "context_tokens": context, "decode_step_seconds": least, "share": share}


def mean_context_tokens(requests: Sequence[Request]) -> float:
    """Of all decodes of a workload: each output token of a request sees its prompt and, on average, half its output."""
    num_decodes = sum(request.num_output_tokens for request in requests)
    contexts = (
        request.num_output_tokens * (len(request.prompt_token_ids) + request.num_output_tokens / 2)
        for request in requests
    )
    return sum(contexts) / num_decodes if num_decodes else 0.0


def _what_was_run(options: BenchOptions, settings: Settings) -> dict[str, Any]:
    return {
        "target": options.target,
        "arrivals": options.arrivals,
        "rate": options.rate,
        "workload": options.workload.name,
        "model": settings.engine.model,
        "batching": settings.scheduler.batching,
    }


def _machine(settings: Settings) -> dict[str, object]:
    facts = describe_machine()
    return {**facts, "num_threads": settings.engine.num_threads or facts["num_cores"]}


def write_report(report: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(report, indent=1) + "\n")


def say(stage: str) -> None:
    print(stage, file=sys.stderr, flush=True)
