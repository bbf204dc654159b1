"""Stress of a real engine with a tiny model, on a clock that every look at it moves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from headway.core.scheduler_config import PrefixSharing, SchedulerConfig
from headway.engine.build import build_engine, reschedule
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.engine.messages import StepReport
from loadtest.tuning.knobs import Goal, Knobs, Run
from loadtest.tuning.stress import MOST_TIMES, MOST_WARM_UP_TIMES, Stress, stress
from loadtest.workloads.requests import Request, WorkloadError

REQUESTS = tuple(Request(tuple(range(10, 10 + n)), num_output_tokens=n, gap=1.0) for n in (4, 12, 20, 28))
GOAL = Goal(tpot_seconds=1.0)
SCHEDULER = SchedulerConfig(max_num_seqs=4, prefix_sharing=PrefixSharing.OFF)
STEP_SECONDS = 0.1


@dataclass
class TimedEngine:
    """A real engine whose steps take exactly `STEP_SECONDS` of a clock that nothing else moves."""

    engine: Engine
    now: float = 100.0
    most_running: int = 0
    num_steps: int = 0
    ended_in: list[int] = field(default_factory=list)
    """The steps in which requests ended."""

    def __getattr__(self, name: str):
        return getattr(self.engine, name)

    def clock(self) -> float:
        return self.now

    def step(self, now: float) -> StepReport:
        self.now += STEP_SECONDS
        report = self.engine.step(self.now)
        self.num_steps += 1
        self.ended_in += [self.num_steps for output in report.outputs if output.finish_reason is not None]
        self.most_running = max(self.most_running, report.scheduler.num_running)
        return report


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> Engine:
    return build_engine(EngineConfig(model=str(tiny_model), kv_memory="1MiB"), SCHEDULER, print)


def run(engine: Engine, num_clients: int = 4, seconds: float = 5.0, requests=REQUESTS) -> tuple[Run, TimedEngine]:
    timed = TimedEngine(engine)
    reschedule(engine, Knobs(num_clients, max(64, num_clients), 16).apply(SCHEDULER))
    return Stress(timed, num_clients, requests, timed.clock).run(GOAL, seconds), timed


def test_every_slot_gives_a_token_in_every_step(engine):
    """But in the one step of 30 or so that computes a request's prompt and its first token, which counts too."""
    measured, timed = run(engine)
    assert timed.most_running == 4
    assert measured.output_tokens_per_s == pytest.approx(4 / STEP_SECONDS, rel=0.05)
    assert measured.tpot_seconds == pytest.approx(STEP_SECONDS, rel=0.01)
    assert measured.num_preemptions == 0


def test_the_first_token_of_a_request_ends_no_gap(engine):
    short = tuple(Request((5, 6, 7), num_output_tokens=9, gap=1.0) for _ in range(4))
    measured, _ = run(engine, seconds=20.0, requests=short)
    assert measured.num_requests > 40
    assert measured.tpot_seconds == pytest.approx(STEP_SECONDS, rel=0.01)


def test_the_batch_is_mixed_from_the_start(engine):
    """Requests of one length that were all begun together would end together."""
    alike = tuple(Request((5, 6, 7), num_output_tokens=60, gap=1.0) for _ in range(4))
    _, timed = run(engine, seconds=10.0, requests=alike)
    first = timed.ended_in[:4]
    assert max(first) - min(first) > 10


def test_as_many_requests_end_at_first_as_in_the_long_run(engine):
    """One in so many tokens as a request has on average: those that a full batch holds are mostly long ones."""
    short, long = Request((5, 6, 7), num_output_tokens=4, gap=1.0), Request((5, 6, 7), num_output_tokens=60, gap=1.0)
    _, timed = run(engine, num_clients=16, seconds=30.0, requests=(short, long) * 8)
    expected = 16 / ((4 + 60) / 2)
    assert sum(step <= 20 for step in timed.ended_in) / 20 == pytest.approx(expected, rel=0.3)
    assert len(timed.ended_in) / timed.num_steps == pytest.approx(expected, rel=0.1)


def test_first_tokens_are_those_of_requests_that_came_into_a_full_batch(engine):
    """The first ones' prompts come all at once, which makes each take twice as long."""
    long = tuple(Request(tuple(3 + i % 50 for i in range(90)), num_output_tokens=60, gap=1.0) for _ in range(4))
    measured, _ = run(engine, num_clients=8, seconds=20.0, requests=long)
    assert measured.ttft_seconds < 8 * STEP_SECONDS


def test_what_comes_before_the_window_counts_for_nothing_and_who_still_waits_for_as_long_as_he_does(engine):
    """One of two clients finds no slot, so that the warm-up ends by its time: five times a run's. The other one's
    request, of which a part is drawn, is long enough for all of it."""
    long = tuple(Request((5, 6, 7), num_output_tokens=200, gap=1.0) for _ in range(5))
    timed = TimedEngine(engine)
    reschedule(engine, Knobs(1, 64, 16).apply(SCHEDULER))
    measured = Stress(timed, 2, long, timed.clock).run(GOAL, 1.0)
    assert timed.num_steps == pytest.approx((MOST_WARM_UP_TIMES + MOST_TIMES) / STEP_SECONDS, abs=2)
    assert measured.output_tokens_per_s == pytest.approx(1 / STEP_SECONDS, rel=0.05)
    assert measured.tpot_seconds == pytest.approx(STEP_SECONDS, rel=0.05)
    assert measured.ttft_seconds > MOST_WARM_UP_TIMES


def test_a_first_token_takes_the_steps_that_its_prompt_takes(engine):
    long = tuple(replace(request, prompt_token_ids=tuple(3 + i % 50 for i in range(90))) for request in REQUESTS)
    measured, _ = run(engine, num_clients=1, requests=long)
    assert measured.ttft_seconds == pytest.approx(-(-90 // 16) * STEP_SECONDS, rel=0.01)


def test_it_goes_on_until_enough_requests_were_counted(engine):
    short, timed = run(engine, num_clients=1, seconds=1.0)
    assert short.num_requests >= 2
    assert timed.num_steps * STEP_SECONDS > 1.5


def test_tokens_that_come_too_slowly_to_be_counted_do_not_pass_for_fast_ones(engine):
    long = tuple(Request((5, 6, 7), num_output_tokens=200, gap=1.0) for _ in range(4))
    measured, _ = run(engine, seconds=4 * STEP_SECONDS / MOST_TIMES, requests=long)
    assert measured.num_requests == 0
    assert measured.tpot_seconds >= 0.99 * STEP_SECONDS


def test_where_no_request_ends_the_wait_of_the_first_ones_is_told(engine):
    long = tuple(Request(tuple(range(3, 43)), num_output_tokens=200, gap=1.0) for _ in range(4))
    measured, _ = run(engine, num_clients=1, seconds=1.0, requests=long)
    assert measured.ttft_seconds == pytest.approx(-(-40 // 16) * STEP_SECONDS, rel=0.01)


def test_requests_of_one_token_have_no_time_per_token(engine):
    short = tuple(Request(tuple(range(3, 13)), num_output_tokens=1, gap=1.0) for _ in range(4))
    measured, _ = run(engine, seconds=1.0, requests=short)
    assert measured.tpot_seconds == 0.0
    assert measured.output_tokens_per_s > 0


def test_the_engine_is_idle_afterwards(engine):
    run(engine)
    assert not engine.has_work
    pages = engine.report().scheduler.pages
    assert pages.num_used == 0


def test_pages_that_are_too_few_show_as_preemptions(engine):
    num_tokens = engine.ready.num_pages * engine.ready.page_size
    long = tuple(Request(tuple(range(3, 53)), num_output_tokens=200, gap=1.0) for _ in range(4))
    measured, _ = run(engine, num_clients=num_tokens // 100, seconds=10.0, requests=long)
    assert measured.num_preemptions > 0


def test_a_request_that_no_engine_can_run_is_an_error_and_no_endless_loop(engine):
    with pytest.raises(WorkloadError, match="cannot be run"):
        run(engine, requests=(Request(tuple(range(10)), num_output_tokens=100_000, gap=1.0),))
    assert not engine.has_work


def test_a_candidate_is_measured_with_its_own_settings(engine):
    measured = stress(engine, Knobs(2, 32, 8).apply(SCHEDULER), REQUESTS, GOAL, 0.2)
    assert engine.ready.max_num_seqs == 2
    assert measured.output_tokens_per_s > 0
    assert measured.tpot_seconds > 0
