"""`headway demo`, and its parts that need no model."""

import json
from types import SimpleNamespace

import pytest

from headway.broker.results import Chunk
from headway.commands.demo.jobs import QUESTIONS, TENANT_WEIGHTS, demo_jobs
from headway.commands.demo.utilisation import JobLength, simulate
from headway.commands.demo.view import LineView
from headway.core.job import FinishReason
from headway.core.scheduler_config import Batching, SchedulerConfig


def lengths(*outputs):
    return [JobLength(num_prompt_tokens=1, num_output_tokens=output) for output in outputs]


def test_the_worked_example_of_static_batching_uses_45_percent():
    static = simulate(Batching.STATIC, lengths(20, 50, 100, 10), SchedulerConfig(max_num_seqs=4))
    assert static.num_steps == 100
    assert static.share == 0.45


def test_with_more_jobs_than_slots_continuous_batching_uses_more_in_fewer_steps():
    jobs = lengths(20, 50, 100, 10, 30, 30, 30, 30)
    static, continuous = (simulate(batching, jobs, SchedulerConfig(max_num_seqs=4)) for batching in Batching)
    static, continuous = sorted((static, continuous), key=lambda utilisation: utilisation.share)
    assert static == simulate(Batching.STATIC, jobs, SchedulerConfig(max_num_seqs=4))
    assert static.num_busy_slots == continuous.num_busy_slots == 300
    assert static.num_steps == 130
    assert continuous.num_steps == 100


def test_slots_without_a_job_count_for_both_ways_of_batching():
    config = SchedulerConfig(max_num_seqs=8)
    assert {simulate(batching, lengths(10, 10), config).share for batching in Batching} == {0.25}


def test_no_jobs_use_nothing():
    assert simulate(Batching.CONTINUOUS, [], SchedulerConfig()).share == 0.0


def test_the_jobs_are_of_three_tenants_and_of_very_different_lengths():
    jobs = demo_jobs(len(QUESTIONS))
    assert len(jobs) >= 24
    assert {job.tenant for job in jobs} == set(TENANT_WEIGHTS)
    assert max(job.max_tokens for job in jobs) > 10 * min(job.max_tokens for job in jobs)
    assert max(len(job.prompt) for job in jobs) > 10 * min(len(job.prompt) for job in jobs)


def test_more_jobs_than_questions_have_different_ids():
    jobs = demo_jobs(2 * len(QUESTIONS) + 1)
    assert len({job.id for job in jobs}) == len(jobs)


def test_plain_lines_break_at_words_and_lose_nothing(capsys):
    view, run = LineView(), SimpleNamespace(name="acme/a1")
    words = " ".join(f"word{number}" for number in range(40))
    for character in words:
        view.changed(run, Chunk(text=character))
    view.changed(run, Chunk(finish_reason=FinishReason.STOP))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2
    assert all(line.startswith("acme/a1: ") for line in lines)
    assert " ".join(line.removeprefix("acme/a1: ") for line in lines) == words


@pytest.fixture(scope="module")
def demo(headway):
    return headway("demo", "--json", "--jobs", "8", "--max-num-seqs", "4")


def test_the_demo_completes_every_job(demo):
    *jobs, summary = [json.loads(line) for line in demo.stdout.splitlines()]
    assert demo.returncode == 0, demo.stderr
    assert [job["id"] for job in jobs] == [job.id for job in demo_jobs(8)]
    assert {job["finish_reason"] for job in jobs} <= {"stop", "length"}
    assert all(job["text"] and job["output_tokens"] > 0 for job in jobs)
    assert summary["summary"]["completed"] == summary["summary"]["jobs"] == 8
    assert summary["summary"]["output_tokens"] == sum(job["output_tokens"] for job in jobs)


def test_the_demo_shows_that_continuous_batching_uses_more_of_the_worker(demo):
    summary = json.loads(demo.stdout.splitlines()[-1])["summary"]
    assert summary["utilisation_continuous"] > summary["utilisation_static"]
    assert summary["utilisation_continuous_measured"] > summary["utilisation_static"]
    assert summary["steps_continuous"] < summary["steps_static"]


def test_the_answers_of_the_demo_make_sense(demo):
    texts = {(job := json.loads(line))["id"]: job["text"] for line in demo.stdout.splitlines()[:-1]}
    assert texts["job-03"] == "The capital of France is Paris."
