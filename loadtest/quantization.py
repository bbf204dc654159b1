"""What int8 weights cost in quality and gain in time: `python -m loadtest.quantization`.

Both models are loaded into this process, and take turns. Three kinds of text, each read at every position by both:

    text      files, docs/guarantees.md unless others are named, in pieces of 512 tokens
    prompts   of the workload
    answers   the first tokens of what the model as it is says to those prompts, greedily: where differences would show

The JSON is one object:

    model, machine, texts            what was run; the texts by path, as SHA-256 of their content
    weight_bytes                     of all the model's tensors, ``off`` and ``int8``
    quality                          by kind of text: ``num_predictions``; ``perplexity``, ``off`` and ``int8``;
                                     ``agreement``, the share of positions where both pick the same token;
                                     ``divergence``, the mean Kullback-Leibler divergence in nats
    decode_step_seconds              by number of sequences: ``off`` and ``int8``, the medians of each round's steps,
                                     and ``ratio``, int8 over off within a round: ``{"median", "min", "max"}``
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from headway.commands.statuses import status_of
from headway.core.errors import HeadwayError
from headway.core.scheduler_config import PrefixSharing, SchedulerConfig
from headway.engine.config import EngineConfig, Quantization
from headway.engine.process import child_environment
from loadtest.comparison import spread
from loadtest.errors import BenchError
from loadtest.machine import describe_machine
from loadtest.quality_options import engine_config, options_parser, say
from loadtest.workloads.requests import Request, load_workload

if TYPE_CHECKING:
    from headway.engine.engine import Engine
    from headway.engine.load import LoadedModel
    from loadtest.quality import Quality

PROMPT = 64
STEPS = 40
"""Of decodes that are timed: after a prompt of that length, so many output tokens per sequence."""
ROUNDS = 3


def measure(config: EngineConfig, texts: Sequence[Path], sizes: Sequence[int]) -> dict[str, Any]:
    """The report. Raises ``HeadwayError``."""
    from headway.engine.build import assemble
    from headway.engine.linears import weight_bytes
    from headway.engine.load import load_model

    models = {kind: load_model(replace(config, quantization=kind), say) for kind in Quantization}
    scheduling = SchedulerConfig(max_num_seqs=max([64, *sizes]), prefix_sharing=PrefixSharing.OFF)
    engines = {kind: assemble(loaded, config, scheduling, say) for kind, loaded in models.items()}
    return {
        "model": config.model,
        "machine": describe_machine(),
        "texts": {str(text): hashlib.sha256(text.read_bytes()).hexdigest() for text in texts},
        "weight_bytes": {kind: weight_bytes(loaded.model) for kind, loaded in models.items()},
        "quality": _qualities(models, engines[Quantization.OFF], texts),
        "decode_step_seconds": {str(size): _decode_steps(engines, size) for size in sizes},
    }


def _qualities(
    models: Mapping[Quantization, LoadedModel], plain_engine: Engine, texts: Sequence[Path]
) -> dict[str, dict[str, Any]]:
    from loadtest.quality import measure_quality, passages_of

    qualities = {}
    for name, some in passages_of(plain_engine, models[Quantization.OFF].tokenizer, texts).items():
        say(f"reading the {name}")
        qualities[name] = _as_json(measure_quality(models[Quantization.OFF], models[Quantization.INT8], some))
    return qualities


def _as_json(quality: Quality) -> dict[str, Any]:
    return {
        "num_predictions": quality.num_predictions,
        "perplexity": {Quantization.OFF: quality.plain_perplexity, Quantization.INT8: quality.perplexity},
        "agreement": quality.agreement,
        "divergence": quality.divergence,
    }


def _decode_steps(engines: Mapping[Quantization, Engine], size: int) -> dict[str, Any]:
    from loadtest.report import build_report
    from loadtest.targets.engine_target import run_on_engine

    say(f"steps of {size} sequences")
    words = load_workload()[0].prompt_token_ids
    requests = [Request((words * PROMPT)[:PROMPT], STEPS, gap=0.0)] * size
    seconds: dict[str, list[float]] = {kind: [] for kind in engines}
    for round_number in range(ROUNDS + 1):
        for kind, engine in engines.items():
            report = build_report(run_on_engine(engine, requests, [0.0] * size))
            if str(size) not in report["step_seconds"]:
                raise BenchError(f"{size} sequences of {PROMPT + STEPS} tokens never ran together")
            if round_number > 0:  # the first one warms up
                seconds[kind].append(report["step_seconds"][str(size)]["p50"])
    pairs = zip(seconds[Quantization.INT8], seconds[Quantization.OFF], strict=True)
    return {**seconds, "ratio": spread([ours / plain for ours, plain in pairs])}


def report_text(report: Mapping[str, Any]) -> str:
    size = report["weight_bytes"]
    lines = [f"weights: off {size['off'] / 1e6:.0f} MB, int8 {size['int8'] / 1e6:.0f} MB"]
    lines.append(f"{'':10}{'tokens':>8}{'ppl off':>10}{'int8':>10}{'agreement':>12}{'divergence':>12}")
    for name, of_name in report["quality"].items():
        plain, ours = of_name["perplexity"].values()
        lines.append(
            f"{name:10}{of_name['num_predictions']:8}{plain:10.3f}{ours:10.3f}{of_name['agreement']:12.2%}"
            f"{of_name['divergence']:12.4f}"
        )
    lines.append(f"{'sequences':10}{'off ms':>8}{'int8 ms':>10}{'ratio':>10}")
    for number, times in report["decode_step_seconds"].items():
        plain, ours = median(times["off"]) * 1000, median(times["int8"]) * 1000
        ratio = times["ratio"]
        lines.append(
            f"{number:10}{plain:8.1f}{ours:10.1f}{ratio['median']:10.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = options_parser(__doc__, "of what is not in int8")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1, 16, 64], help="sequences in a decode step")
    options = parser.parse_args(arguments)
    try:
        config = engine_config(options)
        os.environ.update(child_environment(config))  # before torch is loaded: the same threads as in a worker
        report = measure(config, options.text, options.sizes)
    except HeadwayError as error:
        say(str(error))
        return status_of(error)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(report_text(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
