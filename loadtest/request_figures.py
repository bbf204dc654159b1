"""What a run did for each request and for each tenant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from loadtest.recording import Recording, Timeline
from loadtest.statistics import summary_of

NEVER_ENDED = "none"
"""In the place of a finish reason."""


def request_rows(recording: Recording) -> list[dict[str, Any]]:
    """One row per request, in order of due time."""
    return [_row(line) for line in sorted(recording.timelines, key=lambda line: line.due_at)]


def finish_reason(line: Timeline) -> str:
    return NEVER_ENDED if line.finish_reason is None else line.finish_reason.value


def tenant_figures(recording: Recording, weights: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """By tenant. Latencies are of completed requests, the queue's delay of all that ever left it."""
    lines: defaultdict[str, list[Timeline]] = defaultdict(list)
    for line in recording.timelines:
        lines[line.tenant].append(line)
    return {tenant: _tenant(lines[tenant], weights.get(tenant, 1.0)) for tenant in sorted(lines)}


def _row(line: Timeline) -> dict[str, Any]:
    return {
        "tenant": line.tenant,
        "label": line.label,
        "due_at": line.due_at,
        "queue_seconds": line.queue_seconds,
        "ttft_seconds": line.ttft_seconds,
        "tpot_seconds": line.tpot_seconds,
        "e2e_seconds": line.e2e_seconds,
        "max_gap_seconds": line.max_gap_seconds,
        "num_prompt_tokens": line.num_prompt_tokens,
        "num_output_tokens": line.num_tokens,
        "finish_reason": finish_reason(line),
    }


def _tenant(lines: Sequence[Timeline], weight: float) -> dict[str, Any]:
    completed = [line for line in lines if line.is_complete]
    return {
        "num_requests": len(lines),
        "num_output_tokens": sum(line.num_tokens for line in lines),
        "weight": weight,
        "ttft_seconds": summary_of(line.ttft_seconds for line in completed),
        "e2e_seconds": summary_of(line.e2e_seconds for line in completed),
        "queue_seconds": summary_of(line.queue_seconds for line in lines),
    }
