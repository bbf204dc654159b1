"""What most people write first: transformers' ``generate`` on one batch after the other.

A batch is what has come by the time that the one before ended, in order, at most so many rows, padded on the left. It
lives until its longest row is done. Each row's tokens count as delivered when they are computed, and a row as ended
with its own last token: a kindness, since ``generate`` itself returns nothing before its end.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from loadtest.peers.protocol import Answer, Task, Times, begin, serve

PAD = 0
"""Any token: it is masked."""


class StaticBatches:
    def __init__(self, model: str, num_rows: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16, attn_implementation="sdpa")
        self._num_rows = num_rows

    def run(self, task: Task) -> Answer:
        answer = Answer([Times() for _ in task.requests])
        upcoming = sorted(range(len(task.requests)), key=lambda number: task.requests[number].due_at)
        started = time.monotonic()
        while upcoming:
            now = time.monotonic() - started
            rows = [number for number in upcoming if task.requests[number].due_at <= now][: self._num_rows]
            if rows:
                self._generate(task, rows, _Watch(task, rows, answer, started).put)
                upcoming = upcoming[len(rows) :]
            else:
                time.sleep(max(0.0, task.requests[upcoming[0]].due_at - now))
        return answer

    def _generate(self, task: Task, rows: list[int], on_step: Callable[[Any], None]) -> None:
        import torch
        from transformers.generation.streamers import BaseStreamer

        class Streamer(BaseStreamer):
            def put(self, value: Any) -> None:
                on_step(value)

            def end(self) -> None:
                pass

        prompts = [task.requests[number].prompt_token_ids for number in rows]
        width = max(map(len, prompts))
        num_tokens = max(task.requests[number].num_output_tokens for number in rows)
        self._model.generate(
            input_ids=torch.tensor([[PAD] * (width - len(prompt)) + prompt for prompt in prompts]),
            attention_mask=torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]),
            do_sample=False,
            min_new_tokens=num_tokens,
            max_new_tokens=num_tokens,
            eos_token_id=None,
            pad_token_id=PAD,
            streamer=Streamer(),
        )


class _Watch:
    """Notes when each row of a batch gets its tokens."""

    def __init__(self, task: Task, rows: list[int], answer: Answer, started: float) -> None:
        self._rows = [(answer.times[number], task.requests[number].num_output_tokens) for number in rows]
        self._started = started
        self._has_prompt = False

    def put(self, value: object) -> None:
        """Called with the prompts first, then once per step."""
        if not self._has_prompt:
            self._has_prompt = True
            return
        now = time.monotonic() - self._started
        for times, num_tokens in self._rows:
            if times.num_tokens < num_tokens:
                times.receive(1, now)
                times.ended_at = now if times.num_tokens == num_tokens else None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--rows", type=int, default=16)
    arguments = parser.parse_args()
    answers = begin()
    import transformers

    batches = StaticBatches(arguments.model, arguments.rows)
    serve(batches.run, answers, {"version": transformers.__version__, "rows": arguments.rows})


if __name__ == "__main__":
    main()
