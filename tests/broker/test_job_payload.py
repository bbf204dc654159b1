"""A job's fields as bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headway.broker.client import Client
from headway.broker.job_payload import encode_fields
from headway.core.errors import JobRejected


def test_absent_fields_are_left_out_and_the_others_are_as_they_were_given() -> None:
    fields = {"prompt": [1, 2], "seed": None, "stop": ("a", "ü"), "temperature": 0.5}
    assert json.loads(encode_fields(fields)) == {"prompt": [1, 2], "stop": ["a", "ü"], "temperature": 0.5}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("prompt", "half \udcff", "no Unicode text"),
        ("prompt", object(), "JSON cannot hold it"),
        ("messages", [{"role": "user", "content": "\ud800"}], "no Unicode text"),
        ("stop", [{1}, object()], "JSON cannot hold it"),
        ("seed", 1j, "JSON cannot hold it"),
    ],
)
async def test_a_value_that_cannot_be_written_is_rejected_by_its_name(field: str, value: Any, words: str) -> None:
    with pytest.raises(JobRejected, match=words) as caught:
        Client.connect().submit(**{field: value})
    assert caught.value.field == field
