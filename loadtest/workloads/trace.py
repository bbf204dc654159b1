"""Traces of real services: when requests came, and how long they were.

A CSV file with a header, or one JSON object a line (``.jsonl``). The names that public traces use are known: those of
the Azure LLM inference traces, of BurstGPT and of Mooncake; others are given by the scenario.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from headway.core.job import TOKEN
from loadtest.workloads.distributions import MAX_TOKENS
from loadtest.workloads.requests import WorkloadError

KNOWN_NAMES = {
    "arrived_at": ("arrivedat", "timestamp", "arrivaltime", "arrival", "time"),
    "prompt_tokens": (
        "prompttokens",
        "numprompttokens",
        "contexttokens",
        "requesttokens",
        "inputlength",
        "inputtokens",
    ),
    "output_tokens": (
        "outputtokens",
        "numoutputtokens",
        "generatedtokens",
        "responsetokens",
        "outputlength",
        "completiontokens",
    ),
    "tenant": ("tenant",),
}
"""By what we call them: how others do, without regard to case, spaces and underscores."""
REQUIRED = ("prompt_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class TraceRow:
    arrived_at: float | None
    """Seconds after the first; None: the trace has no times."""
    num_prompt_tokens: int
    num_output_tokens: int
    tenant: str | None


def read_trace(path: Path, columns: Mapping[str, str], time_scale: float) -> tuple[TraceRow, ...]:
    """In order of time. Rows without prompt or output are left out: they failed when they were recorded. Raises
    `WorkloadError` with file, line and column."""
    rows: list[TraceRow] = []
    names: dict[str, str] | None = None
    try:
        for number, row in _rows(path):
            names = names or _names(path, row, columns)
            read = _read(f"{path}, line {number}", row, names)
            if read.num_prompt_tokens and read.num_output_tokens:
                rows.append(read)
    except (OSError, ValueError, csv.Error) as exc:
        raise WorkloadError(f"{path} is no trace: {exc}") from exc
    if not rows:
        raise WorkloadError(f"{path} is no trace: it has no rows")
    return _from_the_first(rows, time_scale)


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Each with the number of its line."""
    with path.open(newline="") as file:
        if path.suffix in (".jsonl", ".ndjson", ".json"):
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, _object(number, line)
        else:
            yield from enumerate(csv.DictReader(file), 2)


def _object(number: int, line: str) -> Mapping[str, Any]:
    """Raises ``ValueError``."""
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError(f"line {number} is no object")
    return row


def _names(path: Path, row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, str]:
    """The file's own, by ours."""
    plain = {"".join(filter(str.isalnum, str(name))).lower(): name for name in row}
    known = {ours: plain[name] for ours, names in KNOWN_NAMES.items() for name in reversed(names) if name in plain}
    names = {**known, **columns}
    for ours in (*REQUIRED, *columns):
        if names.get(ours) not in row:
            missing = names.get(ours, ours)
            choice = ", ".join(map(str, row))
            raise WorkloadError(f"{path} has no column {missing!r}; write columns: {{{ours}: NAME}}, one of {choice}")
    return names


def _read(where: str, row: Mapping[str, Any], names: Mapping[str, str]) -> TraceRow:
    prompt, output = (_count(where, names[column], row.get(names[column])) for column in REQUIRED)
    arrived_at = _seconds(where, names["arrived_at"], row.get(names["arrived_at"])) if "arrived_at" in names else None
    tenant = row.get(names["tenant"]) if "tenant" in names else None
    if tenant is not None and not (isinstance(tenant, str) and TOKEN.fullmatch(tenant)):
        raise WorkloadError(f"{where}: {names['tenant']} must match {TOKEN.pattern}, not {tenant!r}")
    return TraceRow(arrived_at, prompt, output, tenant)


def _count(where: str, column: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError) as exc:
        raise WorkloadError(f"{where}: {column} must be a whole number, not {value!r}") from exc
    if not 0 <= number <= MAX_TOKENS:
        raise WorkloadError(f"{where}: {column} must be from 0 to {MAX_TOKENS}, not {value!r}")
    return number


def _seconds(where: str, column: str, value: Any) -> float:
    """Of a number, or of a date and time."""
    try:
        seconds = float(value)
        if math.isfinite(seconds):
            return seconds
    except (TypeError, ValueError, OverflowError):
        pass
    try:
        return datetime.fromisoformat(value).timestamp()
    except (TypeError, ValueError, OverflowError) as exc:
        raise WorkloadError(f"{where}: {column} must be a number or a date and time, not {value!r}") from exc


def _from_the_first(rows: list[TraceRow], time_scale: float) -> tuple[TraceRow, ...]:
    moments = [row.arrived_at for row in rows if row.arrived_at is not None]
    if len(moments) < len(rows):
        return tuple(rows)
    first = min(moments)
    shifted = [
        TraceRow((moment - first) * time_scale, row.num_prompt_tokens, row.num_output_tokens, row.tenant)
        for row, moment in zip(rows, moments, strict=True)
    ]
    return tuple(sorted(shifted, key=lambda row: row.arrived_at or 0.0))
