"""Structured logs: one line per event, for people or as JSON, with the job and the trace as fields.

Prompts and outputs are never logged: log the job's key, which leads to everything else.

    log = logging.getLogger(__name__)
    log.info("granted", extra=job_fields(key, traceparent))
"""

from __future__ import annotations

import json
import logging
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

from headway.core.job import JobKey
from headway.telemetry.config import LogFormat, LogLevel, TelemetryConfig
from headway.telemetry.traceparent import parse_traceparent

PACKAGE = "headway"
FIELDS = "fields"
"""The attribute of a log record that carries our structured fields."""


def configure_logs(config: TelemetryConfig, stream: TextIO | None = None) -> logging.Handler:
    """Sends everything that the process logs to ``stream`` (stderr), in one format; may be called again.

    Our own messages from ``log_level`` on, those of libraries from WARNING on. Logging is global in Python, so
    only a composition root calls this.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if config.log_format is LogFormat.JSON else TextFormatter())
    handler.set_name(PACKAGE)
    root = logging.getLogger()
    for old in [old for old in root.handlers if old.get_name() == PACKAGE]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger(PACKAGE).setLevel(config.log_level.upper())
    return handler


@dataclass(frozen=True, slots=True)
class LogStyle:
    """How a process logs."""

    level: LogLevel
    format: LogFormat


def log_style() -> LogStyle:
    """How this process logs our own messages, so that its children do it alike."""
    root, threshold = logging.getLogger(), logging.getLogger(PACKAGE).getEffectiveLevel()
    is_json = any(isinstance(handler.formatter, JsonFormatter) for handler in root.handlers)
    levels = [level for level in LogLevel if logging.getLevelName(level.upper()) >= threshold]
    return LogStyle(levels[0] if levels else LogLevel.ERROR, LogFormat.JSON if is_json else LogFormat.TEXT)


def fields(**values: object) -> dict[str, dict[str, object]]:
    """Structured fields for ``extra=``; None is left out."""
    return {FIELDS: {name: value for name, value in values.items() if value is not None}}


def job_fields(key: JobKey, traceparent: str | None = None, **values: object) -> dict[str, dict[str, object]]:
    """The fields of a message about one job."""
    trace = parse_traceparent(traceparent)
    trace_id = f"{trace.trace_id:032x}" if trace else None
    return fields(tenant=key.tenant, job=key.id, trace_id=trace_id, **values)


class TextFormatter(logging.Formatter):
    """``17:34:05.123 INFO    broker.intake  fetched 12 jobs  tenant=acme job=a1``"""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        name = record.name.removeprefix(PACKAGE + ".")
        pairs = "".join(f" {name}={_quoted(value)}" for name, value in _fields_of(record).items())
        line = f"{clock}.{int(record.msecs):03d} {record.levelname:<7} {name}  {record.getMessage()}"
        return line + (" " + pairs if pairs else "") + _traceback_of(self, record)


class JsonFormatter(logging.Formatter):
    """``{"time": …, "level": …, "logger": …, "message": …, "tenant": …, "job": …, "trace_id": …}``"""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields_of(record),
        }
        traceback = _traceback_of(self, record).strip()
        if traceback:
            entry["exception"] = traceback
        return json.dumps(entry, ensure_ascii=False, default=str)


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    found = getattr(record, FIELDS, {})
    return found if isinstance(found, dict) else {}


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c.isspace() or c in '"=' for c in text) else text


def _traceback_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return "\n" + formatter.formatException(record.exc_info) if record.exc_info else ""
