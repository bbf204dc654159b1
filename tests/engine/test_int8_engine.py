"""The engine with int8 weights on the built-in model: it says nearly what the model says, and always the same."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headway.core.job import JobKey, SamplingParams
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.build import assemble
from headway.engine.cache_folder import cache_folder
from headway.engine.config import Device, EngineConfig, Quantization
from headway.engine.engine import Engine
from headway.engine.load import LoadedModel, load_model
from headway.engine.messages import Submit
from headway.engine.native.kernels import use_native_kernels
from loadtest.workloads.requests import load_workload

NUM_TOKENS = 12
GREEDY = SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True)
PROMPTS = [request.prompt_token_ids for request in load_workload()[:12]]


@pytest.fixture(scope="module")
def quantised() -> LoadedModel:
    if not use_native_kernels(cache_folder(EngineConfig()), print):
        pytest.skip("there is no compiler")
    return load_model(EngineConfig(device=Device.CPU, quantization=Quantization.INT8), print)


def make_engine(loaded: LoadedModel) -> Engine:
    return assemble(loaded, EngineConfig(kv_memory="256MiB"), SchedulerConfig(), print)


def generate(engine: Engine, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """What each becomes when all come at once."""
    for number, prompt in enumerate(prompts):
        engine.submit(Submit(JobKey("acme", str(number)), GREEDY, tuple(prompt), None), 0.0)
    outputs: list[list[int]] = [[] for _ in prompts]
    while engine.has_work:
        for output in engine.step(0.0).outputs:
            outputs[int(output.key.id)] += output.token_ids
    return outputs


def test_it_always_says_the_same(quantised: LoadedModel) -> None:
    assert generate(make_engine(quantised), PROMPTS) == generate(make_engine(quantised), PROMPTS)


def test_a_prompt_s_next_token_does_not_depend_on_its_company(quantised: LoadedModel) -> None:
    """In one step: later ones divide attention's sums in other ways, with any weights."""
    short = [prompt for prompt in PROMPTS if len(prompt) <= 40]
    assert len(short) >= 3
    alone = [generate(make_engine(quantised), [prompt])[0][0] for prompt in short]
    assert [output[0] for output in generate(make_engine(quantised), short)] == alone


def test_it_mostly_takes_the_tokens_of_the_model_as_it_is(smollm2: LoadedModel, quantised: LoadedModel) -> None:
    """Both continue what the model itself wrote, so that one difference does not make all that follows differ."""
    answers = generate(make_engine(smollm2), PROMPTS)
    written = [
        [*prompt, *answer[:length]]
        for prompt, answer in zip(PROMPTS, answers, strict=True)
        for length in range(NUM_TOKENS)
    ]
    next_tokens = [token for answer in answers for token in answer]
    predicted = [output[0] for output in generate(make_engine(quantised), written)]
    num_equal = sum(ours == theirs for ours, theirs in zip(predicted, next_tokens, strict=True))
    assert num_equal >= 0.85 * len(next_tokens)
