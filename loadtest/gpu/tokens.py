"""That the engine, as it is built on this device, gives the tokens of its model.

A small model in float32 answers many jobs of different lengths, so that steps are mixed, captured and compiled as they
come. Then transformers' own attention reads each answer at once: every token must have been the likeliest, or as good
as that. One that was chosen wrongly, from another sequence or from stale inputs, is far from it: weights are random.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from transformers import PreTrainedModel

from headway.core.job import JobKey, SamplingParams
from headway.engine.engine import Engine
from headway.engine.messages import Submit
from loadtest.gpu.bench import Bench, BenchSettings
from loadtest.gpu.checks import Item, Task
from loadtest.gpu.deadline import Deadline
from loadtest.gpu.model import ModelShape, build_model
from loadtest.row import Aim

NAME = "tokens of mixed and decode steps"
MAX_SHORTFALL = Aim(1e-3, is_least=False)
FIGURES = ("logit_shortfall", "num_tokens")
NUM_JOBS = 48
MAX_PROMPT_LEN, MAX_OUTPUT_LEN = 200, 48


def task(bench: Bench) -> Task:
    item = Item(NAME, FIGURES, MAX_SHORTFALL)
    return Task(item, partial(compare_tokens, bench.settings), is_long=True)


def compare_tokens(settings: BenchSettings) -> dict[str, float]:
    """With an engine of its own."""
    bench = Bench(settings, Deadline(math.inf))
    shape = small_shape(bench.sizes.model)
    room = NUM_JOBS * (MAX_PROMPT_LEN + MAX_OUTPUT_LEN + bench.sizes.page_size)
    engine = bench.build_engine(shape, NUM_JOBS, 2 * room * shape.kv_bytes_per_token)
    prompts = draw_prompts(shape.vocab_size)
    answers = answer(engine, prompts)
    dense = build_model(shape, bench.device, "eager")
    worst = max(shortfall(dense, prompt, tokens) for prompt, tokens in zip(prompts, answers, strict=True))
    return dict(zip(FIGURES, (worst, float(sum(map(len, answers)))), strict=True))


def small_shape(shape: ModelShape) -> ModelShape:
    """Of the same heads, so that the same kernels serve it; float32, so that rounding does not decide."""
    return replace(
        shape,
        name="small",
        num_layers=2,
        hidden_size=min(shape.hidden_size, 512),
        num_heads=min(shape.num_heads, 8),
        num_kv_heads=min(shape.num_kv_heads, 2),
        intermediate_size=min(shape.intermediate_size, 1024),
        vocab_size=min(shape.vocab_size, 4096),
        dtype=torch.float32,
    )


def draw_prompts(vocab_size: int) -> list[list[int]]:
    draw = random.Random(1)
    return [[draw.randrange(vocab_size) for _ in range(draw.randint(1, MAX_PROMPT_LEN))] for _ in range(NUM_JOBS)]


def answer(engine: Engine, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Greedy; jobs come one by one, and end after different numbers of tokens."""
    draw = random.Random(2)
    answers: list[list[int]] = [[] for _ in prompts]
    waiting = list(enumerate(prompts))
    while waiting or engine.has_work:
        if waiting:
            number, prompt = waiting.pop(0)
            sampling = SamplingParams(max_tokens=draw.randint(1, MAX_OUTPUT_LEN), temperature=0.0, ignore_eos=True)
            engine.submit(Submit(JobKey("bench", str(number)), sampling, tuple(prompt), None), time.monotonic())
        for output in engine.step(time.monotonic()).outputs:
            answers[int(output.key.id)].extend(output.token_ids)
            if output.error is not None:
                raise RuntimeError(f"job {output.key.id} failed: {output.error.message}")
    return answers


@torch.inference_mode()
def shortfall(model: PreTrainedModel, prompt: Sequence[int], tokens: Sequence[int]) -> float:
    """By how much the logit of a token was below the best one's, at the most."""
    ids = torch.tensor([[*prompt, *tokens]], device=model.device)
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits[0, len(prompt) - 1 :]
    chosen = logits.gather(-1, ids[0, len(prompt) :, None]).squeeze(-1)
    return float((logits.max(-1).values - chosen).max())
