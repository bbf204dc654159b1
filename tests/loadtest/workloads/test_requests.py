import json

import pytest

from loadtest.workloads.requests import DEFAULT_WORKLOAD, Request, WorkloadError, load_workload


def request():
    return Request((5, 6, 7), num_output_tokens=4)


def test_the_default_workload_is_the_one_that_all_figures_are_about():
    requests = load_workload()
    assert len(requests) == 64
    assert sum(len(request.prompt_token_ids) for request in requests) == 7577
    assert sum(request.num_output_tokens for request in requests) == 3467
    assert {type(token) for request in requests for token in request.prompt_token_ids} == {int}


def test_a_rotated_request_is_as_long_and_begins_otherwise():
    assert request().rotated(1).prompt_token_ids == (6, 7, 5)
    assert request().rotated(3) == request()
    assert Request((5,), 4).rotated(7) == Request((5,), 4)


def test_every_request_asks_for_exactly_its_length():
    sampling = request().sampling
    assert (sampling.min_tokens, sampling.max_tokens, sampling.ignore_eos) == (4, 4, True)
    assert sampling.is_greedy


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
