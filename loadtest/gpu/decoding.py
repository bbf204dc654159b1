"""An engine in the middle of its answers: so many sequences, each with one new token in every step."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headway.core.job import JobKey, SamplingParams
from headway.engine.engine import Engine
from headway.engine.messages import Cancel, Submit

NUM_WARM_STEPS = 8
"""Before anything is measured: what is compiled or captured on first use is then there."""


@dataclass(frozen=True, slots=True)
class Window:
    """Some steps in a row."""

    seconds: float
    num_tokens: int
    """That came out, of all sequences."""
    context_tokens: float
    """A sequence's mean length in them."""


class Decoding:
    """The sequences of one batch. All prompts are random, and nothing but a limit ends an answer."""

    def __init__(self, engine: Engine, batch_size: int, context_len: int, max_output_len: int) -> None:
        self.batch_size = batch_size
        self._engine = engine
        self._context_len = context_len
        self._keys = [JobKey("bench", str(number)) for number in range(batch_size)]
        self._num_tokens: Counter[JobKey] = Counter()
        draw = random.Random(batch_size)
        sampling = SamplingParams(max_tokens=max_output_len, temperature=0.0, ignore_eos=True)
        for key in self._keys:
            prompt = tuple(draw.randrange(engine.ready.vocab_size) for _ in range(context_len))
            engine.submit(Submit(key, sampling, prompt, None), time.monotonic())

    def step(self) -> int:
        """How many tokens came out. Raises ``RuntimeError`` if a sequence has ended, since it should not."""
        num_tokens = 0
        for output in self._engine.step(time.monotonic()).outputs:
            if output.finish_reason is not None:
                raise RuntimeError(f"a sequence ended too early: {output.finish_reason} {output.error or ''}")
            self._num_tokens[output.key] += len(output.token_ids)
            num_tokens += len(output.token_ids)
        return num_tokens

    def settle(self) -> None:
        """Until all prompts are computed, and some steps more."""
        while len(+self._num_tokens) < self.batch_size:
            self.step()
        for _ in range(NUM_WARM_STEPS):
            self.step()

    def window(self, num_steps: int) -> Window:
        before = self._num_tokens.total()
        started = time.perf_counter()
        num_tokens = sum(self.step() for _ in range(num_steps))
        seconds = time.perf_counter() - started
        return Window(seconds, num_tokens, self._context_len + (before + num_tokens / 2) / self.batch_size)

    def end(self) -> None:
        """Leaves the engine idle."""
        for key in self._keys:
            self._engine.cancel(Cancel(key), time.monotonic())
        while self._engine.has_work:
            self._engine.step(time.monotonic())
        self._engine.report()


@contextmanager
def decoding(engine: Engine, batch_size: int, context_len: int, max_output_len: int) -> Iterator[Decoding]:
    """Settled when this returns."""
    sequences = Decoding(engine, batch_size, context_len, max_output_len)
    try:
        sequences.settle()
        yield sequences
    finally:
        sequences.end()
