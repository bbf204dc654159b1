"""What a run was like over time: one entry per step of the engine, few enough to plot."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from headway.core.stats import StepStats
from loadtest.recording import Recording, StepEnd, Timeline

MAX_ENTRIES = 2000

Moment = tuple[StepStats, StepEnd]


def step_columns(recording: Recording) -> dict[str, list[Any]] | None:
    """Columns of equal length, in order of time; None where nothing is known of steps.

    ``num_waiting`` counts the requests that are due and not yet granted or scheduled, wherever they wait, so it is
    known only where their delay in the queue is.
    """
    log = recording.steps
    if not log.ends:
        return None
    moments = _thinned(list(zip(log.steps, log.ends, strict=True)))
    return {
        "seconds": [end.at for _, end in moments],
        "num_decodes": [step.num_decode_tokens for step, _ in moments],
        "num_prefill_tokens": [step.num_prefill_tokens for step, _ in moments],
        "num_running": [end.num_running for _, end in moments],
        "num_waiting": _num_waiting(recording.timelines, [end.at for _, end in moments]),
        "step_seconds": [step.seconds for step, _ in moments],
    }


def _thinned(moments: Sequence[Moment]) -> list[Moment]:
    """Of so many neighbours the longest step, so that no spike is lost."""
    width = -(-len(moments) // MAX_ENTRIES)
    groups = (moments[start : start + width] for start in range(0, len(moments), width))
    return [max(group, key=lambda moment: moment[0].seconds) for group in groups]


def _num_waiting(lines: Sequence[Timeline], moments: Sequence[float]) -> list[int | None]:
    if all(line.queue_seconds is None for line in lines):
        return [None] * len(moments)
    came = sorted(line.due_at for line in lines)
    left = sorted(moment for line in lines if (moment := _left_queue_at(line)) is not None)
    return [bisect_right(came, moment) - bisect_right(left, moment) for moment in moments]


def _left_queue_at(line: Timeline) -> float | None:
    """A request that never ran has waited until its end."""
    return line.ended_at if line.queue_seconds is None else line.due_at + line.queue_seconds
