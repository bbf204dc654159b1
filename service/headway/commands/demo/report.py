"""The figures of a demo: a table for people, objects for machines, and what they mean."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import click

from headway.commands.demo.run import DemoRun, DemoRuns
from headway.commands.demo.utilisation import Utilisation, simulate
from headway.core.scheduler_config import Batching, SchedulerConfig

UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Use of the slots for the same jobs."""

    static: Utilisation
    continuous: Utilisation
    measured: Utilisation | None

    @classmethod
    def of(cls, demo: DemoRuns, config: SchedulerConfig) -> Comparison:
        static, continuous = (
            simulate(batching, demo.lengths, config) for batching in (Batching.STATIC, Batching.CONTINUOUS)
        )
        return cls(static, continuous, demo.measured)


def print_json(demo: DemoRuns, config: SchedulerConfig) -> None:
    """One object per job, then the summary."""
    for run in demo.runs:
        click.echo(json.dumps(_job(run), ensure_ascii=False))
    click.echo(json.dumps({"summary": _summary(demo, Comparison.of(demo, config))}))


def _job(run: DemoRun) -> dict[str, Any]:
    result = run.result
    assert result is not None, "the demo waits for every job"
    error = result.error
    return {
        "tenant": run.job.tenant,
        "id": run.job.id,
        "text": run.text,
        "finish_reason": result.finish_reason.value,
        "error": {"code": error.code, "field": error.field, "message": error.message} if error else None,
        "queue_seconds": _rounded(result.timings.queue_seconds),
        "first_token_seconds": _rounded(run.first_token_seconds),
        "prompt_tokens": run.num_prompt_tokens,
        "output_tokens": run.num_output_tokens,
        "output_tokens_per_s": _rounded(run.output_tokens_per_s),
    }


def _summary(demo: DemoRuns, comparison: Comparison) -> dict[str, Any]:
    measured = comparison.measured
    return {
        "jobs": len(demo.runs),
        "completed": demo.num_completed,
        "utilisation_static": _rounded(comparison.static.share),
        "utilisation_continuous": _rounded(comparison.continuous.share),
        "utilisation_continuous_measured": _rounded(measured.share if measured else None),
        "steps_static": comparison.static.num_steps,
        "steps_continuous": comparison.continuous.num_steps,
        "prompt_tokens": sum(run.num_prompt_tokens for run in demo.runs),
        "output_tokens": demo.num_output_tokens,
        "output_tokens_per_s": _rounded(demo.num_output_tokens / demo.seconds),
        "seconds": _rounded(demo.seconds),
    }


def print_tables(demo: DemoRuns, config: SchedulerConfig) -> None:
    """For people."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("tenant", "id", "queued", "first token", "tokens", "tokens/s", "finish"):
        table.add_column(column, justify="left" if column in ("tenant", "id", "finish") else "right")
    for run in demo.runs:
        table.add_row(*_row(run))
    console.print(table)
    click.echo(_words(demo, Comparison.of(demo, config), config))


def _row(run: DemoRun) -> list[str]:
    assert run.result is not None, "the demo waits for every job"
    return [
        run.job.tenant,
        run.job.id,
        _shown(run.result.timings.queue_seconds, "{:.2f} s"),
        _shown(run.first_token_seconds, "{:.2f} s"),
        str(run.num_output_tokens),
        _shown(run.output_tokens_per_s, "{:.1f}"),
        run.result.finish_reason.value,
    ]


def _words(demo: DemoRuns, comparison: Comparison, config: SchedulerConfig) -> str:
    static, continuous = comparison.static, comparison.continuous
    measured = _shown(comparison.measured.share if comparison.measured else None, "{:4.0%}")
    rate = demo.num_output_tokens / demo.seconds
    return "\n".join(
        (
            f"{demo.num_completed} of {len(demo.runs)} jobs completed in {demo.seconds:.1f} s: "
            f"{demo.num_output_tokens} tokens, {rate:.1f} tokens/s.",
            "",
            f"Share of the {config.max_num_seqs} slots (max_num_seqs) that computed something, over all steps:",
            f"  static batching       {static.share:4.0%}  in {static.num_steps} steps",
            f"  continuous batching   {continuous.share:4.0%}  in {continuous.num_steps} steps",
            f"  continuous, measured  {measured}",
            "",
            "The first two: the scheduler alone, both ways, over the prompt and output lengths of this run (no model).",
            "The third: what the worker's scheduler counted during the run, its beginning and its end included.",
        )
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _shown(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else form.format(value)
