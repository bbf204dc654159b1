"""Made-up reports of `headway bench`: short to write, and of the form that the real ones have."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

Report = dict[str, Any]

MACHINE = {
    "cpu": "A CPU",
    "cpu_flags": ["avx2"],
    "num_cores": 2,
    "memory_bytes": 8 * 2**30,
    "load_average": 0.1,
    "python": "3.11.9",
    "headway": "0.1.0",
    "torch": "2.13.0",
    "transformers": "5.24.0",
    "num_threads": 2,
}


def summary(mean: float) -> dict[str, float]:
    return {"mean": mean, "p50": 0.9 * mean, "p90": 2 * mean, "p99": 4 * mean}


def run(tokens_per_s: float = 100.0, **fields: object) -> Report:
    return {
        "rate": None,
        "num_requests": 8,
        "num_completed": 8,
        "num_output_tokens": 160,
        "duration_seconds": 160 / tokens_per_s,
        "output_tokens_per_s": tokens_per_s,
        "ttft_seconds": summary(0.2),
        "tpot_seconds": summary(0.02),
        "e2e_seconds": summary(1.0),
        "inter_token_gap_seconds": None,
        "queue_seconds": None,
        "step_seconds": {},
        "slot_utilisation": None,
        "num_preemptions": 0,
        "cpu_seconds": {"engine": 2.0},
        **fields,
    }


def report(*runs: Report, **fields: object) -> Report:
    """The first run stands at the top, too."""
    measured = list(runs) or [run()]
    what = {"target": "engine", "arrivals": "burst", "load": None, "workload": "made-up.json", "model": "tiny"}
    rest = {"batching": "continuous", "scenario": None, "seed": None, "floor": None, "machine": MACHINE}
    return {**measured[0], **what, **rest, "runs": measured, "bursts": [], "peers": {}, **fields}


def peer(*runs: Report, **fields: object) -> Report:
    return {"facts": {"version": "1"}, "runs": list(runs), "ratios": {}, **fields}


def request(due_at: float = 0.0, seconds: float = 1.0, **fields: object) -> Report:
    """Its first token comes after a quarter of its time."""
    return {
        "tenant": "default",
        "label": None,
        "due_at": due_at,
        "queue_seconds": 0.1 * seconds,
        "ttft_seconds": 0.25 * seconds,
        "tpot_seconds": 0.03 * seconds,
        "e2e_seconds": seconds,
        "max_gap_seconds": 0.05 * seconds,
        "num_prompt_tokens": 40,
        "num_output_tokens": 20,
        "finish_reason": "length",
        **fields,
    }


def requests(number: int, seed: int = 1, slow: float = 1.0) -> list[Report]:
    """One after the other, of lengths with a long tail, of two tenants and two parts of a mix in turns."""
    chance = random.Random(seed)
    names = [{"tenant": "acme", "label": "short"}, {"tenant": "zeta", "label": "long"}]
    return [request(0.1 * n, slow * chance.lognormvariate(0, 0.6), **names[n % 2]) for n in range(number)]


def timeline(number: int) -> dict[str, list[Any]]:
    return {
        "seconds": [0.05 * n for n in range(number)],
        "num_decodes": [min(16, n // 2) for n in range(number)],
        "num_prefill_tokens": [120 if n % 7 == 0 else 0 for n in range(number)],
        "num_running": [min(17, 1 + n // 2) for n in range(number)],
        "num_waiting": [max(0, 12 - n // 3) for n in range(number)],
        "step_seconds": [0.045] * number,
    }


def queue_report(scale: float = 1.0, **fields: object) -> Report:
    """Of `headway bench --target queue`; rates are ``scale`` times as high, times and bytes as low."""
    served = {
        "num_jobs": 100,
        "ended_per_s": 3000 * scale,
        "settled_per_s": 2900 * scale,
        "grant_seconds": summary(0.004 / scale),
        "decision_seconds": summary(0.0001 / scale),
        "cpu_seconds": {"queue": 1.0},
        "queue_cpu_seconds_per_job": 0.0003 / scale,
    }
    measured = {
        "core": {"adds_per_s": 50_000 * scale, "decision_seconds": summary(0.00002 / scale)},
        "intake": {"num_jobs": 1000, "jobs_per_s": 8000 * scale, "bytes_per_job_beyond_payload": 2000 / scale},
        "serve": {"1": served, "8": {**served, "alone_grant_seconds": None}},
    }
    options = {"num_waiting": 1000, "json_path": f"{scale}.json"}
    what = {"target": "queue", "options": options, "machine": MACHINE, "growth": {}}
    return {**what, "policies": {"fifo": {"1000": measured}}, **fields}


def write(folder: Path, name: str, content: Report) -> Path:
    path = folder / name
    path.write_text(json.dumps(content))
    return path
