from __future__ import annotations

import pytest

from headway.core.job import FinishReason
from loadtest.recording import Outcome, Recording, StepLog, Timeline
from loadtest.report import LONG_KEYS, build_report, to_text, without_details
from loadtest.workloads.requests import Request


def line(
    due_at: float = 0.0, reason: FinishReason | None = FinishReason.LENGTH, tenant: str = "acme", **fields
) -> Timeline:
    made = Timeline(due_at, 3, tenant=tenant, **fields)
    for moment in (1.0, 1.5, 3.0):
        made.receive(1, due_at + moment)
    if reason is not None:
        made.end(reason, due_at + 3.0)
    return made


def recording(*lines: Timeline, **fields) -> Recording:
    return Recording(lines, StepLog(), {}, **fields)


@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        (line(), Outcome.COMPLETED),
        (line(has_given_up=True), Outcome.COMPLETED),
        (line(reason=FinishReason.CANCELLED, has_given_up=True), Outcome.CANCELLED),
        (line(reason=FinishReason.CANCELLED), Outcome.FAILED),
        (line(reason=FinishReason.STOP), Outcome.FAILED),
        (line(reason=None), Outcome.LOST),
        (line(reason=None, has_given_up=True), Outcome.LOST),
    ],
)
def test_every_request_has_one_outcome(made, outcome):
    assert made.outcome is outcome


def test_outcomes_add_up_to_the_requests():
    lines = [
        line(),
        line(reason=None),
        line(reason=FinishReason.ERROR),
        line(reason=FinishReason.CANCELLED, has_given_up=True),
    ]
    report = build_report(recording(*lines, errors={"HTTP 500": 1}))
    numbers = [report[f"num_{outcome}"] for outcome in ("completed", "cancelled", "failed", "lost")]
    assert numbers == [1, 1, 1, 1]
    assert report["finish_reasons"] == {"length": 1, "none": 1, "error": 1, "cancelled": 1}
    assert "error: 1 x HTTP 500" in to_text(report)


def test_gaps_lie_between_two_deliveries():
    made = line()
    assert made.gaps == [0.5, 1.5]
    assert made.max_gap_seconds == 1.5
    assert build_report(recording(made))["inter_token_gap_seconds"]["mean"] == 1.0


def test_rows_are_in_order_of_due_time_and_say_what_a_request_was():
    rows = build_report(recording(line(2.0, label="late"), line(1.0, queue_seconds=0.25)))["requests"]
    assert [row["due_at"] for row in rows] == [1.0, 2.0]
    assert rows[0] == {
        "tenant": "acme",
        "label": None,
        "due_at": 1.0,
        "queue_seconds": 0.25,
        "ttft_seconds": 1.0,
        "tpot_seconds": 1.0,
        "e2e_seconds": 3.0,
        "max_gap_seconds": 1.5,
        "num_prompt_tokens": 0,
        "num_output_tokens": 3,
        "finish_reason": "length",
    }


def test_a_timeline_knows_its_request():
    made = Timeline.of(Request((1, 2), 3, tenant="zoo", label="short"))
    assert (made.tenant, made.label, made.num_prompt_tokens, made.num_expected_tokens) == ("zoo", "short", 2, 3)


def test_tenants_have_figures_of_their_own():
    lines = [line(queue_seconds=0.5), line(), line(tenant="zoo", reason=None)]
    report = build_report(recording(*lines), weights={"acme": 3.0})
    tenants = report["tenants"]
    assert list(tenants) == ["acme", "zoo"]
    assert (tenants["acme"]["num_requests"], tenants["acme"]["num_output_tokens"], tenants["acme"]["weight"]) == (
        2,
        6,
        3.0,
    )
    assert tenants["acme"]["queue_seconds"]["mean"] == 0.5
    assert (tenants["zoo"]["weight"], tenants["zoo"]["e2e_seconds"]) == (1.0, None)
    assert "acme, e2e" in to_text(report)


def test_what_is_long_can_be_left_out():
    report = build_report(recording(line()))
    assert set(report) - set(without_details(report)) == set(LONG_KEYS)
