import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.telemetry.traceparent import TraceParent, parse_traceparent

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_what_is_written_is_read_back(trace_id, span_id, is_sampled):
    parent = TraceParent(trace_id, span_id, is_sampled)
    assert parse_traceparent(str(parent)) == parent


def test_the_sampled_flag_is_one_bit_of_several():
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-03").is_sampled
    assert not parse_traceparent(f"00-{TRACE}-{SPAN}-02").is_sampled


def test_a_newer_version_may_carry_more():
    assert parse_traceparent(f"01-{TRACE}-{SPAN}-01-what-comes-later") is not None


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
    ],
)
def test_what_does_not_hold_is_ignored(text):
    assert parse_traceparent(text) is None
