"""The JSON of `headway bench` read back, checked and with names: for the page, and for comparing two of them.

`loadtest.bench` lists the keys. Only what a reader here uses is a field; other keys are passed over, so that files of
newer versions can be read. Keys that older files do not have are None or empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec

from loadtest.errors import BenchInputError
from loadtest.results.queue_documents import QueueDocument
from loadtest.statistics import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One request as its client saw it; times in seconds, ``due_at`` from the start of the run."""

    due_at: float
    tenant: str = "default"
    label: str | None = None
    queue_seconds: float | None = None
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    e2e_seconds: float | None = None
    max_gap_seconds: float | None = None
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    finish_reason: str = "none"

    @property
    def was_answered(self) -> bool:
        """Whether it ended as a request should, so that its times may be summed up."""
        return self.finish_reason in ("length", "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepColumns:
    """Steps of the engine, one entry each; columns of equal length."""

    seconds: tuple[float, ...]
    """From the start of the run."""
    num_decodes: tuple[int, ...]
    num_prefill_tokens: tuple[int, ...]
    num_running: tuple[int, ...]
    step_seconds: tuple[float, ...]
    num_waiting: tuple[int | None, ...] | None = None
    """None where it is unknown."""

    def __post_init__(self) -> None:
        columns = (self.num_decodes, self.num_prefill_tokens, self.num_running, self.step_seconds)
        lengths = {len(column) for column in (self.seconds, *columns, self.num_waiting or self.seconds)}
        if len(lengths) > 1:
            raise ValueError(f"the columns have different lengths: {sorted(lengths)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    share: float
    requests_per_s: float
    slo: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantFigures:
    num_requests: int
    num_output_tokens: int
    weight: float = 1.0
    ttft_seconds: Summary | None = None
    e2e_seconds: Summary | None = None
    queue_seconds: Summary | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """Of the steps that only decode, of one size."""

    num_steps: int
    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """One run of one system."""

    output_tokens_per_s: float
    num_requests: int
    num_completed: int
    duration_seconds: float | None = None
    num_output_tokens: int = 0
    rate: float | None = None
    """Requests per second that were offered; None: all at once."""
    ttft_seconds: Summary | None = None
    tpot_seconds: Summary | None = None
    inter_token_gap_seconds: Summary | None = None
    e2e_seconds: Summary | None = None
    queue_seconds: Summary | None = None
    goodput: Goodput | None = None
    slot_utilisation: float | None = None
    num_preemptions: int | None = None
    num_cancelled: int | None = None
    num_failed: int | None = None
    num_lost: int | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    """How many requests failed with which."""
    cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    step_seconds: Mapping[str, StepSummary | None] = field(default_factory=dict)
    requests: tuple[RequestRow, ...] = ()
    timeline: StepColumns | None = None
    tenants: Mapping[str, TenantFigures] = field(default_factory=dict)

    @property
    def total_cpu_seconds(self) -> float | None:
        return sum(self.cpu_seconds.values()) if self.cpu_seconds else None


Runs = Annotated[tuple[RunFigures, ...], msgspec.Meta(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioSpread:
    median: float
    min: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A peer's runs of one kind, in turns with ours."""

    runs: Runs
    ratios: Mapping[str, RatioSpread] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFigures(Beside):
    facts: Mapping[str, Any] = field(default_factory=dict)
    bursts: Beside | None = None
    same_rate: Beside | None = None
    """Its runs are Headway's, offered what the peer was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorFigures:
    read_bytes_per_s: float | None = None
    matrix_flops_per_s: float | None = None
    decode_step_seconds: Mapping[str, float] = field(default_factory=dict)
    """By number of sequences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(RunFigures):
    """A whole file; the figures at its top are those of the run with the median throughput."""

    runs: Runs
    target: str | None = None
    arrivals: Any = None
    load: float | None = None
    num_clients: int | None = None
    """Of a closed loop."""
    growth: float | None = None
    """Of a ramp: its last rate or load over its first, which is ``rate`` or ``load``."""
    ramp_seconds: float | None = None
    num_apart: int = 0
    """Requests at times of their own."""
    workload: Any = None
    scenario: Any = None
    seed: int | None = None
    model: str | None = None
    batching: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    command: str | None = None
    stopped_by: str | None = None
    """Why it has fewer runs than were asked for, if it has."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the target says of itself, such as a server's address."""
    floor: FloorFigures | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    bursts: tuple[RunFigures, ...] = ()
    peers: Mapping[str, PeerFigures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """What tells the kinds of files apart."""

    target: Any = None
    goal: Any = None


def read_document(path: Path) -> Document:
    """Raises `BenchInputError`, which names the file and the key."""
    return decode_document(_read(path), path)


def decode_document(text: bytes, name: object) -> Document:
    """``name`` is what a `BenchInputError` calls it."""
    document = _decode(text, name)
    if isinstance(document, QueueDocument):
        raise BenchInputError(
            f"{name} is of `headway bench --target queue`: it has no requests to show; hold it against another with "
            "`headway bench compare`"
        )
    return document


def read_any_document(path: Path) -> Document | QueueDocument:
    """Raises `BenchInputError`, which names the file and the key."""
    return _decode(_read(path), path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise BenchInputError(f"{path}: {exc.strerror}") from exc


def _decode(text: bytes, name: object) -> Document | QueueDocument:
    try:
        kind = msgspec.json.decode(text, type=_Kind)
        if kind.goal is not None:
            raise BenchInputError(f"{name} is of `headway tune`, and no report of `headway bench --json`")
        if kind.target == "queue":
            return msgspec.json.decode(text, type=QueueDocument)
        return msgspec.json.decode(text, type=Document)
    except msgspec.ValidationError as exc:
        raise BenchInputError(f"{name} is no report of `headway bench --json`: {exc}") from exc
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise BenchInputError(f"{name} is not JSON: {exc}") from exc


def median_of(runs: tuple[RunFigures, ...]) -> RunFigures:
    """The run with the median throughput (of an even number, the lower one in the middle)."""
    return sorted(runs, key=lambda run: run.output_tokens_per_s)[(len(runs) - 1) // 2]
