import json

import pytest

from loadtest.workloads.requests import DEFAULT_WORKLOAD, Arrivals, Request, WorkloadError, arrival_times, load_workload


def request(gap=1.0):
    return Request((5, 6, 7), num_output_tokens=4, gap=gap)


def test_the_default_workload_is_the_one_that_all_figures_are_about():
    requests = load_workload()
    assert len(requests) == 64
    assert sum(len(request.prompt_token_ids) for request in requests) == 7577
    assert sum(request.num_output_tokens for request in requests) == 3467
    assert {type(token) for request in requests for token in request.prompt_token_ids} == {int}


def test_every_request_asks_for_exactly_its_length():
    sampling = request().sampling
    assert (sampling.min_tokens, sampling.max_tokens, sampling.ignore_eos) == (4, 4, True)
    assert sampling.is_greedy


def test_a_burst_comes_all_at_once():
    assert arrival_times([request(), request(7.0)], Arrivals.BURST, None) == [0.0, 0.0]


def test_poisson_arrivals_are_the_gaps_of_the_file_added_up_and_divided_by_the_rate():
    requests = [request(1.0), request(0.5), request(2.5)]
    assert arrival_times(requests, Arrivals.POISSON, rate=2.0) == [0.5, 0.75, 2.0]


def test_the_default_gaps_come_at_the_rate_that_is_asked_for():
    moments = arrival_times(load_workload(), Arrivals.POISSON, rate=2.0)
    assert moments == sorted(moments)
    assert len(moments) / moments[-1] == pytest.approx(2.0, rel=0.2)


@pytest.mark.parametrize("rate", [None, 0.0, -1.0])
def test_poisson_arrivals_need_a_rate(rate):
    with pytest.raises(WorkloadError, match="rate above 0"):
        arrival_times([request()], Arrivals.POISSON, rate)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "Expecting value"),
        ("[]", "list indices"),
        ("{}", "'requests' is missing"),
        ('{"requests": 3}', "not iterable"),
        ('{"requests": []}', "no requests"),
        ('{"requests": [{"out_len": 3}]}', "'prompt_ids' is missing"),
        (
            '{"requests": [{"prompt_ids": [1], "out_len": 3}, {"prompt_ids": [], "out_len": 3}]}',
            "request 2: prompt_ids",
        ),
        ('{"requests": [{"prompt_ids": "abc", "out_len": 3}]}', "request 1: prompt_ids"),
        ('{"requests": [{"prompt_ids": [1, -1], "out_len": 3}]}', "request 1: prompt_ids"),
        ('{"requests": [{"prompt_ids": [1], "out_len": 0}]}', "request 1: out_len"),
        ('{"requests": [{"prompt_ids": [1], "out_len": "3"}]}', "request 1: out_len"),
        ('{"requests": [{"prompt_ids": [1], "out_len": 3, "gap": -1}]}', "request 1: gap"),
        ('{"requests": [{"prompt_ids": [1], "out_len": 3, "gap": NaN}]}', "request 1: gap"),
    ],
)
def test_a_file_that_is_no_workload_is_refused_by_name(tmp_path, content, reason):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(WorkloadError, match=rf"other\.json is no workload: .*{reason}"):
        load_workload(path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "other.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkloadError, match=r"other\.json is no workload"):
        load_workload(path)


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(WorkloadError, match=r"nowhere\.json"):
        load_workload(tmp_path / "nowhere.json")


def test_gaps_are_optional(tmp_path):
    path = tmp_path / "plain.json"
    path.write_text(json.dumps({"requests": [{"prompt_ids": [1, 2], "out_len": 3}]}))
    assert load_workload(path) == (Request((1, 2), 3, 0.0),)
    assert DEFAULT_WORKLOAD.exists()
