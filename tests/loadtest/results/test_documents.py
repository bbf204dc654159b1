"""Reports are read back, and what is wrong with a file is said with its name and the key."""

from __future__ import annotations

import json

import pytest

from loadtest.errors import BenchInputError
from loadtest.results.documents import median_of, read_document
from tests.loadtest.reports import peer, report, request, run, timeline, write


def test_what_a_file_says_is_there_by_name(tmp_path):
    content = report(run(90, requests=[request(tenant="acme")], timeline=timeline(3)), peers={"vllm": peer(run(50))})
    document = read_document(write(tmp_path, "a.json", content))
    assert (document.target, document.machine["torch"]) == ("engine", "2.13.0")
    assert document.runs[0].requests[0].tenant == "acme"
    assert document.runs[0].timeline.num_prefill_tokens == (120, 0, 0)
    assert document.peers["vllm"].runs[0].ttft_seconds.p99 == 0.8


def test_keys_that_nobody_here_knows_are_passed_over(tmp_path):
    assert read_document(write(tmp_path, "new.json", {**report(), "from_the_future": [1]})).output_tokens_per_s == 100


def test_keys_that_older_files_do_not_have_are_empty(tmp_path):
    old = report()
    for key in ("inter_token_gap_seconds", "queue_seconds", "scenario", "seed", "bursts", "peers"):
        old.pop(key)
    document = read_document(write(tmp_path, "old.json", old))
    assert (document.queue_seconds, document.goodput, document.requests, document.peers) == (None, None, (), {})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not JSON"),
        ('{"runs": [', "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        ('{"output_tokens_per_s": NaN}', "is not JSON"),
        ("[]", "`object`"),
        (json.dumps({key: value for key, value in report().items() if key != "runs"}), "`runs`"),
        (json.dumps({**report(), "runs": []}), "$.runs"),
        (json.dumps({**report(), "runs": [{**run(), "num_requests": "many"}]}), "$.runs[0].num_requests"),
        (json.dumps({**report(), "ttft_seconds": {"mean": 1.0}}), "`p50` - at `$.ttft_seconds`"),
        (json.dumps({**report(), "timeline": {**timeline(3), "num_running": [1]}}), "$.timeline"),
        (json.dumps({**report(), "timeline": {**timeline(3), "num_waiting": [1]}}), "$.timeline"),
        (json.dumps({**report(), "requests": [{"tenant": "acme"}]}), "`due_at` - at `$.requests[0]`"),
    ],
)
def test_a_bad_file_is_named_with_the_key(text, complaint, tmp_path):
    path = tmp_path / "bad.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BenchInputError) as caught:
        read_document(path)
    assert str(path) in str(caught.value)
    assert complaint in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(BenchInputError, match=r"nowhere\.json: No such file"):
        read_document(tmp_path / "nowhere.json")


def test_who_waits_may_be_unknown(tmp_path):
    unknown = report(timeline={**timeline(3), "num_waiting": None})
    assert read_document(write(tmp_path, "a.json", unknown)).timeline.num_waiting is None
    partly = report(timeline={**timeline(3), "num_waiting": [None, 2, None]})
    assert read_document(write(tmp_path, "b.json", partly)).timeline.num_waiting == (None, 2, None)


def test_the_run_that_stands_for_all_has_the_median_throughput(tmp_path):
    runs = read_document(write(tmp_path, "a.json", report(run(5), run(1), run(3), run(4)))).runs
    assert median_of(runs).output_tokens_per_s == 3
