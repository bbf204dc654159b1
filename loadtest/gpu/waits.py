"""Whether the host waits for the device while it launches steps: it never should.

torch tells of most that does (`torch.cuda.set_sync_debug_mode`): copies to and from ordinary memory, and whatever looks
at a value. It does not count an event that is waited for, which is how the engine learns the tokens of the step before.
Each kind of job is run twice, and watched the second time: the first may compile.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from headway.core.job import JobKey, SamplingParams
from headway.engine.engine import Engine
from headway.engine.messages import Submit
from loadtest.gpu.bench import Bench
from loadtest.gpu.checks import Finding, Item, Part
from loadtest.row import Aim

FIGURES = ("num_waits", "num_steps")
NEVER = Aim(0, is_least=False)
WAITED = "called a synchronizing CUDA operation"
"""What torch says then."""
NUM_JOBS, NUM_TOKENS = 6, 12
KINDS = {
    "the likeliest token": SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True),
    "a nucleus": SamplingParams(max_tokens=NUM_TOKENS, temperature=2.0, top_p=0.9, min_p=1e-6, ignore_eos=True),
    "everything that a job can ask for": SamplingParams(
        max_tokens=NUM_TOKENS,
        min_tokens=NUM_TOKENS // 2,
        top_k=1000,
        top_p=0.9,
        repetition_penalty=1.1,
        presence_penalty=0.1,
        frequency_penalty=0.1,
        logit_bias=((0, 1.0),),
        stop_token_ids=(0,),
        logprobs=3,
    ),
}


def items(bench: Bench) -> Sequence[Item]:
    return [Item(_name(kind), FIGURES, NEVER) for kind in KINDS]


def measure(bench: Bench) -> Iterator[Finding]:
    for kind, sampling in KINDS.items():
        bench.deadline.require()
        answer(bench.engine, sampling)
        with waits(bench.device) as places:
            num_steps = answer(bench.engine, sampling)
        found = Counter(places)
        note = "; ".join(f"{place}: {number}" for place, number in found.most_common(3))
        yield Finding(_name(kind), {"num_waits": float(len(places)), "num_steps": float(num_steps)}, note)


def answer(engine: Engine, sampling: SamplingParams) -> int:
    """Jobs that come one by one, so that prompts are computed beside decodes. How many steps that took."""
    num_steps = 0
    for number in range(NUM_JOBS):
        prompt = tuple(token % engine.ready.vocab_size for token in range(number, 8 * number + 20))
        engine.submit(Submit(JobKey("bench", str(number)), sampling, prompt, None), time.monotonic())
        num_steps += engine.step(time.monotonic()).step is not None
    while engine.has_work:
        num_steps += engine.step(time.monotonic()).step is not None
    return num_steps


@contextmanager
def waits(device: torch.device) -> Iterator[list[str]]:
    """Where in the block the host waited for a GPU, as file and line; filled when it ends."""
    places: list[str] = []
    if device.type != "cuda":
        yield places
        return
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield places
        finally:
            torch.cuda.set_sync_debug_mode(before)
            places += _places(caught)


def _places(caught: Iterable[warnings.WarningMessage]) -> Iterator[str]:
    for warning in caught:
        if WAITED in str(warning.message):
            yield f"{Path(warning.filename).name}:{warning.lineno}"


def _name(kind: str) -> str:
    return f"waits of steps that sample {kind}"


PART = Part("waits", items, measure, min_seconds=10.0)
