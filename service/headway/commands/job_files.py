"""Where the jobs of `headway submit` come from: arguments, a file, or standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from headway.commands.job_fields import check_id, check_names, check_text


@dataclass(frozen=True, slots=True)
class PromptStyle:
    """How a prompt that is plain text becomes a job."""

    is_raw: bool
    """As the model's input itself; otherwise as the user's message of a chat."""
    system: str | None = None
    """The chat's first message."""

    def fields(self, text: str) -> dict[str, Any]:
        if self.is_raw:
            return {"prompt": text}
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return {"messages": [*system, {"role": "user", "content": text}]}


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One job to submit."""

    title: str
    """What a person recognises it by: its prompt, on one line."""
    fields: dict[str, Any]


def read_requests(
    prompts: Iterable[str], file: Iterable[str] | None, style: PromptStyle, options: dict[str, Any]
) -> list[JobRequest]:
    """The jobs, in order; ``options`` are the fields for all that do not have them. Raises a usage error."""
    check_text({"--system": style.system, **options}, "options")
    requests = [_from_text(prompt, "the prompt", style, options) for prompt in prompts]
    if file is None and not requests and not sys.stdin.isatty():
        file = sys.stdin
    requests += _from_lines(file or (), style, options)
    if not requests:
        raise click.UsageError("give a prompt, --file, or prompts on standard input, one per line")
    return requests


def _from_lines(lines: Iterable[str], style: PromptStyle, options: dict[str, Any]) -> Iterator[JobRequest]:
    for number, line in enumerate(_decoded(lines), start=1):
        text = line.strip()
        if text.startswith("{"):
            yield _from_json(text, f"line {number}", options)
        elif text:
            yield _from_text(text, f"line {number}", style, options)


def _decoded(lines: Iterable[str]) -> Iterator[str]:
    """A file is decoded in blocks, so the line of what is wrong in it is not known."""
    try:
        yield from lines
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"{getattr(lines, 'name', 'the input')}: is not {error.encoding.upper()} text ({error.reason}): "
            "convert it, for instance with `iconv -f latin1 -t utf-8`"
        ) from error


def _from_text(text: str, where: str, style: PromptStyle, options: dict[str, Any]) -> JobRequest:
    if not text.strip():
        raise click.UsageError(f"{where}: must not be empty")
    check_text({"the text": text}, where)
    return JobRequest(_one_line(text), {**options, **style.fields(text)})


def _from_json(text: str, where: str, options: dict[str, Any]) -> JobRequest:
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise click.UsageError(
            f"{where}: begins like a JSON job, but {error.msg} at character {error.pos + 1}"
        ) from error
    except RecursionError as error:
        raise click.UsageError(f"{where}: is nested too deeply to be a job") from error
    check_names(fields, where)
    check_id(fields.get("id"), where)
    check_text(fields, where)
    return JobRequest(_one_line(_title(fields)), {**options, **fields})


def _title(fields: dict[str, Any]) -> str:
    messages = fields.get("messages")
    if isinstance(messages, list) and messages and isinstance(messages[-1], dict):
        return str(messages[-1].get("content", ""))
    return str(fields.get("prompt", ""))


def _one_line(text: str) -> str:
    return " ".join(text.split())
