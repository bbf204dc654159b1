"""Draws the plots of docs/tuning.md, and writes its tables, from docs/tuning.json.

    .venv/bin/pip install -e '.[bench]'
    .venv/bin/python -m loadtest.tuning.knob_study --json docs/tuning.json
    .venv/bin/python docs/tuning.py

The second line measures: some 20 minutes, with nothing else running.

A figure is the median over the rounds; lines in the plots and brackets in the tables are the least and the greatest. A
ratio compares two points of one round.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FOLDER = Path(__file__).parent
DATA = FOLDER / "tuning.json"
PAGE = FOLDER / "tuning.md"
TOKENS = {
    "tokens, long prompts": "long prompts, short answers",
    "tokens, all decoding": "short prompts, long answers",
    "tokens, two sequences": "two sequences only",
}
RECIPES = {
    "recipe, long prompts": "long prompts, short answers",
    "recipe, long answers": "short prompts, long answers",
    "recipe, strict latency": "strict latency",
}
LEAST_ROUNDS = 3
"""For figures that are worth quoting."""
RATE, TPOT, TTFT = "output_tokens_per_s", "tpot_seconds", "ttft_seconds"

Point = Mapping[str, Any]


def values(point: Point, figure: str) -> list[float]:
    """One per round."""
    return [run[figure] if figure in run else run["details"][figure] for run in point["runs"]]


def ratios(point: Point, reference: Point, figure: str) -> list[float]:
    pairs = zip(values(point, figure), values(reference, figure), strict=True)
    return [value / base for value, base in pairs if base]


def both(point: Point, reference: Point) -> tuple[str, str]:
    """Throughput and time per token, over those of the reference."""
    return spread(ratios(point, reference, RATE)), spread(ratios(point, reference, TPOT))


def spread(numbers: Sequence[float], digits: int = 2) -> str:
    if not numbers:
        return "–"
    middle, least, most = (f"{number:.{digits}f}" for number in (median(numbers), min(numbers), max(numbers)))
    return f"{middle} ({least}–{most})"


# -- tables ----------------------------------------------------------------------------------------------------------


def batch_table(report: Mapping[str, Any]) -> Iterable[str]:
    points = report["sweeps"]["batch"]["points"]
    yield "| `max_num_seqs` | output tokens/s ÷ that of 1 | TPOT ÷ that of 1 | TPOT in ms | TTFT in s |"
    yield "|---|---|---|---|---|"
    for point in points:
        rate, tpot = both(point, points[0])
        times = f"{1000 * median(values(point, TPOT)):.0f} | {median(values(point, TTFT)):.2f}"
        yield f"| {point['value']} | {rate} | {tpot} | {times} |"


def peak_line(report: Mapping[str, Any]) -> Iterable[str]:
    """Where throughput is highest."""
    points = report["sweeps"]["batch"]["points"]
    peak = max(points, key=lambda point: median(values(point, RATE)))
    yield f"Throughput is highest at {peak['value']} sequences here."


def tokens_table(report: Mapping[str, Any]) -> Iterable[str]:
    sweeps = {title: report["sweeps"][name]["points"] for name, title in TOKENS.items()}
    yield "| `max_num_batched_tokens` | " + " | ".join(f"{title}: tokens/s, TPOT" for title in sweeps) + " |"
    yield "|---" * (len(sweeps) + 1) + "|"
    for index, point in enumerate(next(iter(sweeps.values()))):
        cells = [", ".join(both(points[index], points[0])) for points in sweeps.values()]
        yield f"| {point['value']} | " + " | ".join(cells) + " |"


def chunk_table(report: Mapping[str, Any]) -> Iterable[str]:
    points = report["sweeps"]["chunk"]["points"]
    yield "| `max_prefill_chunk` | output tokens/s ÷ that of 16 | TPOT ÷ that of 16 | TTFT p50 | TTFT p90 |"
    yield "|---|---|---|---|---|"
    for point in points:
        rate, tpot = both(point, points[0])
        times = f"{median(values(point, 'ttft_p50_seconds')):.2f} s | {median(values(point, TTFT)):.2f} s"
        yield f"| {point['value']} | {rate} | {tpot} | {times} |"


def recipe_table(report: Mapping[str, Any]) -> Iterable[str]:
    yield "| recipe | settings | output tokens/s ÷ default | TPOT ÷ default | TTFT ÷ default |"
    yield "|---|---|---|---|---|"
    for name, title in RECIPES.items():
        default, recipe = report["sweeps"][name]["points"]
        compare = can_be_compared(default, recipe)
        settings = ", ".join(f"`{setting}: {value:g}`" for setting, value in recipe["settings"].items())
        cells = (spread(ratios(recipe, default, figure) if compare else []) for figure in (RATE, TPOT, TTFT))
        yield f"| {title} | {settings} | " + " | ".join(cells) + " |"


def can_be_compared(default: Point, recipe: Point) -> bool:
    """Where no request had enough tokens for a time per token, times are bounds and not figures."""
    return all(values(default, "num_requests") + values(recipe, "num_requests"))


def dashes_line(report: Mapping[str, Any]) -> Iterable[str]:
    """Why a recipe has no figures, if one has none."""
    if not all(can_be_compared(*report["sweeps"][name]["points"]) for name in RECIPES):
        yield (
            "A dash: in the stress of the default settings no request had eight tokens after its first, since 64 "
            "sequences shared each step with prompts; so there is no time per token to compare with."
        )


def target_table(report: Mapping[str, Any]) -> Iterable[str]:
    study = report["long_prompt"]
    step = study["decode_step_seconds"]
    yield "| settings | p99 gap | longest gap | worst TPOT | first token of the long prompt | tokens/s ÷ default |"
    yield "|---|---|---|---|---|---|"
    for name, variant in study["variants"].items():
        runs = variant["runs"]
        base = study["variants"]["default"]["runs"]
        in_steps = (
            [run["decode_gap_seconds"]["p99"] / step for run in runs if "decode_gap_seconds" in run],
            [run["max_gap_seconds"] / step for run in runs],
            [run[TPOT] / step for run in runs],
        )
        shares = [run[RATE] / other[RATE] for run, other in zip(runs, base, strict=True)]
        yield (
            f"| {name} | " + " | ".join(spread(numbers, 1) for numbers in in_steps) + " | "
            f"{median(run[TTFT] for run in runs):.1f} s | {spread(shares)} |"
        )


def machine_line(report: Mapping[str, Any]) -> Iterable[str]:
    machine = report["machine"]
    rounds = {name: len(sweep["points"][0]["runs"]) for name, sweep in report["sweeps"].items()}
    least = min(rounds.values())
    more = "".join(f" ({name}: {number})" for name, number in rounds.items() if number > least)
    yield (
        f"Measured on {machine['num_cores']} cores of an {machine['cpu']}, torch {machine['torch']}, transformers "
        f"{machine['transformers']}. Rounds: {least}{more}; each stress took {report['run_seconds']:g} s or "
        f"more; load average when it began: {machine['load_average']:.1f}."
    )
    if report["num_rounds"] < LEAST_ROUNDS:
        yield "So few rounds show directions, not figures: others used the machine, and short stresses are noisy."


TABLES: dict[str, Callable[[Mapping[str, Any]], Iterable[str]]] = {
    "machine": machine_line,
    "batch": batch_table,
    "peak": peak_line,
    "tokens": tokens_table,
    "chunk": chunk_table,
    "recipes": recipe_table,
    "dashes": dashes_line,
    "target": target_table,
}


def page(report: Mapping[str, Any], text: str) -> str:
    """The page with its tables made anew."""
    for name, table in TABLES.items():
        content = "\n".join(table(report))
        marked = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        text, count = re.subn(marked, lambda at, content=content: f"{at[1]}{content}\n{at[2]}", text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"the page has {count} places for {name}")
    return text


# -- plots -----------------------------------------------------------------------------------------------------------


def line(axes: Axes, points: Sequence[Point], numbers: Callable[[Point], Sequence[float]], label: str) -> None:
    """The median of each point, with a bar from the least to the greatest."""
    middle = [median(numbers(point)) for point in points]
    below = [m - min(numbers(point)) for m, point in zip(middle, points, strict=True)]
    above = [max(numbers(point)) - m for m, point in zip(middle, points, strict=True)]
    axes.errorbar([point["value"] for point in points], middle, yerr=[below, above], marker="o", capsize=3, label=label)


def doubling(axes: Axes, points: Sequence[Point], label: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks([point["value"] for point in points], labels=[str(point["value"]) for point in points])
    axes.set_ylim(bottom=0)
    axes.set_xlabel(label)


def draw_batch(report: Mapping[str, Any], path: Path) -> None:
    points = report["sweeps"]["batch"]["points"]
    figure, (left, right) = _panels()
    line(left, points, lambda point: values(point, RATE), "output tokens per second")
    left.set_title("output tokens per second", loc="left", fontsize=10)
    line(right, points, lambda point: [1000 * value for value in values(point, TPOT)], "TPOT")
    right.set_title("TPOT that 90 % keep, in ms", loc="left", fontsize=10)
    for axes in (left, right):
        doubling(axes, points, "max_num_seqs")
    _save(figure, path)


def draw_tokens(report: Mapping[str, Any], path: Path) -> None:
    figure, panels = _panels()
    for axes, figure_name, title in zip(
        panels,
        (RATE, TPOT),
        ("output tokens per second ÷ that of the smallest", "TPOT ÷ that of the smallest"),
        strict=True,
    ):
        for name, label in TOKENS.items():
            points = report["sweeps"][name]["points"]
            line(axes, points, lambda p, points=points, f=figure_name: ratios(p, points[0], f), label)
            doubling(axes, points, "max_num_batched_tokens")
        axes.set_title(title, loc="left", fontsize=10)
    panels[0].legend(fontsize=8)
    _save(figure, path)


def draw_chunk(report: Mapping[str, Any], path: Path) -> None:
    points = report["sweeps"]["chunk"]["points"]
    figure, (left, right) = _panels()
    line(left, points, lambda point: values(point, "ttft_p50_seconds"), "half of the requests")
    line(left, points, lambda point: values(point, TTFT), "nine in ten")
    left.set_title("TTFT that so many keep, in s", loc="left", fontsize=10)
    left.legend(fontsize=8)
    line(right, points, lambda point: [1000 * value for value in values(point, TPOT)], "TPOT")
    right.set_title("TPOT that 90 % keep, in ms", loc="left", fontsize=10)
    for axes in (left, right):
        doubling(axes, points, "max_prefill_chunk")
    _save(figure, path)


def draw_target(report: Mapping[str, Any], path: Path) -> None:
    """Gaps against the long prompt's own wait; both in decode steps, both better when small."""
    study = report["long_prompt"]
    step = study["decode_step_seconds"]
    figure, panels = _panels(1)
    axes = panels[0]
    for name, variant in study["variants"].items():
        gap = median(run["max_gap_seconds"] for run in variant["runs"]) / step
        wait = median(run[TTFT] for run in variant["runs"])
        is_paced = variant["settings"]["tpot_target"] is not None
        axes.scatter(wait, gap, color="tab:orange" if is_paced else "tab:blue", zorder=3)
        axes.annotate(name, (wait, gap), xytext=(6, 4), textcoords="offset points", fontsize=8)
    axes.set_yscale("log")
    axes.set_xlim(left=0, right=axes.get_xlim()[1] * 1.3)
    axes.set_xlabel("first token of the long prompt after so many seconds")
    axes.set_ylabel("longest gap of the others, in decode steps")
    _save(figure, path)


def _panels(num: int = 2) -> Any:
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "headway"
    figure, panels = pyplot.subplots(1, num, figsize=(9, 3.4), layout="constrained", squeeze=False)
    for axes in panels[0]:
        axes.grid(color="0.9")
    return figure, panels[0]


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})


PLOTS: dict[str, Callable[[Mapping[str, Any], Path], None]] = {
    "tuning-batch.svg": draw_batch,
    "tuning-tokens.svg": draw_tokens,
    "tuning-chunk.svg": draw_chunk,
    "tuning-target.svg": draw_target,
}


def main() -> None:
    report = json.loads(DATA.read_text())
    PAGE.write_text(page(report, PAGE.read_text()))
    for name, draw in PLOTS.items():
        draw(report, FOLDER / name)


if __name__ == "__main__":
    main()
