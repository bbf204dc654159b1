"""What is printed of a job: its text as it comes, and for machines one JSON object."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headway.commands.job_names import shown
from headway.core.job import FinishReason, JobKey

if TYPE_CHECKING:
    from headway.broker.job_stream import JobStream
    from headway.broker.results import JobResult
    from headway.core.errors import HeadwayError


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one job went: a result (which may tell of a rejection), or the error that kept us from having one."""

    key: JobKey
    result: JobResult | None
    error: HeadwayError | None = None

    @property
    def is_complete(self) -> bool:
        return self.result is not None and self.result.is_complete

    @property
    def complaint(self) -> str:
        """Why it is not complete, on one line."""
        if self.result is None:
            return f"{shown(self.key)}: {self.error}"
        error = self.result.error
        if error is None:
            return f"{shown(self.key)}: {self.result.finish_reason}"
        field = f"{error.field}: " if error.field else ""
        return f"{shown(self.key)}: {self.result.finish_reason} ({error.code}): {field}{error.message}"


async def print_stream(stream: JobStream, on_news: Callable[[], None]) -> Outcome:
    """Prints the text to stdout while it comes, and figures to stderr if that is a terminal. ``on_news`` is called for
    every piece. The last line is ended whatever happens: an error begins a line of its own."""
    is_open_line = False
    try:
        async for chunk in stream:
            on_news()
            click.echo(printable(chunk.text) if sys.stdout.isatty() else chunk.text, nl=False)
            is_open_line = not chunk.text.endswith("\n") if chunk.text else is_open_line
    finally:
        if is_open_line:
            click.echo()
    result = await stream.result()
    if sys.stderr.isatty():
        click.secho(_figures(result), err=True, dim=True)
    return Outcome(stream.key, result)


def printable(text: str) -> str:
    """``text`` without control characters other than line breaks and tabs: a model must not steer the terminal."""
    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) != "Cc")


def complain(outcome: Outcome) -> None:
    """To stderr, if there is something."""
    if not outcome.is_complete:
        click.echo(f"headway: {outcome.complaint}", err=True)


def print_json(outcome: Outcome) -> None:
    """One line. ``finish_reason`` is null if there is no result; then ``error`` says why."""
    click.echo(json.dumps(as_json(outcome), ensure_ascii=False))


def as_json(outcome: Outcome) -> dict[str, Any]:
    import msgspec

    head = {"tenant": outcome.key.tenant, "id": outcome.key.id}
    if outcome.result is None:
        error = {"code": type(outcome.error).__name__, "field": None, "message": str(outcome.error)}
        return {**head, "text": None, "finish_reason": None, "error": error}
    fields: dict[str, Any] = msgspec.to_builtins(outcome.result)
    return {**head, **fields}


def _figures(result: JobResult) -> str:
    usage, timings = result.usage, result.timings
    words = [f"{usage.prompt_tokens} + {usage.completion_tokens} tokens"]
    if result.finish_reason is not FinishReason.STOP:
        words.append(f"ended by {result.finish_reason}")
    if timings.queue_seconds is not None:
        words.append(f"queued {timings.queue_seconds:.2f} s")
    if timings.prefill_seconds is not None:
        words.append(f"first token after {timings.prefill_seconds:.2f} s more")
    if timings.decode_seconds and usage.completion_tokens > 1:
        words.append(f"{(usage.completion_tokens - 1) / timings.decode_seconds:.1f} tokens/s")
    return "[" + ", ".join(words) + "]"
