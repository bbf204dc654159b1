"""`headway bench`: one workload through Headway, and through others in turns with it, measured the same way.

Every request asks for exactly its number of output tokens, greedily, with prefix sharing off (unless a scenario's
prompts begin alike on purpose), so that all systems do the same work. A short warm-up goes before and is not counted.

The JSON is one object. A summary is ``{"mean", "p50", "p90", "p99"}`` in seconds, or null where nothing was measured;
a ratio is Headway's figure over the other's, ``{"median", "min", "max"}`` over the rounds.

    target, arrivals, rate, load, num_clients, workload, scenario, seed, model, batching    what was run; null where it
                                          does not apply (rate and load of a burst; model of a server)
    growth, ramp_seconds                  of a ramp: what its rate or load, which are those of its start, is multiplied
                                          with by its end, and when that is; else null
    num_apart                             requests whose part of the scenario has arrivals of its own
    facts                                 what a server takes of the requests' form (`loadtest.targets.openai_dialect`)
    settings, command                     those that are not their defaults, without secrets; how it was asked
    stopped_by                            null, or why there are fewer rounds than were asked for: "interrupted", or
                                          what went wrong in the next one
    num_requests, num_completed           completed: ended by length with exactly the tokens that were asked for
    num_cancelled, num_failed, num_lost   of the others: on purpose; otherwise than asked; not at all
    finish_reasons, errors                how many requests ended in which way ("none": not at all) and with what error
    num_output_tokens, duration_seconds   of all requests; from the first one's arrival to the last one's end (or token,
                                          if it never ended)
    output_tokens_per_s                   the quotient
    ttft_seconds, tpot_seconds            summaries over completed requests: time to first token; mean time per token
                                          after it
    e2e_seconds                           from arrival to end
    inter_token_gap_seconds               between two deliveries of tokens of one request
    queue_seconds                         from when a request was due until it was granted (nats) or first scheduled
                                          (engine), of all that ever were; null where the target does not tell
    goodput                               null without an SLO; else ``slo``, ``share`` of the requests that kept it
                                          (without those that were cancelled) and ``requests_per_s`` of these
    tenants                               by name: num_requests, num_output_tokens, weight, and summaries of
                                          ttft_seconds, e2e_seconds and queue_seconds
    requests                              one object for each, in order of due time: tenant, label, due_at,
                                          queue_seconds, ttft_seconds, tpot_seconds, e2e_seconds, max_gap_seconds,
                                          num_prompt_tokens, num_output_tokens, finish_reason
    timeline                              null, or columns with an entry for each step of our engine (of so many
                                          neighbours the longest, if there were more than 2,000): seconds,
                                          num_decodes, num_prefill_tokens, num_running, num_waiting, step_seconds
    step_seconds                          of steps that only decode, by number of sequences ("1", "2", …): summaries
                                          with ``num_steps``
    prefill_step_seconds                  the same of all steps with prompt tokens in them
    schedule_seconds                      the part of each step that decides it
    num_steps, num_prefill_tokens
    slot_utilisation                      share of the slots, over all steps, that computed something: of max_num_seqs
                                          each, and with static batches of the rows that a batch began with (with fewer
                                          requests than max_num_seqs only these can be near to 1)
    num_preemptions, num_recomputed_tokens
    cpu_seconds                           by process, during the run: "engine", and for the target ``nats`` also
                                          "client", "nats-server", "queue" and "worker"; of a server "client" alone
    floor                                 `loadtest.floor.Floor`, with ``context_tokens`` (of this workload's decodes,
                                          on average) and, by number of sequences, ``decode_step_seconds`` and
                                          ``share``: the floor of a step over its median
    machine                               CPU and its fast instructions, cores, versions, threads, load average
    runs                                  the figures of every run; those above are of the one with median throughput,
                                          and only that one has ``requests`` and ``timeline``, here and of each peer
    bursts                                the same of the bursts that measured capacity, where ``load`` decided
    peers                                 by name: ``facts``, ``runs``, ``ratios`` (of output_tokens_per_s, and of mean
                                          latencies); where ``load`` decided, each at its own rate, and beside that
                                          ``bursts`` and ``same_rate`` (Headway offered what the peer was): ``runs``
                                          and ``ratios``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from headway.core.scheduler_config import Batching
from headway.settings import Settings
from headway.settings.loader import DEFAULT
from loadtest.checks import check
from loadtest.comparison import compare, comparison_text, median_run
from loadtest.floor import Floor, measure_floor
from loadtest.machine import describe_machine
from loadtest.opening import Opening, with_weights
from loadtest.options import BenchOptions
from loadtest.peers.catalogue import Opponent, Variant
from loadtest.progress import Watch, nobody
from loadtest.recording import Recording
from loadtest.report import build_report, floor_text, to_text
from loadtest.results.documents import decode_document
from loadtest.results.files import write_report
from loadtest.targets.systems import Say
from loadtest.targets.target import Target
from loadtest.turns import HEADWAY, Measured, Run, Turns
from loadtest.workloads.arrivals import Arrivals, grown
from loadtest.workloads.drawing import DEFAULT_VOCAB_SIZE
from loadtest.workloads.requests import Request, count_apart
from loadtest.workloads.workload import Workload

NUM_COMPARED_ROUNDS = 3


def bench(options: BenchOptions, settings: Settings, say: Say, watch: Watch = nobody) -> dict[str, Any]:
    """The report, written to ``json_path`` too. Raises ``HeadwayError`` for what cannot be run; what can be known
    beforehand, before anything is started."""
    check(options, settings)
    floor = None
    if options.needs_model:
        say("measuring what this machine can do")
        floor = measure_floor(settings.engine)
    workload = options.draw_workload(DEFAULT_VOCAB_SIZE if floor is None else floor.vocab_size)
    settings = with_weights(settings, workload.weights)
    model_source = None if floor is None else floor.model_source
    opening = Opening(settings, say, watch, options.timeout_seconds, model_source, workload.longest)
    with ExitStack() as stack, _said_when_interrupted(say):
        report = {
            **_what_was_run(options, workload, settings),
            **_measured(options, workload, opening, stack),
            "machine": _machine(settings),
        }
        report["floor"] = None if floor is None else _floor_report(floor.floor, workload.requests, report)
        _write(report, options)  # now: whoever does not wait for the end of all that was started loses nothing
    return report


def _measured(options: BenchOptions, workload: Workload, opening: Opening, stack: ExitStack) -> dict[str, Any]:
    """Everything is started; ``stack`` ends it."""
    systems = opening.open_all(stack, dict(zip((HEADWAY, *options.opponents), options.systems, strict=True)))
    turns = Turns(
        systems,
        workload.requests,
        workload.schedule,
        opening.say,
        summarise=_summarise(workload, opening.settings),
        title=options.title,
        rotates=workload.shares_prefixes,
    )
    measured = turns.take(options.num_rounds or _default_rounds(options)).with_few_details()
    return {
        **median_run(measured.runs[HEADWAY]),
        "stopped_by": measured.stopped_by,
        "facts": measured.facts[HEADWAY],
        "runs": measured.runs[HEADWAY],
        "bursts": measured.bursts.get(HEADWAY, []),
        "peers": {name: _compared(name, measured, opponent) for name, opponent in options.opponents.items()},
    }


def report_text(report: Mapping[str, Any]) -> str:
    floor = [floor_text(report["floor"])] if report["floor"] else []
    return "\n".join([to_text(report), *floor, *_comparisons(report), *_shortfalls(report)])


def is_complete(report: Mapping[str, Any]) -> bool:
    """Whether every run of every system did all of the work, but for what was cancelled on purpose."""
    return not any(map(_num_missing, _all_runs(report)))


def _num_missing(run: Run) -> int:
    return int(run["num_requests"] - run["num_completed"] - run["num_cancelled"])


def _shortfalls(report: Mapping[str, Any]) -> Iterator[str]:
    """Of all runs; the figures above are of one, in which nothing may be missing."""
    runs = list(_all_runs(report))
    if not is_complete(report):
        num_short = sum(_num_missing(run) > 0 for run in runs)
        yield f"not all of the work was done: {num_short} of {len(runs)} runs, {sum(map(_num_missing, runs))} requests"


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


def _write(report: Mapping[str, Any], options: BenchOptions) -> None:
    if options.json_path is not None:
        write_report(options.json_path, json.dumps(report, indent=1) + "\n")
    if options.html_path is not None:
        _write_page(report, options.html_path)


def _write_page(report: Mapping[str, Any], path: Path) -> None:
    """Read back from its JSON, as that of a file is."""
    from loadtest.page.write import write_page  # matplotlib takes a second to import

    write_page({path.stem: decode_document(json.dumps(report).encode(), path)}, path)


def _summarise(workload: Workload, settings: Settings) -> Callable[[Recording], Run]:
    weights = {request.tenant: settings.queue.weight(request.tenant) for request in workload.requests}
    return partial(build_report, slo=workload.slo, weights=weights)


def _default_rounds(options: BenchOptions) -> int:
    return NUM_COMPARED_ROUNDS if options.opponents else 1


def _compared(name: str, measured: Measured, opponent: Opponent) -> dict[str, Any]:
    def beside(ours: Sequence[Run], theirs: Sequence[Run]) -> dict[str, Any]:
        return {"runs": theirs, "ratios": compare(ours, theirs)}

    theirs = measured.runs[name]
    changes = {"settings": dict(opponent.changes)} if isinstance(opponent, Variant) else {}
    report = {"facts": {**measured.facts[name], **changes}, **beside(measured.runs[HEADWAY], theirs)}
    if measured.bursts:
        report["bursts"] = beside(measured.bursts[HEADWAY], measured.bursts[name])
        ours = measured.at_their_rate[name]
        report["same_rate"] = {"runs": ours, "ratios": compare(ours, theirs)}
    return report


def _comparisons(report: Mapping[str, Any]) -> Iterator[str]:
    ours = report["facts"].get("name", HEADWAY)
    for name, peer in report["peers"].items():
        if "bursts" not in peer:
            yield comparison_text(name, peer["ratios"], ours)
            continue
        yield comparison_text(f"{name}, all at once", peer["bursts"]["ratios"], ours)
        load = grown(report["load"], report["growth"], "{:.0%}")
        yield comparison_text(f"{name}, each at {load} of its own capacity", peer["ratios"], ours)
        yield comparison_text(f"{name}, both at {load} of {name}'s", peer["same_rate"]["ratios"], ours)


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


def _what_was_run(options: BenchOptions, workload: Workload, settings: Settings) -> dict[str, Any]:
    schedule = workload.schedule
    is_static = options.target is Target.STATIC
    return {
        "target": options.target,
        "arrivals": schedule.arrivals,
        "load": schedule.load if schedule.measures_capacity else None,
        "num_clients": schedule.num_clients if schedule.arrivals is Arrivals.CLOSED else None,
        "growth": schedule.growth if schedule.arrivals is Arrivals.RAMP else None,
        "ramp_seconds": schedule.ramp_seconds if schedule.arrivals is Arrivals.RAMP else None,
        "num_apart": 0 if schedule.arrivals is Arrivals.TRACE else count_apart(workload.requests),
        "workload": workload.name,
        "scenario": workload.scenario,
        "seed": workload.seed,
        "model": settings.engine.model if options.needs_model else None,
        "batching": Batching.STATIC if is_static else settings.scheduler.batching,
        "settings": _changed(settings),
        "command": options.command,
    }


def _changed(settings: Settings) -> dict[str, Any]:
    """Those that are not their defaults, but for what stands beside them."""
    given = (each for each in settings.describe() if each.source != DEFAULT)
    return {each.setting.name: each.shown for each in given if each.setting.name not in ("model", "batching")}


def _machine(settings: Settings) -> dict[str, object]:
    facts = describe_machine()
    return {**facts, "num_threads": settings.engine.num_threads or facts["num_cores"]}
