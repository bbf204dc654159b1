"""The spans of a job, read back from the exporter."""

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from headway.core.job import FinishReason, JobKey
from headway.core.records import GrantToken, Usage
from headway.core.stats import StepStats
from headway.telemetry.clock import monotonic_period
from headway.telemetry.config import TelemetryConfig
from headway.telemetry.traced import Period, TracedAttempt, TracedJob
from headway.telemetry.traceparent import parse_traceparent
from headway.telemetry.tracing import JobTracer

CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ARRIVAL = 1_000.0


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


def tracer(exporter, **config):
    return JobTracer(TelemetryConfig(**config), Resource.create({}), exporter)


def job(traceparent=None, sequence=7, name="a1"):
    return TracedJob(JobKey("acme", name), "default", sequence, ARRIVAL, traceparent)


def granted(leader, the_job):
    """The same job as its worker sees it."""
    return job(leader.start_root(the_job), the_job.stream_sequence, the_job.key.id)


def attempt(number=1, reason=FinishReason.STOP, **texts):
    return TracedAttempt(
        number=number,
        grant=GrantToken(3, 16 + number),
        worker="worker-0",
        prefill=Period.of_seconds(ARRIVAL + 2, ARRIVAL + 3),
        decode=Period.of_seconds(ARRIVAL + 3, ARRIVAL + 5),
        usage=Usage(prompt_tokens=10, completion_tokens=4),
        finish_reason=reason,
        **texts,
    )


def run(exporter, traceparent=None, **config):
    """One job by a leader and a worker that share no state but the grant; its spans by name."""
    leader, worker, the_job = tracer(exporter, **config), tracer(exporter, **config), job(traceparent)
    leader.emit_queue(the_job, Period.of_seconds(ARRIVAL, ARRIVAL + 2), GrantToken(3, 17))
    worker.emit_attempt(granted(leader, the_job), attempt())
    leader.emit_submit(the_job, Period.of_seconds(ARRIVAL, ARRIVAL + 5), FinishReason.STOP, Usage(10, 0, 4))
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_job_is_one_trace_across_processes(exporter):
    spans = run(exporter)
    assert set(spans) == {"submit", "queue", "prefill", "decode"}
    assert len({span.context.trace_id for span in spans.values()}) == 1
    assert spans["submit"].parent is None
    children = [spans[name] for name in ("queue", "prefill", "decode")]
    assert {child.parent.span_id for child in children} == {spans["submit"].context.span_id}
    assert len({span.context.span_id for span in spans.values()}) == 4


def test_queue_prefill_and_decode_explain_the_duration(exporter):
    spans = run(exporter)
    seconds = {name: (span.end_time - span.start_time) / 1e9 for name, span in spans.items()}
    assert seconds["queue"] + seconds["prefill"] + seconds["decode"] == seconds["submit"] == 5.0
    assert spans["submit"].start_time == ARRIVAL * 1e9


def test_a_clients_trace_is_continued(exporter):
    spans = run(exporter, CLIENT)
    parent = parse_traceparent(CLIENT)
    assert {span.context.trace_id for span in spans.values()} == {parent.trace_id}
    assert spans["submit"].parent.span_id == parent.span_id


def test_a_new_leader_goes_on_with_the_trace_of_the_old_one(exporter):
    assert tracer(exporter).start_root(job()) == tracer(exporter).start_root(job())


def test_two_jobs_never_share_a_trace(exporter):
    leader = tracer(exporter)
    roots = [leader.start_root(other) for other in (job(), job(sequence=8), job(name="a2"))]
    assert len({parse_traceparent(root).trace_id for root in roots}) == 3


def test_a_second_attempt_links_to_the_first(exporter):
    leader, the_job = tracer(exporter), job()
    tracer(exporter).emit_attempt(granted(leader, the_job), attempt(1, reason=None))
    tracer(exporter).emit_attempt(granted(leader, the_job), attempt(2))
    first, _, second, second_decode = exporter.get_finished_spans()
    assert not first.links
    assert [link.context.span_id for link in second.links] == [first.context.span_id]
    assert [link.context.span_id for link in second_decode.links] == [first.context.span_id]


def test_a_client_that_does_not_sample_is_not_traced(exporter):
    assert run(exporter, CLIENT.removesuffix("01") + "00") == {}


def test_no_job_is_traced_at_a_ratio_of_zero(exporter):
    assert run(exporter, trace_sampling_ratio=0.0) == {}


def test_the_sampling_ratio_is_the_share_of_the_jobs(exporter):
    leader = tracer(exporter, trace_sampling_ratio=0.25)
    sampled = [parse_traceparent(leader.start_root(job(sequence=n))).is_sampled for n in range(1000)]
    assert 200 < sum(sampled) < 300


def test_an_attempt_without_a_token_has_no_decode_span(exporter):
    leader, the_job = tracer(exporter), job()
    lost = TracedAttempt(1, GrantToken(3, 17), "worker-0", prefill=Period.of_seconds(ARRIVAL, ARRIVAL + 1))
    tracer(exporter).emit_attempt(granted(leader, the_job), lost)
    assert [span.name for span in exporter.get_finished_spans()] == ["prefill"]


def test_prompts_and_outputs_are_in_no_span_by_default(exporter):
    texts = {"prompt": "a secret question", "output": "a secret answer"}
    tracer(exporter).emit_attempt(job(), attempt(**texts))
    assert not any("secret" in str(span.attributes) for span in exporter.get_finished_spans())


def test_a_setting_puts_prompts_and_outputs_into_spans(exporter):
    tracer(exporter, log_prompts=True).emit_attempt(job(), attempt(prompt="question", output="answer"))
    span = exporter.get_finished_spans()[0]
    assert (span.attributes["headway.prompt"], span.attributes["headway.output"]) == ("question", "answer")


def test_spans_say_whose_job_it_was_and_how_it_ended(exporter):
    spans = run(exporter)
    assert spans["submit"].attributes["headway.job.id"] == "a1"
    assert spans["submit"].attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert spans["decode"].attributes["gen_ai.usage.output_tokens"] == 4
    assert spans["queue"].attributes["headway.grant"] == spans["prefill"].attributes["headway.grant"] == "3-17"


def test_a_failed_job_has_an_error_span(exporter):
    tracer(exporter).emit_submit(job(), Period.of_seconds(0, 1), FinishReason.ERROR)
    tracer(exporter).emit_submit(job(), Period.of_seconds(0, 1), FinishReason.CANCELLED)
    failed, cancelled = exporter.get_finished_spans()
    assert failed.status.status_code is StatusCode.ERROR
    assert cancelled.status.status_code is StatusCode.UNSET


def test_every_nth_step_has_a_span_of_its_own(exporter):
    traced = tracer(exporter, step_span_ratio=0.25)
    for number in range(1, 9):
        traced.emit_step("default", StepStats(number, 0.5, 0.0, 4, 2, 3), end_nanoseconds=2_000_000_000)
    spans = exporter.get_finished_spans()
    assert [span.attributes["headway.step"] for span in spans] == [4, 8]
    assert spans[0].start_time == 1_500_000_000


def test_steps_are_not_traced_at_a_ratio_of_zero(exporter):
    traced = tracer(exporter, step_span_ratio=0.0)
    traced.emit_step("default", StepStats(1, 0.5, 0.0, 4, 2, 3), end_nanoseconds=2_000_000_000)
    assert exporter.get_finished_spans() == ()


def test_without_an_exporter_and_an_endpoint_nothing_happens():
    quiet = tracer(None)
    quiet.emit_attempt(job(), attempt())
    quiet.close()


def test_a_period_is_never_negative():
    assert Period.of_seconds(5.0, 4.0).seconds == 0.0


def test_monotonic_times_keep_their_duration_on_the_wall_clock():
    assert monotonic_period(10.0, 12.5).seconds == 2.5
