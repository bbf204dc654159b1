"""Every metric that a page names is one that a scrape really shows, and the README names them all."""

import os
import re
import urllib.request

import pytest

from headway.core.job import FinishReason
from headway.core.records import End, Timings, Usage
from headway.core.stats import PageStats, QueueStats, SchedulerStats, StepStats
from headway.core.status import ModelStatus, QueueStatus, WorkerCapacity
from headway.telemetry.config import TelemetryConfig
from headway.telemetry.telemetry import Telemetry


@pytest.fixture(scope="module")
def exported():
    telemetry = Telemetry(TelemetryConfig(), role="test", instance="one")
    telemetry.metrics.process.condition("nats", True)
    telemetry.metrics.process.watch_engine(os.getpid)
    observe_queue(telemetry.metrics.queue())
    observe_worker(telemetry.metrics.worker("default"))
    with urllib.request.urlopen(f"http://{telemetry.metrics.address}/metrics") as answer:
        page = answer.read().decode()
    telemetry.close()
    return set(re.findall(r"^# TYPE ((?:headway|gen_ai)_\w+) ", page, re.MULTILINE))


def observe_queue(metrics):
    model = ModelStatus(
        model="default",
        queue=QueueStats(num_waiting=1, num_waiting_by_tenant={"acme": 1}),
        num_waiting_beside=0,
        num_leased_jobs=0,
        num_grants_total=0,
        num_lost_attempts_total=0,
        capacity=WorkerCapacity(num_pages=1, page_size=16),
        num_outstanding_pages=1,
    )
    metrics.observe(QueueStatus(epoch=1, is_granting=True, models=(model,), workers=()))
    metrics.granted("default", "acme", 1.0)
    metrics.answered("default", 1.0)


def observe_worker(metrics):
    metrics.observe_scheduler(SchedulerStats(0, 0, 0, 0, PageStats(1, 1, 0, 0), 0, 0, 0, 0))
    metrics.observe_step(StepStats(1, 1.0, 0.1, 1, 1, 2, prefill_budget=16, predicted_seconds=0.9))
    metrics.attempt_started("acme")
    usage = Usage(prompt_tokens=1, cached_tokens=1, completion_tokens=2)
    metrics.job_ended("acme", End(FinishReason.STOP, None, usage, Timings(0.1, 0.1, 0.1)))


def test_the_readme_names_every_metric_and_no_other(readme, exported):
    assert sorted(readme.first_codes("metric")) == sorted(exported)


def test_the_other_pages_name_no_other(pages, exported):
    for page in pages:
        assert set(re.findall(r"`((?:headway|gen_ai)_[a-z_]+)`", page.prose)) <= exported, page.path
