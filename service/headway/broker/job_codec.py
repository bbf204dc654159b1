"""From the bytes that a client published to a `Job`, or to one clear rejection.

The payload is JSON that a person can type, shaped like OpenAI's requests (README, job fields). Everything is bounded
before it is looked at more closely: bytes before parsing, nesting by the parser (200 levels), the number of
entries before they are validated. Then `job_fields` checks types, strictly and without unknown fields, and `core.job`
checks ranges. The first fault found is the answer: one code, one field, one sentence.

The identity is read as early as possible, so that a client whose job has a fault finds the rejection in its own
log. It is unknown (``key`` None) only where there is none to know: no JSON object, or an id that may not be used.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from typing import Any

from pydantic_core import from_json

from headway.broker.config import JobLimits
from headway.broker.errors import PayloadRejected
from headway.broker.job_fields import KNOWN, KNOWN_OF_MESSAGE, MAX_TOKEN_ID, Fault, JobFields, validated
from headway.core.errors import JobRejected, RejectCode
from headway.core.job import (
    JOB_ID,
    MAX_LOGIT_BIAS,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
    RESERVED_ID_MESSAGE,
    RESERVED_JOB_ID,
    TOKEN,
    Job,
    JobKey,
    Message,
    SamplingParams,
)

BYTES_PER_TOKEN = 4
"""UTF-8 bytes of text per token: about right for English with today's vocabularies of 50,000 to 150,000 tokens;
other scripts take more bytes a character and more tokens too. An estimate orders the queue; reports correct it."""
MAX_NAME_CHARACTERS = 64
"""Of a name that the client made up, in our answer."""
TOKENS_PER_MESSAGE = 4
"""What a chat template puts around one message, about."""

TOKEN_KEY = re.compile(r"[0-9]{1,10}")
_JOB_FIELDS = ("stream", "priority", "deadline_seconds", "expected_tokens")
_SAMPLING_FIELDS = (
    *("max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "ignore_eos"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "logprobs"),
)
_MAX_ENTRIES = {"stop": MAX_STOP_STRINGS, "stop_token_ids": MAX_STOP_TOKEN_IDS, "logit_bias": MAX_LOGIT_BIAS}


def reserved_key(tenant: str, stream_sequence: int) -> JobKey:
    """The identity of a job that came without an id."""
    return JobKey(tenant, f"j{stream_sequence}")


def decode_job(model: str, tenant: str, payload: bytes, stream_sequence: int, limits: JobLimits) -> Job:
    """The job in ``payload``, published for ``model`` by ``tenant`` as ``stream_sequence``.

    Raises `PayloadRejected`, whatever the bytes are.
    """
    key: JobKey | None = None
    payload_hash = ""
    try:
        _check_subject(model, tenant)
        _check_size(payload, limits)
        payload_hash = hashlib.sha256(payload).hexdigest()
        fields = _parse(payload)
        repeated = _repeated_name(payload)
        if repeated == "id":
            raise _given_twice(repeated)
        key = _key(tenant, fields.get("id"), stream_sequence)
        if repeated is not None:
            raise _given_twice(repeated)
        _check_names(fields)
        _check_entries(fields, limits)
        return _job(key, model, payload_hash, validated(fields))
    except (Fault, JobRejected) as fault:
        raise PayloadRejected(fault.code, fault.field, fault.message, key, payload_hash) from None


def estimate_prompt_tokens(job: Job) -> int:
    """Tokens of the prompt: exact for token ids, by `BYTES_PER_TOKEN` for text (no tokenizer here)."""
    if isinstance(job.prompt, tuple):
        return len(job.prompt)
    if job.prompt is not None:
        return _tokens_of(job.prompt)
    return sum(_tokens_of(message.content) + TOKENS_PER_MESSAGE for message in job.messages or ())


def _tokens_of(text: str) -> int:
    return max(1, math.ceil(len(text.encode()) / BYTES_PER_TOKEN))


def _check_subject(model: str, tenant: str) -> None:
    for name, token in (("model", model), ("tenant", tenant)):
        if not TOKEN.fullmatch(token):
            raise Fault(RejectCode.INVALID_VALUE, name, "the subject's token must match [a-z0-9-]{1,63}")


def _check_size(payload: bytes, limits: JobLimits) -> None:
    if len(payload) > limits.max_job_bytes:
        message = f"the job has {len(payload)} bytes; at most {limits.max_job_bytes} are allowed"
        raise Fault(RejectCode.TOO_LARGE, None, message)


def _parse(payload: bytes) -> dict[str, Any]:
    try:
        fields = from_json(payload, allow_inf_nan=False)
    except ValueError as exc:
        raise Fault(RejectCode.INVALID_JSON, None, f"not a JSON object: {exc}") from None
    if not isinstance(fields, dict):
        raise Fault(RejectCode.INVALID_JSON, None, f"must be a JSON object, not {_json_kind(fields)}")
    return fields


class _Repeated(Exception):
    """Carries the name."""


def _repeated_name(payload: bytes) -> str | None:
    """A name that stands twice in one object, which JSON leaves open: some take the first, some the last, so that one
    program checks what another does not do. ``payload`` is JSON, and nested less deeply than this parser can follow."""
    try:
        _REPEATS.decode(payload.decode())
    except _Repeated as exc:
        return str(exc.args[0])
    return None


def _without_repeats(pairs: list[tuple[str, Any]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) == len(pairs):
        return
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise _Repeated(name)
        seen.add(name)


_REPEATS = json.JSONDecoder(object_pairs_hook=_without_repeats, parse_int=len, parse_float=len)


def _given_twice(name: str) -> Fault:
    return Fault(RejectCode.INVALID_JSON, name[:MAX_NAME_CHARACTERS], "is given twice")


def _key(tenant: str, job_id: object, stream_sequence: int) -> JobKey:
    if job_id is None:
        return reserved_key(tenant, stream_sequence)
    if not isinstance(job_id, str) or not JOB_ID.fullmatch(job_id):
        raise Fault(RejectCode.INVALID_VALUE, "id", "must be a string that matches [A-Za-z0-9_-]{1,128}")
    if RESERVED_JOB_ID.fullmatch(job_id):
        raise Fault(RejectCode.INVALID_VALUE, "id", RESERVED_ID_MESSAGE)
    return JobKey(tenant, job_id)


def _check_names(fields: dict[str, Any]) -> None:
    """Before pydantic does: it would report every unknown name, and there may be very many."""
    _check_known("", fields, KNOWN)
    messages = fields.get("messages")
    for number, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict):
            _check_known(f"messages.{number}.", message, KNOWN_OF_MESSAGE)


def _check_known(path: str, fields: dict[str, Any], known: frozenset[str]) -> None:
    """Names the nearest known field; what the client wrote is cut, since it may be long."""
    if fields.keys() <= known:
        return
    name = next(name for name in fields if name not in known)[:MAX_NAME_CHARACTERS]
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise Fault(RejectCode.UNKNOWN_FIELD, path + name, "no such field" + hint)


def _check_entries(fields: dict[str, Any], limits: JobLimits) -> None:
    """The number of entries, before any entry is looked at."""
    for name, most in (*_MAX_ENTRIES.items(), ("prompt", limits.max_prompt_ids), ("messages", limits.max_messages)):
        value = fields.get(name)
        if isinstance(value, list | dict) and len(value) > most:
            message = f"has {len(value)} entries; at most {most} are allowed"
            code = RejectCode.TOO_LONG if name == "prompt" else RejectCode.INVALID_VALUE
            raise Fault(code, name, message)


def _job(key: JobKey, model: str, payload_hash: str, fields: JobFields) -> Job:
    _check_text(fields)
    return Job(
        key=key,
        model=model,
        payload_hash=payload_hash,
        prompt=tuple(fields.prompt) if isinstance(fields.prompt, list) else fields.prompt,
        messages=None if fields.messages is None else tuple(Message(m.role, m.content) for m in fields.messages),
        sampling=SamplingParams(
            stop=_stop(fields.stop),
            stop_token_ids=tuple(fields.stop_token_ids),
            logit_bias=tuple((_token_id(key), bias) for key, bias in fields.logit_bias.items()),
            **{name: getattr(fields, name) for name in _SAMPLING_FIELDS},
        ),
        **{name: getattr(fields, name) for name in _JOB_FIELDS},
    )


def _check_text(fields: JobFields) -> None:
    """NUL is legal JSON, but not text; C code behind tokenizers and terminals may stop at it."""
    texts = [("prompt", fields.prompt if isinstance(fields.prompt, str) else "")]
    texts += [("stop", text) for text in _stop(fields.stop)]
    for number, message in enumerate(fields.messages or ()):
        texts += [(f"messages.{number}.role", message.role), (f"messages.{number}.content", message.content)]
    for name, text in texts:
        if "\0" in text:
            raise Fault(RejectCode.INVALID_VALUE, name, "must not hold NUL characters")


def _stop(stop: str | list[str] | None) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop or ())


def _token_id(text: str) -> int:
    if not TOKEN_KEY.fullmatch(text) or int(text) > MAX_TOKEN_ID:
        raise Fault(RejectCode.INVALID_VALUE, "logit_bias", "its keys must be token ids, as strings")
    return int(text)


def _json_kind(value: object) -> str:
    kinds: dict[type, str] = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")
