"""`headway bench`: one workload through Headway, and through others in turns with it, measured the same way.

Every request asks for exactly its number of output tokens, greedily, with prefix sharing off, so that all systems do
the same work. A short warm-up goes before and is not counted.

The JSON is one object. A summary is ``{"mean", "p50", "p90", "p99"}`` in seconds, or null where nothing was measured;
a ratio is Headway's figure over the other's, ``{"median", "min", "max"}`` over the rounds.

    target, arrivals, rate, load, workload, model, batching    what was run; rate and load are null for a burst
    num_requests, num_completed           completed: ended by length with exactly the tokens that were asked for
    finish_reasons                        how many requests ended in which way; "none": not at all
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
    cpu_seconds                           by process, during the run: "engine", and for the target ``nats`` also
                                          "client", "nats-server", "queue" and "worker"
    floor                                 `loadtest.floor.Floor`, with ``context_tokens`` (of this workload's decodes,
                                          on average) and, by number of sequences, ``decode_step_seconds`` and
                                          ``share``: the floor of a step over its median
    machine                               CPU and its fast instructions, cores, versions, threads, load average
    runs                                  the figures of every run; those above are of the one with median throughput
    bursts                                the same of the bursts that measured capacity, where ``load`` decided
    peers                                 by name: ``facts``, ``runs``, ``ratios`` (of output_tokens_per_s, and of mean
                                          latencies); where ``load`` decided, each at its own rate, and beside that
                                          ``bursts`` and ``same_rate`` (Headway offered what the peer was): ``runs``
                                          and ``ratios``
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headway.settings import Settings
from loadtest.comparison import compare, comparison_text, median_run
from loadtest.errors import BenchError
from loadtest.floor import Floor, measure_floor
from loadtest.machine import describe_machine
from loadtest.peers.catalogue import Opponent, Peer
from loadtest.peers.process import open_peer
from loadtest.report import floor_text, to_text
from loadtest.targets.systems import Say, System, check_target, open_target
from loadtest.targets.target import Target
from loadtest.turns import HEADWAY, Measured, Run, Schedule, Turns
from loadtest.workloads.requests import DEFAULT_WORKLOAD, Request, load_workload

WARM_UP = (Request(tuple(range(3, 19)), num_output_tokens=4, gap=0.0),) * 4
"""Enough for what is set up on first use: threads, allocations, the log's first writes."""
NUM_COMPARED_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class BenchOptions:
    target: Target = Target.ENGINE
    workload: Path = DEFAULT_WORKLOAD
    schedule: Schedule = field(default_factory=Schedule)
    opponents: Mapping[str, Opponent] = field(default_factory=dict)
    """By the name under which they are reported."""
    num_rounds: int | None = None
    """None: one, or three with opponents."""
    json_path: Path | None = None
    """Where the report shall go."""


def bench(options: BenchOptions, settings: Settings, say: Say) -> dict[str, Any]:
    """The report, written to ``json_path`` too. Raises ``HeadwayError`` for what cannot be run; what can be known
    beforehand, before anything is started."""
    requests = load_workload(options.workload)
    _check(options)
    say("measuring what this machine can do")
    floor = measure_floor(settings.engine)
    with ExitStack() as stack, _said_when_interrupted(say):
        systems: dict[str, System] = {HEADWAY: stack.enter_context(open_target(options.target, settings, say))}
        for name, opponent in options.opponents.items():
            say(f"starting {name}")
            systems[name] = stack.enter_context(_open(opponent, floor.model_source, settings, say))
        for system in systems.values():
            system.run(WARM_UP, [0.0] * len(WARM_UP))
        measured = Turns(systems, requests, options.schedule, say).take(options.num_rounds or _default_rounds(options))
        facts = {name: getattr(systems[name], "facts", {}) for name in options.opponents}
    report = {
        **_what_was_run(options, settings),
        **median_run(measured.runs[HEADWAY]),
        "floor": _floor_report(floor.floor, requests, median_run(measured.runs[HEADWAY])),
        "machine": _machine(settings),
        "runs": measured.runs[HEADWAY],
        "bursts": measured.bursts.get(HEADWAY, []),
        "peers": {name: {"facts": facts[name], **_compared(name, measured)} for name in options.opponents},
    }
    if options.json_path is not None:
        options.json_path.write_text(json.dumps(report, indent=1) + "\n")
    return report


def report_text(report: Mapping[str, Any]) -> str:
    return "\n".join([to_text(report), floor_text(report["floor"]), *_comparisons(report)])


def is_complete(report: Mapping[str, Any]) -> bool:
    """Whether every run of every system did all of the work."""
    return all(run["num_completed"] == run["num_requests"] for run in _all_runs(report))


def mean_context_tokens(requests: Sequence[Request]) -> float:
    """Of all decodes of a workload: each output token of a request sees its prompt and, on average, half its output."""
    num_decodes = sum(request.num_output_tokens for request in requests)
    contexts = (
        request.num_output_tokens * (len(request.prompt_token_ids) + request.num_output_tokens / 2)
        for request in requests
    )
    return sum(contexts) / num_decodes if num_decodes else 0.0


@contextmanager
def _said_when_interrupted(say: Say) -> Iterator[None]:
    """Ending all that was started takes some seconds."""
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted; ending what was started")
        raise


def say(stage: str) -> None:
    print(stage, file=sys.stderr, flush=True)


def _check(options: BenchOptions) -> None:
    """What would otherwise only be found after minutes. Raises ``HeadwayError``."""
    check_target(options.target)
    for opponent in options.opponents.values():
        if opponent is options.target:
            raise BenchError(f"{options.target} cannot be compared with itself")
        if isinstance(opponent, Peer):
            opponent.check()
        else:
            check_target(opponent)
    if options.json_path is not None:
        _check_writable(options.json_path)


def _check_writable(path: Path) -> None:
    """Raises `BenchError`; leaves nothing behind."""
    try:
        if path.exists():
            path.open("r+b").close()
        else:
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as exc:
        raise BenchError(f"the report cannot be written to {path}: {exc.strerror}") from exc


def _open(opponent: Opponent, model_source: str, settings: Settings, say: Say) -> AbstractContextManager[System]:
    if isinstance(opponent, Peer):
        return open_peer(opponent, model_source, settings.engine)
    return open_target(opponent, settings, say)


def _default_rounds(options: BenchOptions) -> int:
    return NUM_COMPARED_ROUNDS if options.opponents else 1


def _compared(name: str, measured: Measured) -> dict[str, Any]:
    def beside(ours: Sequence[Run], theirs: Sequence[Run]) -> dict[str, Any]:
        return {"runs": theirs, "ratios": compare(ours, theirs)}

    theirs = measured.runs[name]
    report = beside(measured.runs[HEADWAY], theirs)
    if measured.bursts:
        report["bursts"] = beside(measured.bursts[HEADWAY], measured.bursts[name])
        ours = measured.at_their_rate[name]
        report["same_rate"] = {"runs": ours, "ratios": compare(ours, theirs)}
    return report


def _comparisons(report: Mapping[str, Any]) -> Iterator[str]:
    for name, peer in report["peers"].items():
        if "bursts" not in peer:
            yield comparison_text(name, peer["ratios"])
            continue
        yield comparison_text(f"{name}, all at once", peer["bursts"]["ratios"])
        yield comparison_text(f"{name}, each at {report['load']:.0%} of its own capacity", peer["ratios"])
        yield comparison_text(f"{name}, both at {report['load']:.0%} of {name}'s", peer["same_rate"]["ratios"])


def _all_runs(report: Mapping[str, Any]) -> Iterator[Run]:
    yield from report["runs"]
    yield from report["bursts"]
    for peer in report["peers"].values():
        yield from peer["runs"]
        for part in ("bursts", "same_rate"):
            yield from peer.get(part, {"runs": ()})["runs"]


def _floor_report(floor: Floor, requests: Sequence[Request], run: Mapping[str, Any]) -> dict[str, Any]:
    context = mean_context_tokens(requests)
    least = {size: floor.decode_step_seconds(int(size), context) for size in run["step_seconds"]}
    share = {size: least[size] / summary["p50"] for size, summary in run["step_seconds"].items()}
    return {**asdict(floor), "context_tokens": context, "decode_step_seconds": least, "share": share}


def _what_was_run(options: BenchOptions, settings: Settings) -> dict[str, Any]:
    return {
        "target": options.target,
        "arrivals": options.schedule.arrivals,
        "load": options.schedule.load if options.schedule.measures_capacity else None,
        "workload": options.workload.name,
        "model": settings.engine.model,
        "batching": settings.scheduler.batching,
    }


def _machine(settings: Settings) -> dict[str, object]:
    facts = describe_machine()
    return {**facts, "num_threads": settings.engine.num_threads or facts["num_cores"]}
