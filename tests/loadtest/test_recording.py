import pytest

from headway.core.job import FinishReason
from headway.core.stats import PageStats, SchedulerStats, StepStats
from headway.engine.messages import StepReport
from loadtest.recording import Recording, StepLog, Timeline
from loadtest.report import build_report, to_text


def timeline(due_at=0.0, chunks=((2.0, 1), (3.0, 2), (5.0, 1)), reason=FinishReason.LENGTH, expected=4):
    """A request that got this many tokens at these moments, and ended with the last of them."""
    line = Timeline(due_at, expected)
    for now, num_tokens in chunks:
        line.receive(num_tokens, now)
    line.end(reason, chunks[-1][0])
    return line


def stats(busy=0, slots=0, preemptions=0):
    pages = PageStats(10, 10, 0, 0)
    return SchedulerStats(0, 0, 0, 10, pages, preemptions, 0, busy, slots)


def step(seconds=0.1, num_prefill_tokens=0, num_sequences=2):
    return StepStats(1, seconds, 0.001, num_prefill_tokens, num_sequences, num_sequences)


def make_log(*reports):
    log = StepLog()
    for report in reports:
        log.add(report)
    return log


def test_a_request_is_timed_from_the_moment_it_was_due():
    line = timeline(due_at=0.5)
    assert (line.ttft_seconds, line.tpot_seconds, line.e2e_seconds) == (1.5, 1.0, 4.5)


def test_a_chunk_without_tokens_is_no_first_token():
    line = Timeline(0.0, 4)
    line.receive(0, 1.0)
    assert line.ttft_seconds is None


def test_a_single_token_has_no_time_per_token():
    assert timeline(chunks=((2.0, 1),)).tpot_seconds is None


@pytest.mark.parametrize(
    "line",
    [timeline(chunks=((2.0, 3),)), timeline(reason=FinishReason.STOP), Timeline(0.0, 4)],
    ids=["too few tokens", "stopped early", "never ended"],
)
def test_only_a_request_with_exactly_its_tokens_is_complete(line):
    assert timeline().is_complete
    assert not line.is_complete


def test_counters_are_counted_from_the_first_report():
    log = make_log(
        StepReport((), stats(busy=50, slots=100, preemptions=3)),
        StepReport((), stats(busy=53, slots=110, preemptions=4), step()),
    )
    assert log.slot_utilisation == pytest.approx(0.3)
    assert log.since_first("num_preemptions_total") == 1
    assert log.steps == [step()]


def test_no_step_has_no_utilisation():
    assert make_log(StepReport((), stats())).slot_utilisation is None


def test_the_report_counts_tokens_over_the_time_from_the_first_arrival_to_the_last_end():
    report = build_report(Recording([timeline(1.0), timeline(3.0)], StepLog(), {}))
    assert (report["num_output_tokens"], report["duration_seconds"]) == (8, 4.0)
    assert report["output_tokens_per_s"] == 2.0


def test_tokens_of_a_request_that_never_ends_are_counted_over_the_time_in_which_they_came():
    """Else one that hangs on after all others had ended would look like throughput."""
    hanging = timeline(chunks=((2.0, 1), (20.0, 18)), expected=40)
    hanging.finish_reason = hanging.ended_at = None
    report = build_report(Recording([timeline(1.0), hanging], StepLog(), {}))
    assert (report["num_lost"], report["num_output_tokens"], report["duration_seconds"]) == (1, 23, 20.0)


def test_steps_are_reported_by_batch_size_and_those_with_prompts_apart():
    steps = [step(0.1), step(0.3), step(0.5, num_sequences=64), step(2.0, num_prefill_tokens=100)]
    report = build_report(Recording([timeline()], StepLog(steps), {"engine": 1.5}))
    assert list(report["step_seconds"]) == ["2", "64"]
    assert report["step_seconds"]["2"]["num_steps"] == 2
    assert report["step_seconds"]["2"]["mean"] == pytest.approx(0.2)
    assert report["prefill_step_seconds"]["mean"] == 2.0
    assert report["num_steps"] == 4
    assert report["cpu_seconds"] == {"engine": 1.5}


def test_a_run_in_which_nothing_ended_is_still_a_report():
    report = build_report(Recording([Timeline(0.0, 4)], StepLog(), {}))
    assert (report["num_completed"], report["output_tokens_per_s"], report["ttft_seconds"]) == (0, 0.0, None)
    assert "0 of 1 requests" in to_text(report)


def test_the_text_has_a_line_for_every_summary():
    text = to_text(build_report(Recording([timeline()], StepLog([step()]), {"engine": 1.5})))
    for name in ("output tokens/s", "first token", "per token", "end to end", "decode 2", "engine 1.50"):
        assert name in text
