import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.broker.codec import LEAST_LOGPROB, decode_record, encode_record
from headway.broker.errors import RecordInvalid, UnknownKind
from headway.core.job import FinishReason
from headway.core.records import (
    Attempt,
    End,
    ErrorInfo,
    GrantToken,
    Record,
    Released,
    Timings,
    TokenLogprobs,
    Tokens,
    Usage,
)

RECORDS: list[Record] = [
    Attempt(number=2, grant=GrantToken(3, 17), worker="gpu-1", payload_hash="ab12"),
    Tokens(seq=0, token_start=0, token_ids=(5, 6), text="Grüß Gott 👋"),
    Tokens(seq=4, token_start=9, token_ids=(1,), text="", logprobs=(TokenLogprobs(-0.5, ((1, -0.5), (7, -2.25))),)),
    Released(reason="drain", grant=GrantToken(3, 17)),
    End(FinishReason.STOP, usage=Usage(10, 4, 2), timings=Timings(0.5, 0.25, 1.0)),
    End(FinishReason.REJECTED, error=ErrorInfo("invalid_value", "top_p", "must be > 0.0")),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


def test_a_record_is_plain_json_that_names_its_kind() -> None:
    kinds = [json.loads(encode_record(record))["kind"] for record in RECORDS]
    assert kinds == ["attempt", "tokens", "tokens", "released", "end", "end"]
    assert json.loads(encode_record(RECORDS[0])) == {
        "kind": "attempt",
        "number": 2,
        "grant": [3, 17],
        "worker": "gpu-1",
        "payload_hash": "ab12",
    }


def test_a_key_of_a_later_version_is_ignored() -> None:
    data = json.loads(encode_record(RECORDS[1])) | {"colour": "red"}
    assert decode_record(json.dumps(data).encode()) == RECORDS[1]


def test_a_key_that_an_earlier_version_did_not_write_has_its_default() -> None:
    assert decode_record(b'{"kind":"end","finish_reason":"stop"}') == End(FinishReason.STOP)


def test_a_kind_of_a_later_version_can_be_told_apart() -> None:
    with pytest.raises(UnknownKind) as caught:
        decode_record(b'{"kind":"note","text":"x"}')
    assert caught.value.kind == "note"


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"kind":3}', b'{"kind":"end"}', b'{"kind":"tokens","seq":"x"}'])
def test_what_is_no_record_is_an_error(data: bytes) -> None:
    with pytest.raises(RecordInvalid):
        decode_record(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_an_error(data: bytes) -> None:
    with pytest.raises(RecordInvalid):
        decode_record(data)


def test_a_token_that_was_ruled_out_has_a_logprob_that_json_can_say() -> None:
    record = Tokens(0, 0, (1,), "x", (TokenLogprobs(-0.1, ((1, -0.1), (2, float("-inf")))),))
    read = decode_record(encode_record(record))
    assert isinstance(read, Tokens)
    assert read.logprobs == (TokenLogprobs(-0.1, ((1, -0.1), (2, LEAST_LOGPROB))),)
