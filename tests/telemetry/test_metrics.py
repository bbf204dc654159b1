"""What `/metrics` really shows. The names here are those that charts and dashboards rely on."""

import subprocess
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway.core.errors import SettingError
from headway.core.job import FinishReason
from headway.core.records import End, ErrorInfo, Timings, Usage
from headway.core.stats import PageStats, QueueStats, SchedulerStats, StepStats
from headway.core.status import ModelStatus, QueueStatus, WorkerCapacity
from headway.telemetry.config import TelemetryConfig
from headway.telemetry.telemetry import Telemetry

CAPACITY = WorkerCapacity(num_pages=100, page_size=16)
TIMINGS = Timings(queue_seconds=0.5, prefill_seconds=0.25, decode_seconds=1.0)


@pytest.fixture
def telemetry():
    telemetry = Telemetry(TelemetryConfig(), role="test", instance="one")
    yield telemetry
    telemetry.close()


def scrape(telemetry):
    """Sample name and labels (as a frozenset of pairs) → value."""
    with urllib.request.urlopen(f"http://{telemetry.metrics.address}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(samples, name, **labels):
    return samples.get((name, frozenset({"model": "default", **labels}.items())))


def names(samples):
    return {name for name, _ in samples}


def model_status(queue=None, capacity=CAPACITY, outstanding_pages=250):
    return ModelStatus(
        model="default",
        queue=queue or QueueStats(num_waiting=3, num_waiting_by_tenant={"acme": 1, "zeta": 2}, num_backlog_tokens=90),
        num_waiting_beside=1,
        num_leased_jobs=4,
        num_grants_total=9,
        num_lost_attempts_total=2,
        capacity=capacity,
        num_outstanding_pages=outstanding_pages,
    )


def queue_status(*models):
    return QueueStatus(epoch=1, is_granting=True, models=models, workers=())


def scheduler_stats():
    return SchedulerStats(
        num_running=2,
        num_waiting=1,
        waiting_pages=3,
        admissible_pages=4,
        pages=PageStats(num_total=10, num_free=5, num_cached=3, num_used=2),
        num_preemptions_total=6,
        num_recomputed_tokens_total=70,
        num_busy_slots_total=45,
        num_slots_total=100,
    )


def ended(reason=FinishReason.STOP, error=None, timings=TIMINGS):
    return End(reason, error, Usage(prompt_tokens=7, cached_tokens=2, completion_tokens=5), timings)


def test_the_leader_exports_what_autoscaling_asks_for(telemetry):
    telemetry.metrics.queue().observe(queue_status(model_status()))
    samples = scrape(telemetry)
    assert value(samples, "headway_waiting_jobs") == 4
    assert value(samples, "headway_outstanding_jobs") == 8
    assert value(samples, "headway_backlog_tokens") == 90
    assert value(samples, "headway_workers_needed") == 2.5
    assert value(samples, "headway_tenant_waiting_jobs", tenant="zeta") == 2
    assert value(samples, "headway_grants_total") == 9


def test_an_empty_queue_exports_zero_but_an_unknown_capacity_exports_nothing(telemetry):
    status = model_status(queue=QueueStats(), capacity=None, outstanding_pages=None)
    telemetry.metrics.queue().observe(queue_status(status))
    samples = scrape(telemetry)
    assert value(samples, "headway_backlog_tokens") == 0
    assert "headway_workers_needed" not in names(samples)


def test_a_model_that_nobody_reported_has_no_series(telemetry):
    telemetry.metrics.queue()
    assert not any(name.startswith("headway_") for name in names(scrape(telemetry)))


def test_a_leader_that_steps_down_stops_exporting_the_queue(telemetry):
    metrics = telemetry.metrics.queue()
    metrics.observe(queue_status(model_status()))
    assert "headway_waiting_jobs" in names(scrape(telemetry))
    metrics.step_down()
    remaining = names(scrape(telemetry))
    assert not {"headway_waiting_jobs", "headway_outstanding_jobs", "headway_grants_total"} & remaining


def test_waiting_and_granting_times_are_histograms_in_seconds(telemetry):
    metrics = telemetry.metrics.queue()
    metrics.granted("default", "acme", queue_seconds=0.3)
    metrics.answered("default", grant_seconds=0.002)
    samples = scrape(telemetry)
    assert value(samples, "headway_queue_seconds_sum", tenant="acme") == 0.3
    assert value(samples, "headway_queue_seconds_bucket", tenant="acme", le="0.25") == 0
    assert value(samples, "headway_queue_seconds_bucket", tenant="acme", le="0.5") == 1
    assert value(samples, "headway_grant_seconds_count") == 1


def test_a_worker_exports_pages_sequences_and_preemptions(telemetry):
    telemetry.metrics.worker("default").observe_scheduler(scheduler_stats())
    samples = scrape(telemetry)
    assert value(samples, "headway_running_sequences") == 2
    assert [value(samples, "headway_pages", state=state) for state in ("free", "cached", "used")] == [5, 3, 2]
    assert value(samples, "headway_preemptions_total") == 6
    assert value(samples, "headway_recomputed_tokens_total") == 70
    assert value(samples, "headway_busy_slots_total") == 45
    assert value(samples, "headway_slots_total") == 100


def test_a_worker_whose_engine_is_gone_exports_no_pages(telemetry):
    metrics = telemetry.metrics.worker("default")
    metrics.observe_scheduler(scheduler_stats())
    metrics.engine_gone()
    assert not {"headway_pages", "headway_running_sequences"} & names(scrape(telemetry))


@pytest.mark.parametrize(("num_prefill", "num_decode", "phase"), [(8, 0, "prefill"), (0, 3, "decode"), (8, 3, "mixed")])
def test_steps_are_told_apart_by_phase(telemetry, num_prefill, num_decode, phase):
    step = StepStats(1, 0.2, 0.001, num_prefill_tokens=num_prefill, num_decode_tokens=num_decode, num_sequences=4)
    telemetry.metrics.worker("default").observe_step(step)
    samples = scrape(telemetry)
    assert value(samples, "headway_step_seconds_count", phase=phase) == 1
    assert value(samples, "headway_step_tokens_sum", phase="prefill") == (num_prefill or None)
    assert value(samples, "headway_step_tokens_sum", phase="decode") == (num_decode or None)
    assert value(samples, "headway_step_sequences_sum") == 4


def test_a_step_tells_its_room_for_prompts_and_how_wrong_its_prediction_was(telemetry):
    metrics = telemetry.metrics.worker("default")
    metrics.observe_step(StepStats(1, 0.2, 0.001, 8, 3, 4, prefill_budget=40, predicted_seconds=0.25))
    metrics.observe_step(StepStats(2, 0.2, 0.001, 8, 3, 4, prefill_budget=16, predicted_seconds=0.18))
    samples = scrape(telemetry)
    assert value(samples, "headway_prefill_budget_tokens_sum") == 56
    assert value(samples, "headway_step_prediction_error_seconds_sum") == pytest.approx(0.07)


def test_where_nothing_is_predicted_there_is_no_series_that_says_so(telemetry):
    telemetry.metrics.worker("default").observe_step(StepStats(1, 0.2, 0.001, 8, 3, 4))
    assert not [name for name in names(scrape(telemetry)) if "budget" in name or "prediction" in name]


GEN_AI = {
    "tenant": "acme",
    "gen_ai_operation_name": "text_completion",
    "gen_ai_provider_name": "headway",
    "gen_ai_request_model": "default",
}


def test_a_completed_job_has_the_times_of_the_gen_ai_conventions(telemetry):
    telemetry.metrics.worker("default").job_ended("acme", ended())
    samples = scrape(telemetry)
    assert value(samples, "gen_ai_server_time_to_first_token_seconds_sum", **GEN_AI) == 0.75
    assert value(samples, "gen_ai_server_time_per_output_token_seconds_sum", **GEN_AI) == 0.25
    assert value(samples, "gen_ai_server_request_duration_seconds_sum", **GEN_AI) == 1.75
    assert value(samples, "headway_ended_jobs_total", tenant="acme", finish_reason="stop") == 1
    assert value(samples, "headway_output_tokens_total", tenant="acme") == 5


def test_a_failed_job_counts_by_its_error_and_not_as_a_first_token(telemetry):
    end = ended(FinishReason.ERROR, ErrorInfo("engine_failed", None, "it failed"))
    telemetry.metrics.worker("default").job_ended("acme", end)
    samples = scrape(telemetry)
    labels = {**GEN_AI, "error_type": "engine_failed"}
    assert value(samples, "gen_ai_server_request_duration_seconds_count", **labels) == 1
    assert not any(name.startswith("gen_ai_server_time") for name in names(samples))


def test_a_job_that_never_ran_has_no_times(telemetry):
    end = ended(FinishReason.EXPIRED, timings=Timings(queue_seconds=3.0))
    telemetry.metrics.worker("default").job_ended("acme", end)
    samples = scrape(telemetry)
    assert value(samples, "headway_ended_jobs_total", tenant="acme", finish_reason="expired") == 1
    assert not any(name.startswith("gen_ai_") for name in names(samples))


def test_an_engine_that_fails_is_counted_from_0(telemetry):
    metrics = telemetry.metrics.worker("default")
    assert value(scrape(telemetry), "headway_engine_failures_total") == 0
    metrics.engine_gone()
    assert value(scrape(telemetry), "headway_engine_failures_total") == 1


def test_dead_letters_are_counted_from_0_for_every_model_that_is_served(telemetry):
    metrics = telemetry.metrics.queue()
    metrics.observe(queue_status(model_status()))
    assert value(scrape(telemetry), "headway_dead_letters_total") == 0
    metrics.buried("default")
    assert value(scrape(telemetry), "headway_dead_letters_total") == 1


def test_only_a_leader_has_an_epoch(telemetry):
    metrics = telemetry.metrics.queue()
    metrics.observe(queue_status())
    assert scrape(telemetry)["headway_leader_epoch", frozenset()] == 1
    metrics.step_down()
    assert "headway_leader_epoch" not in names(scrape(telemetry))


def test_every_condition_of_readiness_is_a_series_of_its_own(telemetry):
    for name, holds in (("nats", True), ("engine", False), ("engine", True), ("leader", False)):
        telemetry.metrics.process.condition(name, holds)
    samples = scrape(telemetry)
    found = {dict(labels)["condition"]: count for (name, labels), count in samples.items() if name == "headway_ready"}
    assert found == {"nats": 1, "engine": 1, "leader": 0}
    assert ("headway_ready", frozenset({"role": "test", "condition": "nats"}.items())) in samples


def test_a_process_says_what_it_takes_of_its_machine(telemetry):
    samples = scrape(telemetry)
    assert samples["process_resident_memory_bytes", frozenset()] > 1_000_000
    assert samples["process_start_time_seconds", frozenset()] > 1_000_000_000


def test_the_engine_has_numbers_of_its_own_as_long_as_there_is_one(telemetry):
    pid = None
    telemetry.metrics.process.watch_engine(lambda: pid)
    assert not any(name.startswith("headway_engine_process") for name in names(scrape(telemetry)))
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as engine:
        pid = engine.pid
        samples = scrape(telemetry)
    started = samples["headway_engine_process_start_time_seconds", frozenset()]
    assert started > samples["process_start_time_seconds", frozenset()], "the engine's, and not our own"
    assert not any(name.startswith("headway_engine_process") for name in names(scrape(telemetry)))


def test_attempts_are_counted_by_tenant(telemetry):
    metrics = telemetry.metrics.worker("default")
    metrics.attempt_started("acme")
    metrics.attempt_started("acme")
    assert value(scrape(telemetry), "headway_attempts_total", tenant="acme") == 2


def test_tenants_beyond_the_limit_share_one_label():
    telemetry = Telemetry(TelemetryConfig(max_tenant_labels=2), role="test", instance="one")
    waiting = {"a": 1, "b": 2, "c": 3, "d": 4}
    telemetry.metrics.queue().observe(queue_status(model_status(QueueStats(10, waiting))))
    samples = scrape(telemetry)
    telemetry.close()
    assert value(samples, "headway_tenant_waiting_jobs", tenant="a") == 1
    assert value(samples, "headway_tenant_waiting_jobs", tenant="other") == 7


def test_two_roles_in_one_process_do_not_see_each_other(telemetry):
    other = Telemetry(TelemetryConfig(), role="test", instance="two")
    telemetry.metrics.worker("default").attempt_started("acme")
    other.metrics.worker("default").attempt_started("zeta")
    first, second = scrape(telemetry), scrape(other)
    other.close()
    assert value(first, "headway_attempts_total", tenant="zeta") is None
    assert value(second, "headway_attempts_total", tenant="zeta") == 1


def test_the_root_of_the_endpoint_says_where_the_metrics_are(telemetry):
    with urllib.request.urlopen(f"http://{telemetry.metrics.address}/") as answer:
        assert "/metrics" in answer.read().decode()


def test_a_taken_port_is_refused_with_the_way_out(telemetry):
    taken = str(telemetry.metrics.address)
    with pytest.raises(SettingError, match=r"metrics_listen.*choose another address"):
        Telemetry(TelemetryConfig(metrics_listen=taken), role="test", instance="two")


def test_a_closed_endpoint_frees_its_port():
    first = Telemetry(TelemetryConfig(), role="test", instance="one")
    address = str(first.metrics.address)
    first.close()
    second = Telemetry(TelemetryConfig(metrics_listen=address), role="test", instance="two")
    assert str(second.metrics.address) == address
    second.close()
