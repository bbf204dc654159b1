import json
from contextlib import suppress

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


# -- any record, any damage, any values ------------------------------------------------------------------------------

counts = st.integers(0, 2**53)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
finite = st.floats(-9999.0, 0.0)
grants = st.builds(GrantToken, counts, counts)
logprobs = st.builds(TokenLogprobs, finite, st.lists(st.tuples(counts, finite), max_size=3).map(tuple))
records = st.one_of(
    st.builds(Attempt, counts, grants, texts, texts),
    st.builds(
        Tokens,
        counts,
        counts,
        st.lists(counts, max_size=5).map(tuple),
        texts,
        st.none() | st.lists(logprobs, max_size=3).map(tuple),
    ),
    st.builds(Released, texts, grants),
    st.builds(
        End,
        st.sampled_from(FinishReason),
        st.none() | st.builds(ErrorInfo, texts, st.none() | texts, texts),
        st.builds(Usage, counts, counts, counts),
        st.builds(Timings, *[st.none() | st.floats(0, 1e9)] * 3),
    ),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
known_names = st.sampled_from(["kind", "number", "grant", "seq", "token_ids", "text", "end", "usage", "finish_reason"])
kinds = st.sampled_from(["attempt", "tokens", "released", "end", "later", ""])


@given(records)
def test_every_record_is_read_as_it_was_written(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


@given(records, st.data())
def test_a_damaged_record_is_a_record_or_an_error(record: Record, data: st.DataObject) -> None:
    whole = bytearray(encode_record(record))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    read_or_refused(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


@given(kinds, st.dictionaries(known_names, json_values, max_size=6))
def test_any_values_are_a_record_or_an_error(kind: str, fields: dict[str, object]) -> None:
    read_or_refused(json.dumps({**fields, "kind": kind}).encode())


def read_or_refused(data: bytes) -> None:
    with suppress(RecordInvalid):
        decode_record(data)
