"""A job's fields as the bytes that are published; a value that has no such form is named before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headway.core.errors import JobRejected, RejectCode


def encode_fields(fields: Mapping[str, Any]) -> bytes:
    """One JSON object, without the fields that are None. Raises `JobRejected` with the field that cannot be written."""
    values = {name: _encoded(name, value) for name, value in fields.items() if value is not None}
    return msgspec.json.encode(values)


def _encoded(name: str, value: Any) -> msgspec.Raw:
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except UnicodeEncodeError as exc:
        message = "holds a lone surrogate, so it is no Unicode text: decode it with the encoding that it has"
        raise JobRejected(RejectCode.INVALID_VALUE, name, message) from exc
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        message = f"JSON cannot hold it ({exc}): give text, numbers, lists and dicts with text as keys"
        raise JobRejected(RejectCode.INVALID_VALUE, name, message) from exc
