"""What a process tells about itself, to whom, and how much."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.core.errors import SettingError

OTLP_TIMEOUT_SECONDS = 3
"""For one export, retries included: what a process waits at its end, at most, for a collector that does not answer."""


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    TEXT = "text"
    """For people."""
    JSON = "json"
    """One object per line, for machines."""


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    metrics_listen: str = "127.0.0.1:0"
    """host:port of the Prometheus endpoint /metrics; without a host (:9464) it listens on every IPv4 address. Port 0
    takes a free one, which the log names."""
    otlp_endpoint: str | None = None
    """Address of an OpenTelemetry collector (OTLP over gRPC, like http://127.0.0.1:4317) that gets traces and metrics
    too."""
    otlp_interval_seconds: float = 15.0
    """Seconds between two exports of metrics to otlp_endpoint."""
    max_tenant_labels: int = 100
    """Tenants that get a label of their own in metrics, in order of appearance; all others share the label other."""
    trace_sampling_ratio: float = 1.0
    """Share of the jobs that are traced. A job whose client sent a traceparent follows the client's own choice."""
    step_span_ratio: float = 0.01
    """Share of the engine's steps that get a span of their own."""
    log_level: LogLevel = LogLevel.INFO
    """Least important messages that are logged: debug, info, warning or error."""
    log_format: LogFormat = LogFormat.TEXT
    """text for people, json (one object per line) for machines."""
    log_prompts: bool = False
    """Put prompts and outputs into spans. They are in no log and no span otherwise."""

    def __post_init__(self) -> None:
        for name in ("trace_sampling_ratio", "step_span_ratio"):
            _check(0.0 <= getattr(self, name) <= 1.0, name, getattr(self, name), "must be ≥ 0 and ≤ 1")
        _check(self.otlp_interval_seconds > 0, "otlp_interval_seconds", self.otlp_interval_seconds, "must be > 0")
        _check(self.max_tenant_labels >= 0, "max_tenant_labels", self.max_tenant_labels, "must be ≥ 0")
        _check(self.log_level in set(LogLevel), "log_level", self.log_level, f"use one of {', '.join(LogLevel)}")
        _check(self.log_format in set(LogFormat), "log_format", self.log_format, f"use one of {', '.join(LogFormat)}")
        parse_listen("metrics_listen", self.metrics_listen)


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(setting: str, text: str) -> Address:
    """``host:port``, ``:port`` (every IPv4 address) or ``[::]:port``. Raises ``SettingError`` for anything else."""
    host, colon, port = text.rpartition(":")
    _check(
        bool(colon) and port.isdecimal() and int(port) < 65536,
        setting,
        text,
        "write host:port, like 127.0.0.1:9464 or :9464",
    )
    is_bracketed = host.startswith("[") and host.endswith("]")
    _check(is_bracketed or ":" not in host, setting, text, "put an IPv6 address in brackets, like [::1]:9464")
    return Address(host.strip("[]") or "0.0.0.0", int(port))


def _check(holds: bool, setting: str, value: object, fix: str) -> None:
    if not holds:
        raise SettingError(setting, value, fix)
