"""The queue under load, at sizes that take a moment: what is counted must agree, and nothing may be lost."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest
from click.testing import CliRunner

from headway.cli import headway
from headway.core.queue_config import QueueConfig, QueuePolicy
from headway.settings import Settings
from loadtest.errors import BenchError
from loadtest.queue_load.bench import bench_queue
from loadtest.queue_load.core_part import measure_core
from loadtest.queue_load.jobs import LoadJobs
from loadtest.queue_load.options import Part, QueueLoad
from loadtest.queue_load.report import queue_report_text
from loadtest.queue_load.summaries import growth

SMALL = QueueLoad(num_waiting=200, num_workers=(1, 2), num_served=150, policies=(QueuePolicy.FIFO,))


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Of one run with real processes."""
    path = tmp_path_factory.mktemp("queue-load") / "report.json"
    options = QueueLoad(
        num_waiting=200,
        num_workers=(1, 2),
        num_served=150,
        policies=(QueuePolicy.WEIGHTED_FAIR,),
        parts=tuple(Part),
        json_path=path,
    )
    said: list[str] = []
    return {"said": said, "report": bench_queue(options, Settings(), said.append), "path": path}


def test_every_job_is_taken_in_granted_and_settled(report):
    found = report["report"]["policies"]["weighted-fair"]["200"]
    assert found["intake"]["num_jobs"] == 200
    assert found["intake"]["payload_bytes_held"] == 200 * 256
    for part in ("serve", "records"):
        for number in ("1", "2"):
            served = found[part][number]
            assert served["num_jobs"] >= 150
            assert served["num_grants"] >= served["num_jobs"], "some more are granted at the end of a round"
            assert 0 < served["settled_per_s"] <= served["ended_per_s"]
            assert served["queue_cpu_seconds_per_job"] > 0
            assert served["grant_seconds"]["p50"] > 0
    assert found["serve"]["1"]["alone_grant_seconds"]["p50"] > 0


def test_the_report_is_written_as_json_and_for_people(report):
    assert json.loads(report["path"].read_text()) == json.loads(json.dumps(report["report"]))
    text = queue_report_text(report["report"])
    for words in ("state machine", "intake", "serve", "records", "weighted-fair 200, 2 workers"):
        assert words in text


@pytest.mark.parametrize(
    ("stop", "stopped_by"), [(KeyboardInterrupt(), "interrupted"), (BenchError("it ended"), "it ended")]
)
def test_what_was_measured_whole_is_kept_when_the_rest_is_not(stop, stopped_by, monkeypatch, tmp_path):
    def measure(options, config, num_waiting):
        if config.policy is QueuePolicy.SJF and num_waiting == 1500:
            raise stop
        return measure_core(options, config, 50)

    monkeypatch.setattr("loadtest.queue_load.bench.measure_core", measure)
    options = replace(
        SMALL, num_waiting=1500, policies=tuple(QueuePolicy), parts=(Part.CORE,), json_path=tmp_path / "out"
    )
    report = bench_queue(options, Settings(), print)
    assert {policy: list(sizes) for policy, sizes in report["policies"].items()} == {
        "fifo": ["1000", "1500"],
        "sjf": ["1000"],
    }
    assert report["stopped_by"] == stopped_by
    assert json.loads((tmp_path / "out").read_text())["stopped_by"] == stopped_by
    assert "sjf 1,000" in queue_report_text(report)


def test_what_is_never_measured_leaves_no_report(monkeypatch, tmp_path):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("loadtest.queue_load.bench.measure_core", stop)
    with pytest.raises(KeyboardInterrupt):
        bench_queue(replace(SMALL, parts=(Part.CORE,), json_path=tmp_path / "out"), Settings(), print)
    assert not (tmp_path / "out").exists()


def test_the_tables_are_of_plain_numbers(report):
    text = queue_report_text(report["report"])
    assert not re.search(r"\de[+-]\d", text)
    assert "weighted-fair 200, 1 worker " in text


def test_the_state_machine_alone_serves_with_any_policy():
    for policy in QueuePolicy:
        found = measure_core(SMALL, QueueConfig(policy=policy), 100)
        assert found["adds_per_s"] > 0
        assert found["decision_seconds"]["p99"] > 0


def test_the_same_jobs_come_every_time_and_have_the_size_that_was_asked_for():
    first, second = LoadJobs(3, 300), LoadJobs(3, 300)
    jobs = [first.make() for _ in range(10)]
    assert jobs == [second.make() for _ in range(10)]
    assert {len(job.payload) for job in jobs} == {300}
    assert len({job.tenant for job in jobs}) == 3


def test_sizes_are_powers_of_ten_up_to_the_most():
    assert QueueLoad(num_waiting=100_000).sizes == (1000, 10_000, 100_000)
    assert QueueLoad(num_waiting=2500).sizes == (1000, 2500)
    assert QueueLoad(num_waiting=200).sizes == (200,)


def test_growth_is_told_as_a_power_and_beside_that_of_the_logarithm():
    grown = growth({1000: 1.0, 10_000: 5.0, 100_000: 100.0})
    assert grown["ratio"] == 100.0
    assert grown["exponent"] == pytest.approx(1.0)
    assert grown["of_log_n"] == pytest.approx(math.log(5 / 3) / math.log(100))
    assert growth({1000: 1.0}) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "engine", "--waiting", "10"], "--waiting is for --target queue"),
        (["--target", "queue", "--html", "out.html"], "--html is not for --target queue"),
        (["--target", "queue", "--peers", "vllm"], "--peers is not for --target queue"),
        (["--target", "queue", "--arrivals", "burst"], "--arrivals is not for --target queue"),
        (["--target", "queue", "--workers", "0"], "0 is not a whole number above 0"),
        (["--target", "queue", "--parts", "everything"], "'everything' is none of core, intake, serve, records"),
        (["--target", "queue", "--policies", "lifo"], "'lifo' is none of fifo, sjf, weighted-fair"),
        (["--target", "queue", "--policies", ","], "name at least one"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments, words):
    result = CliRunner().invoke(headway, ["bench", *arguments])
    assert result.exit_code == 2
    assert words in result.output
