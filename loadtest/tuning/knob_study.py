"""What each setting of the scheduler does: `python -m loadtest.tuning.knob_study --json docs/tuning.json`.

Sweeps over one setting at a time, each point a stress (`loadtest.tuning.stress`) of one engine that stays loaded. The
points take turns, round by round, so that a machine that drifts does so for all of them. Then the long prompt
(`loadtest.tuning.long_prompt`). Some 20 minutes on two cores, with nothing else running; ``--only`` measures again what
it names and keeps the rest of the file. ``docs/tuning.py`` makes tables and plots of it:

    machine, num_rounds, run_seconds
    sweeps          by name: ``setting``, ``workload``, and ``points``, each with the ``value`` of the setting, all
                    ``settings``, and ``runs``: `loadtest.tuning.knobs.Run`, one per round
    long_prompt     the report of `loadtest.tuning.long_prompt`
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headway.core.scheduler_config import PrefixSharing, SchedulerConfig
from headway.settings import Settings
from loadtest.machine import describe_machine
from loadtest.targets.engine_child import EngineAlone, open_engine
from loadtest.tuning import long_prompt
from loadtest.tuning.knobs import Goal, Knobs
from loadtest.tuning.stress import stress
from loadtest.workloads.requests import Request, load_workload

LONG_PROMPT = "long_prompt"
"""The study's name beside those of the sweeps."""
GOAL = Goal(tpot_seconds=0.1)
"""Only its share counts here: of the requests whose latencies are told."""
NUM_REQUESTS = 64
DEFAULT = Knobs(max_num_seqs=64, max_num_batched_tokens=512, max_prefill_chunk=128)
"""Of a worker on a CPU."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Of a workload's requests, drawn evenly between these bounds."""

    least_prompt: int
    most_prompt: int
    least_output: int
    most_output: int

    def requests(self, share_of_long: float = 0.0, long_prompt: int = 0) -> list[Request]:
        """``share_of_long`` of them have a prompt of ``long_prompt`` tokens."""
        rng = random.Random(1)
        requests = []
        for _ in range(NUM_REQUESTS):
            num_prompt = rng.randint(self.least_prompt, self.most_prompt)
            if rng.random() < share_of_long:
                num_prompt = long_prompt
            prompt = tuple(rng.randrange(1000, 30_000) for _ in range(num_prompt))
            requests.append(Request(prompt, rng.randint(self.least_output, self.most_output)))
        return requests


def workloads() -> dict[str, Sequence[Request]]:
    return {
        "default": load_workload(),
        "long prompts, short answers": Lengths(384, 640, 8, 24).requests(),
        "short prompts, long answers": Lengths(8, 24, 192, 320).requests(),
        "chat with some documents": Lengths(16, 64, 32, 96).requests(share_of_long=0.2, long_prompt=1024),
    }


@dataclass(frozen=True, slots=True)
class Point:
    value: float | str
    """Of the setting, or the name of the settings."""
    knobs: Knobs


@dataclass(frozen=True, slots=True)
class Sweep:
    setting: str
    workload: str
    points: Sequence[Point]
    times_as_long: float = 1.0
    """As the effort says, each of its stresses is measured."""


def sweeps() -> dict[str, Sweep]:
    long, short, mixed = list(workloads())[1:]
    tokens = (32, 64, 128, 256, 512, 1024, 2048)
    return {
        "batch": Sweep("max_num_seqs", "default", [_seqs(n) for n in (1, 2, 4, 8, 16, 32, 64)]),
        "tokens, long prompts": Sweep("max_num_batched_tokens", long, [_tokens(16, n) for n in tokens]),
        "tokens, all decoding": Sweep("max_num_batched_tokens", short, [_tokens(16, n) for n in tokens]),
        "tokens, two sequences": Sweep("max_num_batched_tokens", "default", [_tokens(2, n) for n in tokens]),
        "chunk": Sweep("max_prefill_chunk", mixed, [_chunk(n) for n in (16, 32, 64, 128, 256, 512)]),
        "recipe, long prompts": _recipe(long, Knobs(8, 512, 512)),
        "recipe, long answers": _recipe(short, Knobs(128, 512, 128)),
        "recipe, strict latency": _recipe(mixed, Knobs(8, 128, 64)),
    }


def _seqs(num_seqs: int) -> Point:
    return Point(num_seqs, replace(DEFAULT, max_num_seqs=num_seqs))


def _tokens(num_seqs: int, num_tokens: int) -> Point:
    """No cap for a prompt beside the step's."""
    return Point(num_tokens, Knobs(num_seqs, num_tokens, num_tokens))


def _chunk(num_tokens: int) -> Point:
    return Point(num_tokens, Knobs(16, 512, num_tokens))


def _recipe(workload: str, knobs: Knobs) -> Sweep:
    """Longer than others: the default settings may run so many sequences that none has a second token for seconds."""
    return Sweep("recipe", workload, [Point("default", DEFAULT), Point("recipe", knobs)], times_as_long=4.0)


@dataclass(frozen=True, slots=True)
class Effort:
    """How long each point is measured."""

    num_rounds: int = 3
    run_seconds: float = 4.0


DEFAULT_EFFORT = Effort()


def measure(engine: EngineAlone, names: Sequence[str], effort: Effort) -> Iterator[dict[str, Any]]:
    """Points of all these sweeps in turns; what is known of them after each sweep of each round."""
    chosen = {name: sweep for name, sweep in sweeps().items() if name in names}
    requests = workloads()
    runs: dict[tuple[str, float | str], list[dict[str, Any]]] = {}
    for number in range(1, effort.num_rounds + 1):
        for name, sweep in chosen.items():
            for point in sweep.points:
                config = point.knobs.apply(SchedulerConfig(prefix_sharing=PrefixSharing.OFF))
                seconds = effort.run_seconds * sweep.times_as_long
                run = engine.call(stress, config, requests[sweep.workload], GOAL, seconds)
                runs.setdefault((name, point.value), []).append(asdict(run))
                say(f"round {number}: {name}, {point.value}: {run.output_tokens_per_s:.1f} output tokens/s")
            measured = {key for key, _ in runs}
            yield {key: _as_dict(key, chosen[key], runs) for key in chosen if key in measured}


def _as_dict(name: str, sweep: Sweep, runs: dict[tuple[str, float | str], list[dict[str, Any]]]) -> dict[str, Any]:
    points = [
        {"value": point.value, "settings": point.knobs.settings, "runs": runs[name, point.value]}
        for point in sweep.points
    ]
    return {"setting": sweep.setting, "workload": sweep.workload, "points": points}


def study(names: Sequence[str], effort: Effort) -> Iterator[dict[str, Any]]:
    """What is known by then, again and again."""
    head = {"machine": describe_machine(), **asdict(effort)}
    settings = Settings.load({})
    if any(name != LONG_PROMPT for name in names):
        with open_engine(settings.engine, settings.scheduler, say) as engine:
            engine.call(stress, settings.scheduler, workloads()["default"], GOAL, 1.0)
            for measured in measure(engine, names, effort):
                yield {**head, "sweeps": measured}
    if LONG_PROMPT in names:
        yield {**head, LONG_PROMPT: long_prompt.study(effort.num_rounds)}


def merged(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What was measured now in the place of what was before; the rest stays."""
    return {**before, **now, "sweeps": {**before.get("sweeps", {}), **now.get("sweeps", {})}}


def all_names() -> Iterator[str]:
    yield from sweeps()
    yield LONG_PROMPT


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    names = list(all_names())
    parser = argparse.ArgumentParser(description="What each setting of the scheduler does to throughput and latencies.")
    parser.add_argument("--json", type=Path, required=True, metavar="OUT", help="where to write what was measured")
    parser.add_argument("--rounds", type=int, default=DEFAULT_EFFORT.num_rounds, help="default: %(default)s")
    parser.add_argument(
        "--run-seconds", type=float, default=DEFAULT_EFFORT.run_seconds, help="of each stress; default: %(default)s"
    )
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    arguments = parser.parse_args()
    report = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
    for measured in study(arguments.only, Effort(arguments.rounds, arguments.run_seconds)):
        report = merged(report, measured)
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
