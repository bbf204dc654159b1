"""Payloads that mean harm: each has one answer, which says what is wrong, and costs no more than its own size."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.broker.config import JobLimits
from headway.broker.errors import PayloadRejected
from headway.broker.job_codec import decode_job
from headway.core.errors import RejectCode
from headway.core.job import Job

MIB = 2**20
MEMORY_FACTOR = 128
"""Bytes that one byte of a payload may take while it is read; a list of one-digit numbers takes the most."""


def decode(payload: bytes) -> Job:
    return decode_job("default", "acme", payload, 7, JobLimits())


def rejection(payload: bytes) -> PayloadRejected:
    with pytest.raises(PayloadRejected) as caught:
        decode(payload)
    return caught.value


def filled(start: str, part: str, end: str, size: int = MIB) -> bytes:
    """As many parts as ``size`` bytes hold, separated by commas."""
    num_parts = (size - len(start) - len(end)) // (len(part) + 1)
    return (start + ",".join([part] * num_parts) + end).encode()


def numbered(start: str, part: str, end: str, num_parts: int) -> bytes:
    return (start + ",".join(part.replace("#", str(number)) for number in range(num_parts)) + end).encode()


HUGE = {
    "a million stop strings": (filled('{"id":"a","prompt":"x","stop":[', '"s"', "]}"), "stop"),
    "a million stop tokens": (filled('{"id":"a","prompt":"x","stop_token_ids":[', "1", "]}"), "stop_token_ids"),
    "an enormous logit bias": (numbered('{"id":"a","prompt":"x","logit_bias":{', '"#":1', "}}", 80_000), "logit_bias"),
    "very many unknown names": (numbered('{"id":"a","prompt":"x",', '"n#":1', "}", 80_000), "n0"),
    "very many empty messages": (filled('{"id":"a","messages":[', "{}", "]}"), "messages"),
    "one long stop string": (b'{"id":"a","prompt":"x","stop":"' + b"s" * (MIB - 40) + b'"}', "stop"),
    "deep arrays": (b'{"id":"a","prompt":' + b"[" * (MIB // 2), None),
    "deep objects": (b'{"a":' * (MIB // 8), None),
    "deep below a known field": (b'{"id":"a","stop":' + b"[" * 190 + b"]" * 190 + b"}", "stop.0"),
    "a number of very many digits": (b'{"id":"a","prompt":"x","seed":' + b"9" * (MIB - 40) + b"}", None),
    "a fraction of very many digits": (b'{"id":"a","prompt":"x","top_p":1.' + b"9" * (MIB - 40) + b"1e9}", "top_p"),
    "an exponent out of all bounds": (b'{"id":"a","prompt":"x","temperature":1e999999999}', None),
    "token ids of very many digits": (filled('{"id":"a","prompt":[', "9" * 4000, "]}"), "prompt.0"),
    "one name very many times": (filled('{"id":"a","prompt":"x",', '"seed":1', "}"), "seed"),
    "a very long name": (b'{"id":"a","' + b"n" * (MIB - 40) + b'":1}', "n" * 64),
    "a very long id": (b'{"id":"' + b"a" * (MIB - 40) + b'","prompt":"x"}', "id"),
    "nothing but NUL": (b"\0" * MIB, None),
    "a text of NUL": (b'{"id":"a","prompt":"' + b"\\u0000" * (MIB // 7) + b'"}', "prompt"),
    "a text of lone surrogates": (b'{"id":"a","prompt":"' + b"\\ud800" * (MIB // 7) + b'"}', None),
    "a name of lone surrogates": (b'{"id":"a","prompt":"x","\\udfff":1}', None),
}


@pytest.mark.parametrize(("payload", "field"), HUGE.values(), ids=HUGE)
def test_a_hostile_payload_has_one_short_answer_and_costs_no_more_than_its_size(
    payload: bytes, field: str | None
) -> None:
    assert len(payload) <= MIB
    tracemalloc.start()
    try:
        fault = rejection(payload)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert field is None or fault.field == field
    assert len(str(fault)) < 400
    assert peak < MEMORY_FACTOR * len(payload) + MIB


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        (b'{"id":"a","prompt":"x","prompt":"y"}', "prompt"),
        (b'{"id":"a","max_tokens":1,"prompt":"x","max_tokens":1}', "max_tokens"),
        (b'{"id":"a","prompt":"x","\\u0070rompt":"y"}', "prompt"),
        (b'{"id":"a","messages":[{"role":"user","content":"x"},{"role":"u","role":"v","content":"x"}]}', "role"),
        (b'{"id":"a","prompt":"x","logit_bias":{"5":1,"5":-1}}', "5"),
    ],
)
def test_a_name_that_is_given_twice_is_rejected_in_the_jobs_own_name(payload: bytes, name: str) -> None:
    fault = rejection(payload)
    assert (fault.code, fault.field, fault.message) == (RejectCode.INVALID_JSON, name, "is given twice")
    assert fault.key == ("acme", "a")


def test_two_ids_are_nobodys_identity() -> None:
    fault = rejection(b'{"id":"a","prompt":"x","id":"b"}')
    assert (fault.field, fault.key) == ("id", None)


@pytest.mark.parametrize("token", [-1, 2**31, 2**63, 10**30])
@pytest.mark.parametrize("field", ["prompt", "stop_token_ids"])
def test_token_ids_that_no_vocabulary_has_are_rejected(field: str, token: int) -> None:
    fields = {"id": "a", "prompt": "x", field: [1, token]}
    assert rejection(json.dumps(fields).encode()).field.startswith(field)


# -- anything at all -------------------------------------------------------------------------------------------------


@given(st.binary(max_size=64).map(lambda middle: b'{"id":"a","prompt":"' + middle + b'"}'))
def test_any_bytes_inside_a_job_are_a_job_or_one_rejection(payload: bytes) -> None:
    try:
        job = decode(payload)
    except PayloadRejected:
        return
    assert decode(payload) == job
