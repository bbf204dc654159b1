"""An idle engine takes other settings of its scheduler without loading its model again."""

from __future__ import annotations

import pytest

from headway.core.job import JobKey, SamplingParams
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.build import CPU_STEP_TOKENS, assemble, reschedule
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.engine.load import LoadedModel
from headway.engine.messages import Submit


@pytest.fixture
def engine(tiny: LoadedModel) -> Engine:
    return assemble(tiny, EngineConfig(kv_memory="1MiB"), SchedulerConfig(max_num_seqs=2), print)


def submit(engine: Engine, num_jobs: int) -> None:
    sampling = SamplingParams(max_tokens=5, temperature=0.0, ignore_eos=True)
    for number in range(num_jobs):
        engine.submit(Submit(JobKey("acme", str(number)), sampling, (5, 6, 7), None), now=0.0)


def run(engine: Engine) -> int:
    """To the end; the most that ran together."""
    most = 0
    while engine.has_work:
        most = max(most, engine.step(0.0).scheduler.num_running)
    return most


def test_the_next_jobs_run_as_the_new_settings_say(engine: Engine) -> None:
    submit(engine, 6)
    assert run(engine) == 2
    effective = reschedule(engine, SchedulerConfig(max_num_seqs=5))
    assert effective.num_step_tokens == CPU_STEP_TOKENS
    assert engine.ready.max_num_seqs == 5
    submit(engine, 6)
    assert run(engine) == 5
    assert engine.report().scheduler.pages.num_total == engine.ready.num_pages


def test_an_engine_that_has_work_refuses(engine: Engine) -> None:
    submit(engine, 1)
    with pytest.raises(RuntimeError, match="has work"):
        reschedule(engine, SchedulerConfig())
