"""The frontier as a plot: throughput over time per token, one point per candidate."""

from __future__ import annotations

from pathlib import Path

from loadtest.page.svg import MUTED, colour, new_figure, style
from loadtest.results.files import writing
from loadtest.tuning.knobs import Candidate
from loadtest.tuning.search import frontier
from loadtest.tuning.tune import Tuned


def write_picture(tuned: Tuned, path: Path) -> None:
    """As the file's ending says: .svg, .png or .pdf. Raises `BenchError` if it cannot be written."""
    with style():
        figure = new_figure()
        axes = figure.subplots()
        for label, number, chosen in (
            ("keeps the goal", 0, [c for c in tuned.candidates if c.keeps]),
            ("misses it", 1, [c for c in tuned.candidates if not c.keeps]),
        ):
            axes.scatter(_times(chosen), _rates(chosen), color=colour(number), label=label, zorder=3)
        front = frontier(iter(tuned.candidates))
        axes.plot(_times(front), _rates(front), color=MUTED, linewidth=1, label="frontier")
        axes.axvline(1000 * tuned.goal.tpot_seconds, color=MUTED, linestyle=":", label="goal")
        for candidate in front:
            point = (1000 * candidate.tpot_seconds, candidate.output_tokens_per_s)
            axes.annotate(f"{candidate.knobs.max_num_seqs}", point, xytext=(5, -10), textcoords="offset points", size=8)
        axes.set_xlabel(f"TPOT that {tuned.goal.share:.0%} of the requests keep, in ms")
        axes.set_ylabel("output tokens per second")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.set_title(f"{tuned.workload}; numbers are max_num_seqs", loc="left", fontsize=10)
        axes.legend(loc="lower right")
        with writing(path):
            figure.savefig(path)


def _times(candidates: list[Candidate]) -> list[float]:
    return [1000 * candidate.tpot_seconds for candidate in candidates]


def _rates(candidates: list[Candidate]) -> list[float]:
    return [candidate.output_tokens_per_s for candidate in candidates]
