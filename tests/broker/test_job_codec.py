import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.broker.config import JobLimits
from headway.broker.errors import PayloadRejected
from headway.broker.job_codec import decode_job, estimate_prompt_tokens, reserved_key
from headway.core.errors import RejectCode
from headway.core.job import Job, JobKey, Message, SamplingParams

SEQUENCE = 7


def decode(payload: bytes | dict[str, Any], limits: JobLimits | None = None, tenant: str = "acme") -> Job:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return decode_job("default", tenant, data, SEQUENCE, limits or JobLimits())


def rejection(
    payload: bytes | dict[str, Any], limits: JobLimits | None = None, tenant: str = "acme"
) -> PayloadRejected:
    with pytest.raises(PayloadRejected) as caught:
        decode(payload, limits, tenant)
    return caught.value


def test_a_typed_job_is_read_with_its_defaults() -> None:
    job = decode(b'{"id":"a1","prompt":"Hello","max_tokens":32}')
    assert job.key == JobKey("acme", "a1")
    assert job.prompt == "Hello"
    assert job.sampling == SamplingParams(max_tokens=32)
    assert (job.stream, job.priority, job.deadline_seconds, job.expected_tokens) == (True, 0, None, None)


def test_every_field_reaches_the_job() -> None:
    sampling = {
        "max_tokens": 9,
        "min_tokens": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.1,
        "seed": 3,
        "ignore_eos": True,
        "presence_penalty": -1,
        "frequency_penalty": 1.5,
        "repetition_penalty": 1.25,
        "logprobs": 2,
    }
    others = {"stream": False, "priority": 4, "deadline_seconds": 2.5, "expected_tokens": 8}
    lists = {"stop": ["a", "b"], "stop_token_ids": [1, 2], "logit_bias": {"5": 1, "6": -2.5}}
    job = decode({"prompt": [1, 2, 3]} | sampling | others | lists)
    assert job.prompt == (1, 2, 3)
    assert job.sampling == SamplingParams(
        stop=("a", "b"), stop_token_ids=(1, 2), logit_bias=((5, 1.0), (6, -2.5)), **sampling
    )
    assert {name: getattr(job, name) for name in others} == others


def test_messages_are_read_in_order() -> None:
    job = decode({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]})
    assert job.messages == (Message("system", "Be brief."), Message("user", "Hi"))
    assert job.prompt is None


def test_a_single_stop_string_needs_no_list() -> None:
    assert decode({"prompt": "x", "stop": "end"}).sampling.stop == ("end",)


@pytest.mark.parametrize("payload", [{"prompt": "x"}, {"prompt": "x", "id": None}])
def test_a_job_without_an_id_is_named_after_its_stream_sequence(payload: dict[str, Any]) -> None:
    assert decode(payload).key == reserved_key("acme", SEQUENCE) == JobKey("acme", "j7")


def test_equal_payloads_have_equal_hashes_and_others_do_not() -> None:
    assert decode({"prompt": "x"}).payload_hash == decode({"prompt": "x"}).payload_hash
    assert decode({"prompt": "x"}).payload_hash != decode({"prompt": "y"}).payload_hash


@pytest.mark.parametrize(
    "payload",
    [
        *(b"", b"{", b"nonsense", b"[1]", b'"x"', b"null", b'{"prompt":"x"} {}', b'{"prompt":"\xff"}'),
        *(b'{"prompt":"\\ud800"}', b'{"prompt":"\0"}', b'{"prompt":"x","temperature":NaN}', b"[" * 100_000),
        b'{"prompt":"x","seed":' + b"9" * 100_000 + b"}",
    ],
)
def test_what_is_no_json_object_is_rejected_with_no_identity(payload: bytes) -> None:
    error = rejection(payload)
    assert (error.code, error.field, error.key) == (RejectCode.INVALID_JSON, None, None)
    assert "JSON object" in error.message


@pytest.mark.parametrize(
    ("payload", "field", "hint"),
    [
        ({"prompt": "x", "max_token": 3}, "max_token", "max_tokens"),
        ({"prompt": "x", "Temperature": 1}, "Temperature", "temperature"),
        ({"prompt": "x", "qqqq": 1}, "qqqq", "no such field"),
        ({"messages": [{"role": "user", "contents": "x"}]}, "messages.0.contents", "content"),
    ],
)
def test_an_unknown_field_is_rejected_with_the_nearest_known_one(
    payload: dict[str, Any], field: str, hint: str
) -> None:
    error = rejection(payload | {"id": "a1"})
    assert (error.code, error.field, error.key) == (RejectCode.UNKNOWN_FIELD, field, JobKey("acme", "a1"))
    assert hint in error.message


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": [1, "x"]}, "prompt.1"),
        ({"prompt": [1, 2, -3]}, "prompt.2"),
        ({"prompt": "x", "messages": []}, "prompt"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages.0.content"),
        ({"prompt": "x", "max_tokens": 3.0}, "max_tokens"),
        ({"prompt": "x", "max_tokens": "3"}, "max_tokens"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "x", "min_tokens": 300}, "min_tokens"),
        ({"prompt": "x", "temperature": True}, "temperature"),
        ({"prompt": "x", "temperature": -1}, "temperature"),
        ({"prompt": "x", "temperature": 10**400}, "temperature"),
        ({"prompt": "x", "seed": 10**400}, "seed"),
        ({"prompt": "x", "priority": 10**400}, "priority"),
        ({"prompt": "x", "logprobs": 10**400}, "logprobs"),
        ({"prompt": "x", "stream": 1}, "stream"),
        ({"prompt": "x", "stop": ["a", 3]}, "stop.1"),
        ({"prompt": "x", "stop": ["a"] * 17}, "stop"),
        ({"prompt": "x", "stop": "a" * 257}, "stop"),
        ({"prompt": "x", "stop_token_ids": [1] * 65}, "stop_token_ids"),
        ({"prompt": "x", "logit_bias": {"a": 1}}, "logit_bias"),
        ({"prompt": "x", "logit_bias": {"-1": 1}}, "logit_bias"),
        ({"prompt": "x", "logit_bias": {"5": "x"}}, "logit_bias.5"),
        ({"prompt": "x", "logit_bias": {str(n): 1 for n in range(1025)}}, "logit_bias"),
        ({"prompt": "x", "deadline_seconds": 0}, "deadline_seconds"),
        ({"prompt": "x\0"}, "prompt"),
        ({"messages": [{"role": "user", "content": "x\0"}]}, "messages.0.content"),
    ],
)
def test_a_wrong_value_is_rejected_in_the_jobs_own_name(fields: dict[str, Any], field: str) -> None:
    error = rejection({"id": "a1"} | fields)
    assert (error.code, error.field, error.key) == (RejectCode.INVALID_VALUE, field, JobKey("acme", "a1"))
    assert error.payload_hash


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": 3}, "must be a string or an array"),
        ({"prompt": [1, -3]}, "must be ≥ 0"),
        ({"messages": [{"role": "user"}]}, "must be given"),
        ({"messages": ["Hello"]}, "must be an object"),
        ({"prompt": "x", "max_tokens": -3}, "must be ≥ 1, not -3"),
        ({"prompt": "x", "max_tokens": 0}, "must be ≥ 1, not 0"),
        ({"prompt": "x", "max_tokens": "3"}, "must be a whole number"),
        ({"prompt": "x", "max_tokens": 10**400}, "must be ≤ 2147483647"),
        ({"prompt": "x", "max_tokens": -(10**400)}, "is out of range"),
        ({"prompt": "x", "temperature": "hot"}, "must be a number"),
        ({"prompt": "x", "priority": -1}, "must be ≥ 0 and ≤ 100, not -1"),
        ({"prompt": "x", "stream": 1}, "must be true or false"),
        ({"prompt": "x", "stop": ["a", 3]}, "must be a string"),
        ({"prompt": "x", "logit_bias": {"{5}": "x"}}, "must be a number"),
    ],
)
def test_a_rejection_says_what_would_hold_in_our_words(fields: dict[str, Any], message: str) -> None:
    assert rejection(fields).message == message


@pytest.mark.parametrize("job_id", ["", "a b", "a.b", "ä", "x" * 129, "a\n", 3, ["a"], "j7", "j0"])
def test_an_id_that_may_not_be_used_is_nobodys_identity(job_id: object) -> None:
    error = rejection({"id": job_id, "prompt": "x"})
    assert (error.code, error.field, error.key) == (RejectCode.INVALID_VALUE, "id", None)


@pytest.mark.parametrize("tenant", ["Acme", "", "x" * 64, "a_b"])
def test_a_subject_that_names_no_tenant_is_rejected(tenant: str) -> None:
    error = rejection({"prompt": "x"}, tenant=tenant)
    assert (error.code, error.field, error.key) == (RejectCode.INVALID_VALUE, "tenant", None)


def test_bytes_are_counted_before_anything_is_parsed() -> None:
    error = rejection(b"{" * 101, JobLimits(max_job_bytes=100))
    assert (error.code, error.field) == (RejectCode.TOO_LARGE, None)
    assert "101" in error.message
    assert "100" in error.message


def test_too_many_prompt_ids_are_too_long() -> None:
    limits = JobLimits(max_prompt_ids=3)
    assert decode({"prompt": [1, 2, 3]}, limits).prompt == (1, 2, 3)
    assert rejection({"prompt": [1, 2, 3, 4]}, limits).code is RejectCode.TOO_LONG


def test_too_many_messages_are_rejected() -> None:
    messages = [{"role": "user", "content": "x"}] * 3
    assert rejection({"messages": messages}, JobLimits(max_messages=2)).field == "messages"


@pytest.mark.parametrize(
    "payload",
    [
        b'{"prompt":"x",' + b",".join(b'"a%d":1' % n for n in range(90_000)) + b"}",
        b'{"prompt":[' + b'"",' * 300_000 + b"1]}",
        b'{"messages":[' + b'{"a":1},' * 4000 + b"1]}",
        b'{"messages":[{' + b",".join(b'"a%d":1' % n for n in range(90_000)) + b"}]}",
        b'{"prompt":"x","logit_bias":{' + b",".join(b'"a%d":""' % n for n in range(80_000)) + b"}}",
        b'{"prompt":"x","stop":[' + b"1," * 400_000 + b"1]}",
    ],
)
def test_a_payload_with_very_many_faults_has_one_short_answer(payload: bytes) -> None:
    error = rejection(payload)
    assert len(str(error)) < 300


def test_a_prompt_is_estimated_by_its_bytes_and_counted_by_its_ids() -> None:
    assert estimate_prompt_tokens(decode({"prompt": list(range(9))})) == 9
    assert estimate_prompt_tokens(decode({"prompt": "x"})) == 1
    assert estimate_prompt_tokens(decode({"prompt": "x" * 400})) == 100
    assert estimate_prompt_tokens(decode({"messages": [{"role": "user", "content": "x" * 40}] * 2})) == 28


@given(st.binary(max_size=300))
def test_any_bytes_are_a_job_or_one_rejection(payload: bytes) -> None:
    answer_to(payload)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
field_names = st.sampled_from(
    [
        *("id", "prompt", "messages", "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed"),
        *("stop", "stop_token_ids", "ignore_eos", "presence_penalty", "repetition_penalty", "logit_bias", "logprobs"),
        *("stream", "priority", "deadline_seconds", "expected_tokens"),
    ]
)


@given(st.dictionaries(field_names, json_values, max_size=5))
def test_any_values_of_known_fields_are_a_job_or_one_rejection(fields: dict[str, Any]) -> None:
    answer_to(json.dumps(fields).encode())
    answer_to(json.dumps({"prompt": "x"} | fields).encode())


@given(st.lists(st.fixed_dictionaries({}, optional={"role": json_values, "content": json_values}), max_size=3))
def test_any_messages_are_a_job_or_one_rejection(messages: list[dict[str, Any]]) -> None:
    answer_to(json.dumps({"messages": messages}).encode())


def answer_to(payload: bytes) -> None:
    """Nothing but a job or a rejection, and never another tenant's identity."""
    answer: Job | PayloadRejected
    try:
        answer = decode(payload)
    except PayloadRejected as error:
        answer = error
    assert answer.key is None or answer.key.tenant == "acme"
    assert estimate_prompt_tokens(answer) >= 1 if isinstance(answer, Job) else answer.message
