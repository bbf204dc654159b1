"""Records of a job's log as JSON, and back.

    {"kind": "attempt",  "number": 1, "grant": [epoch, number], "worker": "...", "payload_hash": "..."}
    {"kind": "tokens",   "seq": 0, "token_start": 0, "token_ids": [...], "text": "...",
                         "logprobs": [{"logprob": -0.1, "top": [[token id, log-probability], ...]}, ...] or null}
    {"kind": "released", "reason": "...", "grant": [epoch, number]}
    {"kind": "end",      "finish_reason": "stop", "error": {"code", "field", "message"} or null,
                         "usage": {...}, "timings": {...}}

The fields are those of `core.records`, in their order. Reading is open: keys that this version does not know are
ignored and absent ones take their default, so that versions can meet during a rolling update.
"""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec

from headway.broker.errors import RecordInvalid, UnknownKind
from headway.core.records import Attempt, End, Record, Released, TokenLogprobs, Tokens

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity (a token that was ruled out), which JSON cannot say."""

_KINDS: dict[str, type[Record]] = {"attempt": Attempt, "tokens": Tokens, "released": Released, "end": End}
_PREFIXES = {kind: b'{"kind":"' + name.encode() + b'",' for name, kind in _KINDS.items()}


class _Kind(msgspec.Struct):
    kind: str


_encoder = msgspec.json.Encoder()
_kind_decoder = msgspec.json.Decoder(_Kind)
_decoders = {name: msgspec.json.Decoder(kind) for name, kind in _KINDS.items()}


def encode_record(record: Record) -> bytes:
    """One JSON object with ``kind`` first."""
    if isinstance(record, Tokens) and record.logprobs is not None:
        record = replace(record, logprobs=tuple(_finite(logprobs) for logprobs in record.logprobs))
    return _PREFIXES[type(record)] + _encoder.encode(record)[1:]


def decode_record(data: bytes) -> Record:
    """Raises `UnknownKind` for a kind of a later version, `RecordInvalid` for anything else that is no record."""
    try:
        kind = _kind_decoder.decode(data).kind
        decoder = _decoders.get(kind)
        if decoder is None:
            raise UnknownKind(kind)
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise RecordInvalid(f"not a record: {exc}") from exc


def _finite(logprobs: TokenLogprobs) -> TokenLogprobs:
    top = tuple((token_id, _at_least(value)) for token_id, value in logprobs.top)
    return TokenLogprobs(_at_least(logprobs.logprob), top)


def _at_least(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LEAST_LOGPROB
