"""What was found, for people: a table, a plot on the terminal, flags and Helm values; and for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from loadtest.tuning.knobs import Candidate
from loadtest.tuning.search import frontier
from loadtest.tuning.tune import Tuned

WIDTH, HEIGHT = 60, 14
"""Characters of the plot."""
BEST, KEPT, MISSED, BOUND = "◆", "●", "○", "┊"


def progress_line(candidate: Candidate) -> str:
    times = f" (run {len(candidate.runs)})" if len(candidate.runs) > 1 else ""
    return (
        f"  {candidate.knobs}: {candidate.output_tokens_per_s:.1f} tokens/s, TPOT {candidate.tpot_seconds:.3f} s, "
        f"TTFT {candidate.ttft_seconds:.2f} s: {'kept' if candidate.keeps else 'missed'}{times}"
    )


def to_text(tuned: Tuned) -> str:
    return "\n".join(_lines(tuned))


def flags(candidate: Candidate) -> str:
    return " ".join(f"--{name.replace('_', '-')} {value:g}" for name, value in candidate.knobs.settings.items())


def helm_values(tuned: Tuned) -> str:
    """A file for ``helm install -f``."""
    best = tuned.best
    assert best is not None
    lines = [
        f"# Found by headway tune for {tuned.workload}: {tuned.goal}.",
        f"# {tuned.model} on {tuned.machine['cpu']}, {tuned.machine['num_cores']} cores: {_outcome(best)}.",
        "workerDefaults:",
        "  settings:",
        "    scheduler:",
        *(f"      {name}: {value:g}" for name, value in best.knobs.settings.items()),
    ]
    return "\n".join(lines) + "\n"


def to_json(tuned: Tuned) -> dict[str, Any]:
    """``candidates`` in the order in which they were measured first, each with all its runs."""
    return {
        "workload": tuned.workload,
        "model": tuned.model,
        "goal": asdict(tuned.goal),
        "is_complete": tuned.is_complete,
        "seconds": tuned.seconds,
        "machine": tuned.machine,
        "best": None if tuned.best is None else _as_dict(tuned.best),
        "candidates": [_as_dict(candidate) for candidate in tuned.candidates],
    }


def _as_dict(candidate: Candidate) -> dict[str, Any]:
    return {
        "settings": candidate.knobs.settings,
        "keeps": candidate.keeps,
        "output_tokens_per_s": candidate.output_tokens_per_s,
        "tpot_seconds": candidate.tpot_seconds,
        "ttft_seconds": candidate.ttft_seconds,
        "runs": [asdict(run) for run in candidate.runs],
    }


def _lines(tuned: Tuned) -> Iterator[str]:
    num_runs = sum(len(candidate.runs) for candidate in tuned.candidates)
    end = "" if tuned.is_complete else "; the search was not at its end"
    yield f"{len(tuned.candidates)} candidates in {num_runs} runs and {tuned.seconds / 60:.1f} minutes{end}"
    best = tuned.best
    if best is None:
        yield "nothing was measured; give it more --minutes"
        return
    yield ""
    yield from table(tuned.candidates, best)
    yield ""
    yield from plot(tuned.candidates, best)
    yield ""
    if best.keeps:
        yield f"best for {tuned.goal}: {_outcome(best)}"
    else:
        yield f"nothing keeps {tuned.goal}; the nearest: {_outcome(best)}"
    yield f"  headway worker {flags(best)}"


def table(candidates: Sequence[Candidate], best: Candidate) -> Iterator[str]:
    """The frontier is what no other candidate beats in both throughput and time per token."""
    at_front = {candidate.knobs for candidate in frontier(iter(candidates))}
    yield "   seqs  tokens  chunk  paced  tokens/s   TPOT s   TTFT s  runs"
    for candidate in sorted(candidates, key=lambda candidate: candidate.tpot_seconds):
        knobs = candidate.knobs
        notes = [
            "frontier" if knobs in at_front else "",
            "" if candidate.keeps else "missed",
            "best" if knobs == best.knobs else "",
        ]
        yield (
            f"  {knobs.max_num_seqs:5} {knobs.max_num_batched_tokens:7} {knobs.max_prefill_chunk:6} "
            f"{'yes' if knobs.tpot_target else '':>6} {candidate.output_tokens_per_s:9.1f} "
            f"{candidate.tpot_seconds:8.3f} {candidate.ttft_seconds:8.2f} {len(candidate.runs):5}  "
            + ", ".join(filter(None, notes))
        ).rstrip()


def plot(candidates: Sequence[Candidate], best: Candidate) -> Iterator[str]:
    """Throughput over time per token; the goal is a line."""
    most_tokens = max(candidate.output_tokens_per_s for candidate in candidates) or 1.0
    goal = best.goal.tpot_seconds
    most_seconds = max(*(candidate.tpot_seconds for candidate in candidates), goal) or 1.0
    grid = [[" "] * (WIDTH + 1) for _ in range(HEIGHT + 1)]
    for line in grid:
        line[round(WIDTH * goal / most_seconds)] = BOUND
    for candidate in sorted(candidates, key=lambda candidate: candidate.knobs == best.knobs):
        mark = BEST if candidate.knobs == best.knobs else KEPT if candidate.keeps else MISSED
        row = HEIGHT - round(HEIGHT * candidate.output_tokens_per_s / most_tokens)
        grid[row][round(WIDTH * candidate.tpot_seconds / most_seconds)] = mark
    yield f"  tokens/s      {BEST} best  {KEPT} kept  {MISSED} missed  {BOUND} goal"
    for number, line in enumerate(grid):
        axis = f"{most_tokens * (HEIGHT - number) / HEIGHT:.0f}" if number % 7 == 0 else ""
        yield f"  {axis:>7} │{''.join(line)}".rstrip()
    yield f"          └{'─' * (WIDTH + 1)}"
    yield f"           0{'TPOT in seconds':^{WIDTH - 6}}{most_seconds:.3f}"


def _outcome(candidate: Candidate) -> str:
    return (
        f"{candidate.output_tokens_per_s:.1f} output tokens/s, TPOT {candidate.tpot_seconds:.3f} s, "
        f"TTFT {candidate.ttft_seconds:.2f} s"
    )
