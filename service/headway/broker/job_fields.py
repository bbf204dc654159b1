"""The wire's fields of a job, their types, and what is wrong with a job that has others.

pydantic checks them, strictly and without unknown fields; what it finds is said in our words, one fault at a time. The
meaning of the fields and their ranges are those of `core.job`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from headway.core.errors import RejectCode
from headway.core.job import DEFAULT_MAX_TOKENS, MAX_SEED

MAX_TOKEN_ID = 2**31 - 1
TokenId = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]
Count = Annotated[int, Field(ge=-MAX_TOKEN_ID, le=MAX_TOKEN_ID)]
"""`core.job` knows what the least is; here a number is only kept to a size that can be meant."""
Seed = Annotated[int, Field(ge=-MAX_SEED, le=MAX_SEED)]


class MessageFields(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: str


class JobFields(BaseModel):
    """The wire's fields; `core.job` gives their meaning. Numbers too large to be meant are wrong values."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    id: str | None = None
    prompt: str | Annotated[list[TokenId], Field(fail_fast=True)] | None = None
    messages: Annotated[list[MessageFields], Field(fail_fast=True)] | None = None
    max_tokens: Count = DEFAULT_MAX_TOKENS
    min_tokens: Count = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: Count = 0
    min_p: float = 0.0
    seed: Seed | None = None
    stop: str | Annotated[list[str], Field(fail_fast=True)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(fail_fast=True, default_factory=list)]
    ignore_eos: bool = False
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Annotated[dict[str, float], Field(default_factory=dict)]
    logprobs: Count | None = None
    stream: bool = True
    priority: Count = 0
    deadline_seconds: float | None = None
    expected_tokens: Count | None = None


KNOWN = frozenset(JobFields.model_fields)
KNOWN_OF_MESSAGE = frozenset(MessageFields.model_fields)
_UNIONS = ("prompt", "stop")
_WORDS = {
    "missing": "must be given",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is out of range",
    "float_type": "must be a number",
    "finite_number": "must be a number",
    "string_type": "must be a string",
    "string_too_short": "must not be empty",
    "bool_type": "must be true or false",
    "list_type": "must be an array",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "greater_than_equal": "must be ≥ {ge}",
    "less_than_equal": "must be ≤ {le}",
    "string_too_long": "must have at most {max_length} characters",
}
"""What we say for pydantic's kinds of errors, so that all rejections sound alike."""


class Fault(Exception):
    """What is wrong, before it is known whom to tell."""

    def __init__(self, code: RejectCode, field: str | None, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.field = field
        self.message = message


def validated(fields: dict[str, Any]) -> JobFields:
    try:
        return JobFields.model_validate(fields)
    except ValidationError as exc:
        raise _fault(exc) from None


def _fault(exc: ValidationError) -> Fault:
    """The first faulty field. A union reports one error per branch: the deepest is the one that was meant."""
    errors = exc.errors(include_url=False, include_input=False)
    errors = [error for error in errors if error["loc"][0] == errors[0]["loc"][0]]
    depth = max(len(error["loc"]) for error in errors)
    deepest = [error for error in errors if len(error["loc"]) == depth]
    field, *inner = deepest[0]["loc"]
    path = ".".join(str(part)[:64] for part in (field, *(inner[1:] if field in _UNIONS else inner)))
    first, *others = [_words(error) for error in (deepest if field in _UNIONS else deepest[:1])]
    message = " or ".join([first, *(words.removeprefix("must be ") for words in others)])
    return Fault(RejectCode.INVALID_VALUE, path, message)


def _words(error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    if context.get("ge", 0) < 0:
        return "is out of range"  # that bound is only there to keep numbers small
    words = _WORDS.get(error["type"])
    return error["msg"] if words is None else words.format_map(context)
