"""The engine tells its scheduler what steps take, so that a ``tpot_target`` can be kept."""

from __future__ import annotations

import pytest

from headway.core.job import JobKey, SamplingParams
from headway.core.scheduler_config import SchedulerConfig
from headway.core.stats import StepStats
from headway.engine.build import assemble
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.engine.load import LoadedModel
from headway.engine.messages import Submit

pytestmark = pytest.mark.usefixtures("both_loops", "one_tokenizer")

MAX_STEPS = 500


def an_engine(tiny: LoadedModel, tpot_target: float | None) -> Engine:
    scheduling = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=64, tpot_target=tpot_target)
    return assemble(tiny, EngineConfig(kv_memory="2MiB"), scheduling, print)


def run(engine: Engine) -> tuple[list[StepStats], dict[str, list[int]]]:
    """Four jobs that decode, and then some with long prompts; the steps, and each job's tokens."""
    tokens: dict[str, list[int]] = {}
    steps: list[StepStats] = []
    for number in range(10):
        prompt = tuple(1 + (number * 7 + i) % 60 for i in range(8 if number < 4 else 150))
        sampling = SamplingParams(max_tokens=30, temperature=0.0, ignore_eos=True)
        engine.submit(Submit(JobKey("acme", str(number)), sampling, prompt, None), now=0.0)
    now = 0.0
    while engine.has_work:
        assert len(steps) < MAX_STEPS
        report = engine.step(now)
        assert report.step is not None
        steps.append(report.step)
        now += report.step.seconds
        for output in report.outputs:
            tokens.setdefault(output.key.id, []).extend(output.token_ids)
    return steps, tokens


def test_an_engine_with_a_target_predicts_its_steps_and_limits_their_prompts(tiny: LoadedModel) -> None:
    steps, _ = run(an_engine(tiny, tpot_target=1e-6))
    assert steps[0].predicted_seconds is None
    known = [step for step in steps if step.predicted_seconds is not None]
    assert len(known) > len(steps) / 2
    limited = [step for step in known if step.prefill_budget is not None]
    assert {step.prefill_budget for step in limited} == {16}  # a page: no step is as short as the target
    assert max(step.num_prefill_tokens for step in limited) <= 16


def test_predictions_are_of_the_time_that_was_measured(tiny: LoadedModel) -> None:
    """Within a factor of ten, on a busy machine too: in another unit it would be a thousand."""
    steps, _ = run(an_engine(tiny, tpot_target=1.0))
    predicted = [step.predicted_seconds for step in steps if step.predicted_seconds is not None]
    measured = [step.seconds for step in steps if step.predicted_seconds is not None]
    assert 0.1 < sum(predicted) / sum(measured) < 10


def test_a_target_changes_no_token(tiny: LoadedModel) -> None:
    assert run(an_engine(tiny, tpot_target=1e-6))[1] == run(an_engine(tiny, tpot_target=None))[1]
