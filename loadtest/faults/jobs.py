"""Jobs of every kind whose output depends on what came before, so that a wrong resume shows.

Each has an explicit seed or is greedy, and the model computes exactly: however often a job was interrupted, its log
must read as that of a job that nothing disturbed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadtest.faults.joblogs import JobLog
from loadtest.faults.tiny_model import HALF_IDS

MAX_TOKENS = 64
LOGPROB_TOLERANCE = 1e-6

PLAIN = {"logit_bias": {str(half): -100.0 for half in HALF_IDS}}
"""No half characters: each token is text at once."""
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0, **PLAIN},
    "seeded": {"temperature": 1.0, "seed": 7, **PLAIN},
    "penalised": {"temperature": 0, "frequency_penalty": 0.7, "presence_penalty": 0.5, **PLAIN},
    "repeating": {"temperature": 0.8, "seed": 11, "repetition_penalty": 1.3, "top_k": 20, "top_p": 0.9, **PLAIN},
    "logprobs": {"temperature": 1.0, "seed": 5, "logprobs": 2, **PLAIN},
    "halves": {"temperature": 1.0, "seed": 3, "logit_bias": {str(half): 4.0 for half in HALF_IDS}},
}


def job_of(job_id: str) -> dict[str, Any]:
    """Without the fields of its kind. The same for every id, so that outputs can be compared."""
    return {"id": job_id, "prompt": "Hello", "max_tokens": MAX_TOKENS, "ignore_eos": True}


def stop_in(calm: JobLog) -> dict[str, Any]:
    """Makes the greedy kind into a further one, ended by a stop string late in its text; `min_tokens` keeps an earlier
    look-alike from ending it, so both must survive an interruption."""
    end = len(calm.text) * 3 // 4
    return {"stop": [calm.text[end - 4 : end]], "min_tokens": len(calm.text) // 2}


def differences(log: JobLog, calm: JobLog) -> list[str]:
    """What distinguishes the outputs of two jobs of the same kind; empty: nothing."""
    pairs: Mapping[str, tuple[object, object]] = {
        "token_ids": (log.token_ids, calm.token_ids),
        "text": (log.text, calm.text),
        "finish_reason": (log.end["finish_reason"], calm.end["finish_reason"]),
        "completion_tokens": (log.end["usage"]["completion_tokens"], calm.end["usage"]["completion_tokens"]),
    }
    found = [f"{name}: {ours!r} is not {theirs!r}" for name, (ours, theirs) in pairs.items() if ours != theirs]
    return found + _faults_of(log) + _logprob_differences(log, calm)


def _faults_of(log: JobLog) -> list[str]:
    faults = {"gaps": log.num_gaps, "overlaps": log.num_overlaps, "more ends": len(log.of_kind("end")) - 1}
    numbers = [record["number"] for record in log.of_kind("attempt")]
    faults["wrong attempt numbers"] = int(numbers != list(range(1, len(numbers) + 1)))
    return [f"{count} {what}" for what, count in faults.items() if count]


def _logprob_differences(log: JobLog, calm: JobLog) -> list[str]:
    if len(log.logprobs) != len(calm.logprobs):
        return [f"{len(log.logprobs)} logprobs, not {len(calm.logprobs)}"]
    return [
        f"logprobs of token {index}: {ours} is not {theirs}"
        for index, (ours, theirs) in enumerate(zip(log.logprobs, calm.logprobs, strict=True))
        if not _is_close(ours, theirs)
    ]


def _is_close(ours: Any, theirs: Any) -> bool:
    """Numbers may differ in their last digits: a resumed attempt computes its prompt in one piece."""
    if isinstance(theirs, float):
        return abs(ours - theirs) <= LOGPROB_TOLERANCE
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_is_close, ours, theirs))
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_is_close(ours[name], theirs[name]) for name in theirs)
    return bool(ours == theirs)
