"""The fields of a job as flags, read off `SamplingParams` and `Job`, and as they stand in a file of jobs."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Any

import click

from headway.commands.flags import add_options
from headway.core.errors import JobRejected
from headway.core.job import JOB_ID, RESERVED_ID_MESSAGE, RESERVED_JOB_ID, Job, JobKey, SamplingParams
from headway.settings.fields import attribute_docstrings

JOB_FIELDS = ("priority", "deadline_seconds", "expected_tokens")
CONTENT_FIELDS = ("id", "prompt", "messages", "stream")
"""Fields that have no flag of this kind."""
HELPS = {
    "logit_bias": "Add X to the logit of the token TOKEN_ID.",
    "logprobs": attribute_docstrings(SamplingParams)["logprobs"] + " Shown with --json only.",
}
"""Where the field's own words do not fit its flag."""
HEADING = "Sampling and scheduling of the job"


@cache
def option_names() -> tuple[str, ...]:
    """Fields that are flags."""
    return (*(field.name for field in dataclasses.fields(SamplingParams)), *JOB_FIELDS)


def job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command a flag for every field, as an argument of its name; None or empty means that it was not given."""
    hints = {**typing.get_type_hints(Job), **typing.get_type_hints(SamplingParams)}
    helps = {**attribute_docstrings(Job), **attribute_docstrings(SamplingParams), **HELPS}
    defaults = {field.name: field.default for cls in (Job, SamplingParams) for field in dataclasses.fields(cls)}
    options = [JobOption(name, hints[name], helps.get(name, ""), defaults[name]) for name in option_names()]
    return add_options(function, options)


def given_fields(values: dict[str, Any]) -> dict[str, Any]:
    """The fields that were given, in the wire's form."""
    fields = {name: values[name] for name in option_names() if values[name] not in (None, ())}
    if "logit_bias" in fields:
        fields["logit_bias"] = dict(fields["logit_bias"])
    return fields


def check_names(fields: dict[str, Any], where: str) -> None:
    """Raises a usage error for a field that no job has; what the fields say is checked by the queue."""
    known = (*CONTENT_FIELDS, *option_names())
    for name in fields:
        if name not in known:
            nearest = get_close_matches(name, known, n=1)
            raise click.UsageError(
                f"{where}: no field {name!r}" + (f"; did you mean {nearest[0]!r}?" if nearest else "")
            )


def check_id(job_id: Any, where: str) -> None:
    """Raises a usage error for an id that no job may have; None is no id."""
    if job_id is None:
        return
    if not (isinstance(job_id, str) and JOB_ID.fullmatch(job_id)):
        raise click.UsageError(f"{where}: the id {job_id!r} must match [A-Za-z0-9_-]{{1,128}}")
    if RESERVED_JOB_ID.fullmatch(job_id):
        raise click.UsageError(f"{where}: the id {job_id!r} cannot be given: {RESERVED_ID_MESSAGE}")


def check_values(options: Mapping[str, Any]) -> None:
    """Raises a usage error for a flag whose value no job may have. Whether there are fewer ``min_tokens`` than
    ``max_tokens`` is for the queue to say: a job of a file may bring either itself."""
    given = {name: value for name, value in options.items() if name != "min_tokens"}
    bias = tuple((int(token), value) for token, value in given.pop("logit_bias", {}).items())
    own = {name: given.pop(name) for name in JOB_FIELDS if name in given}
    try:
        sampling = SamplingParams(**given, logit_bias=bias)
        Job(JobKey("any", "any"), "any", "", "any", sampling=sampling, **own)
    except JobRejected as error:
        raise click.UsageError(f"--{(error.field or '').replace('_', '-')}: {error.message}") from error


def check_text(fields: Mapping[str, Any], where: str) -> None:
    """Raises a usage error for text with bytes that could not be decoded, or with half of a surrogate pair, and for
    what no JSON reader would follow to its bottom."""
    for name, value in fields.items():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise click.UsageError(f"{where}: {name} is not Unicode text: write it in UTF-8") from error
        except RecursionError as error:
            raise click.UsageError(f"{where}: {name} is nested too deeply") from error


class JobOption(click.Option):
    """One field: a switch for a bool, given several times for a list."""

    heading = HEADING

    def __init__(self, name: str, annotation: Any, help_text: str, default: Any) -> None:
        flag = "--" + name.replace("_", "-")
        shown = "" if default in (None, (), False) else f"[default: {default}]"
        is_list = typing.get_origin(annotation) is tuple
        if is_list:
            shown = "Give it several times for several."
        super().__init__(
            [f"{flag}/--no-{flag.removeprefix('--')}" if annotation is bool else flag, name],
            default=None,
            type=_click_type(annotation),
            multiple=is_list,
            help=f"{help_text} {shown}".strip(),
        )


class TokenBias(click.ParamType):
    name = "TOKEN_ID=X"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        token, equals, bias = str(value).partition("=")
        try:
            if equals:
                return str(int(token)), float(bias)
        except ValueError:
            pass
        self.fail(f"{value!r}: write a token id and a number, like 1234=-5", param, ctx)


def _click_type(annotation: Any) -> Any:
    """Of one value."""
    if annotation == tuple[tuple[int, float], ...]:
        return TokenBias()
    if typing.get_origin(annotation) is tuple:
        return typing.get_args(annotation)[0]
    if isinstance(annotation, UnionType):
        return next(kind for kind in typing.get_args(annotation) if kind is not type(None))
    return annotation
