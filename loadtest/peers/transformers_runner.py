"""transformers' own continuous batching, with its defaults for a CPU but for what the comparison fixes: no prefix
sharing, and page size and step as they are fastest here (32 and 512 tokens)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from loadtest.peers.protocol import TaskRequest, begin, drive, serve

PAGE_SIZE = 32
MAX_BATCH_TOKENS = 512
NUM_CACHED_TOKENS = 32768
WAIT_SECONDS = 60.0
"""For the next token of anybody; a step that takes longer is a fault."""
STOP_SECONDS = 10.0


class TransformersEngine:
    """Its steps run in a thread of its own; a step here is the arrival of one request's tokens: all of them at its end,
    if it does not stream."""

    def __init__(
        self, model: Any, config: Any, hints: Any = None, streams: bool = True, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        """Of a ``PreTrainedModel``, with a ``ContinuousBatchingConfig`` and ``WorkloadHints``."""
        from transformers import GenerationConfig

        self._streams = streams
        self._wait_seconds = wait_seconds
        self._manager = model.init_continuous_batching(
            generation_config=GenerationConfig(do_sample=False, eos_token_id=-1, max_new_tokens=1),
            continuous_batching_config=config,
            workload_hints=hints,
        )
        self._manager.warmup()
        self._manager.start()
        self._num_received: dict[int, int] = {}

    def add(self, number: int, request: TaskRequest) -> None:
        self._num_received[number] = 0
        self._manager.add_request(
            request.prompt_token_ids,
            request_id=str(number),
            max_new_tokens=request.num_output_tokens,
            streaming=self._streams,
        )

    def step(self) -> Iterator[tuple[int, int, bool]]:
        output = self._manager.get_result(timeout=self._wait_seconds)
        if output is None or output.error is not None:
            raise RuntimeError(f"no result: {output and output.error}")
        number = int(output.request_id)
        num_new = len(output.generated_tokens) - self._num_received[number]
        self._num_received[number] += num_new
        is_finished = output.is_finished()
        if is_finished:
            del self._num_received[number]
        yield number, num_new, is_finished

    @property
    def is_busy(self) -> bool:
        return bool(self._num_received)

    def stop(self) -> None:
        """Whatever it is doing."""
        self._manager.stop(block=True, timeout=STOP_SECONDS, hard_stop=True)


def load_engine(model: str) -> TransformersEngine:
    import torch
    from transformers import AutoModelForCausalLM, ContinuousBatchingConfig

    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16, attn_implementation="sdpa")
    config = ContinuousBatchingConfig(
        page_size=PAGE_SIZE,
        num_blocks=NUM_CACHED_TOKENS // PAGE_SIZE,
        max_batch_tokens=MAX_BATCH_TOKENS,
        allow_block_sharing=False,
    )
    return TransformersEngine(loaded, config)


def main() -> None:
    answers = begin()
    engine = load_engine(sys.argv[1])
    import transformers

    serve(partial(drive, engine), answers, {"version": transformers.__version__})
    engine.stop()


if __name__ == "__main__":
    main()
