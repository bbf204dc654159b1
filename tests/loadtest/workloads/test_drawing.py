from __future__ import annotations

import statistics
from collections import Counter

import pytest

from loadtest.workloads.drawing import draw_requests
from loadtest.workloads.requests import WorkloadError
from loadtest.workloads.scenario import Scenario
from loadtest.workloads.scenario_files import NamedScenario
from loadtest.workloads.trace import TraceRow

SHORT = {"label": "short", "prompt": {"kind": "uniform", "min": 4, "max": 40}, "output": 8}
LONG = {"label": "long", "prompt": 100, "output": 50, "share": 1}


def scenario(*parts: object, rows: list[TraceRow] | None = None, **fields: object) -> NamedScenario:
    """Each part that says it has a trace has these rows."""
    read = Scenario.model_validate({"num_requests": 40, **fields, "parts": parts})
    return NamedScenario("test", read, [rows if part.trace else None for part in read.parts])


def labels(requests) -> Counter:
    return Counter(request.label for request in requests)


def test_the_same_seed_draws_the_same_requests_and_another_seed_others():
    assert draw_requests(scenario(SHORT, LONG)) == draw_requests(scenario(SHORT, LONG))
    assert draw_requests(scenario(SHORT, LONG)) != draw_requests(scenario(SHORT, LONG, seed=1))


def test_changing_one_part_leaves_the_requests_of_the_others_as_they_are():
    def of_short(requests):
        return sorted(request.prompt_token_ids for request in requests if request.label == "short")

    before, after = draw_requests(scenario(SHORT, LONG)), draw_requests(scenario(SHORT, {**LONG, "output": 51}))
    assert of_short(before) == of_short(after)


def test_shares_divide_what_counts_leave():
    requests = draw_requests(scenario({**SHORT, "share": 3}, LONG, {**SHORT, "label": "fixed", "count": 4}))
    assert labels(requests) == {"short": 27, "long": 9, "fixed": 4}


def test_without_shares_the_number_of_requests_scales_the_counts():
    parts = ({**SHORT, "count": 30}, {**LONG, "share": None, "count": 10})
    assert labels(draw_requests(scenario(*parts, num_requests=None))) == {"short": 30, "long": 10}
    assert labels(draw_requests(scenario(*parts, num_requests=20))) == {"short": 15, "long": 5}


@pytest.mark.parametrize(("number", "complaint"), [(None, "num_requests is missing"), (4, "must be above 4")])
def test_numbers_that_do_not_come_out_are_refused(number, complaint):
    with pytest.raises(WorkloadError, match=complaint):
        draw_requests(scenario(SHORT, {**LONG, "share": None, "count": 4}, num_requests=number))


def test_parts_are_mixed():
    order = [request.label for request in draw_requests(scenario(SHORT, LONG))]
    assert sorted(order) not in (order, order[::-1])


def test_prompts_stay_clear_of_the_ends_of_the_vocabulary_and_share_no_beginning():
    requests = draw_requests(scenario(LONG), vocab_size=320)
    tokens = {token for request in requests for token in request.prompt_token_ids}
    assert min(tokens) == 20
    assert max(tokens) == 299
    assert len({request.prompt_token_ids[:8] for request in requests}) == len(requests)


def test_a_scenario_may_say_how_many_tokens_there_are():
    requests = draw_requests(scenario(LONG, vocab_size=32), vocab_size=320)
    assert max(token for request in requests for token in request.prompt_token_ids) < 32


def test_a_prefix_is_shared_within_its_part_and_is_part_of_the_length():
    requests = draw_requests(scenario({**LONG, "prefix_tokens": 60}))
    assert len({request.prompt_token_ids[:60] for request in requests}) == 1
    assert len({request.prompt_token_ids for request in requests}) == len(requests)
    assert {len(request.prompt_token_ids) for request in requests} == {100}


def test_gaps_have_mean_one_and_vary_as_the_arrivals_say():
    def spread(arrivals) -> tuple[float, float]:
        gaps = [request.gap for request in draw_requests(scenario(SHORT, num_requests=4000, arrivals=arrivals))]
        return statistics.fmean(gaps), statistics.pstdev(gaps)

    assert spread("poisson") == pytest.approx((1.0, 1.0), rel=0.1)
    assert spread({"kind": "gamma", "cv": 3}) == pytest.approx((1.0, 3.0), rel=0.25)


def test_a_part_with_arrivals_of_its_own_comes_when_they_say():
    inject = {**LONG, "share": None, "count": 1, "arrivals": {"kind": "burst", "at_seconds": 3}}
    steady = {**SHORT, "label": "steady", "share": None, "count": 5, "arrivals": {"kind": "poisson", "rate": 2}}
    due_at = {label: [] for label in ("short", "long", "steady")}
    for request in draw_requests(scenario(SHORT, inject, steady)):
        due_at[request.label].append(request.due_at)
    assert set(due_at["short"]) == {None}
    assert due_at["long"] == [3.0]
    assert sorted(due_at["steady"]) == due_at["steady"]
    assert due_at["steady"][0] > 0


def test_cancels_concern_their_share_of_the_requests():
    cancel = {"share": 0.25, "after_seconds": {"kind": "uniform", "min": 1, "max": 2}}
    after = [r.cancel_after_seconds for r in draw_requests(scenario({**SHORT, "cancel": cancel}, num_requests=2000))]
    given_up = [seconds for seconds in after if seconds is not None]
    assert len(given_up) == pytest.approx(500, rel=0.15)
    assert all(1 <= seconds <= 2 for seconds in given_up)


ROWS = [TraceRow(0.0, 10, 3, "acme"), TraceRow(2.5, 20, 4, None), TraceRow(4.0, 30, 5, "zoo")]
REPLAY = {"tenant": "other", "trace": {"file": "x.csv"}}


def test_a_trace_gives_lengths_tenants_and_times():
    requests = draw_requests(scenario(REPLAY, rows=ROWS, arrivals="trace", num_requests=None))
    by_time = sorted(requests, key=lambda request: request.due_at)
    assert [(r.due_at, len(r.prompt_token_ids), r.num_output_tokens, r.tenant) for r in by_time] == [
        (0.0, 10, 3, "acme"),
        (2.5, 20, 4, "other"),
        (4.0, 30, 5, "zoo"),
    ]


def test_other_arrivals_take_only_the_lengths_of_a_trace():
    requests = draw_requests(scenario(REPLAY, rows=ROWS, num_requests=2))
    assert [request.due_at for request in requests] == [None, None]
    assert sorted(len(request.prompt_token_ids) for request in requests) == [10, 20]


def test_a_trace_that_is_too_short_or_has_no_times_is_refused():
    with pytest.raises(WorkloadError, match="3 rows, and 4 requests"):
        draw_requests(scenario(REPLAY, rows=ROWS, num_requests=4))
    rows = [TraceRow(None, 1, 1, None)]
    with pytest.raises(WorkloadError, match="no times"):
        draw_requests(scenario(REPLAY, rows=rows, arrivals="trace", num_requests=None))
