"""The same requests in Headway's engine and in transformers' own continuous batching, in turns, in one process.

Both have the same weights and share no prefixes. transformers delivers an answer's tokens at its end only, which is
less work. It has its defaults, its warm-up, and FlashAttention if that is installed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec

from loadtest.comparison import spread
from loadtest.gpu.bench import Bench, Sizes
from loadtest.gpu.checks import Finding, Item, Part
from loadtest.gpu.model import build_model
from loadtest.peers.protocol import Task, TaskRequest, drive
from loadtest.peers.transformers_runner import TransformersEngine
from loadtest.row import Aim
from loadtest.targets.engine_target import run_on_engine
from loadtest.workloads.requests import Request

MIN_TIMES_PEER = Aim(3.0, is_least=True)
FIGURES = ("times_transformers_ratio", "headway_tokens_per_s", "transformers_tokens_per_s")
WAIT_SECONDS = 300.0
"""For the first answer of all, whole."""
FLASH_MODULES = ("flash_attn", "flash_attn_interface")


def items(bench: Bench) -> Sequence[Item]:
    return [Item(_name(bench.sizes), FIGURES, MIN_TIMES_PEER)]


def measure(bench: Bench) -> Iterator[Finding]:
    requests = draw_requests(bench.sizes)
    ours, theirs = [], []
    with open_peer(bench, requests) as peer:
        for number in range(bench.sizes.num_rounds + 1):
            started = time.monotonic()
            rates = headway_rate(bench, requests), peer_rate(peer, requests)
            if number:  # the first round compiles and captures
                ours.append(rates[0])
                theirs.append(rates[1])
            if bench.deadline.left < time.monotonic() - started and ours:
                break
        note = f"{len(ours)} rounds; transformers with {peer.attention}"
    ratio = spread([our / their for our, their in zip(ours, theirs, strict=True)])
    figures = ratio["median"], spread(ours)["median"], spread(theirs)["median"]
    yield Finding(_name(bench.sizes), dict(zip(FIGURES, figures, strict=True)), note)


def draw_requests(sizes: Sizes) -> list[Request]:
    draw = random.Random(0)
    return [
        Request(
            tuple(draw.randrange(sizes.model.vocab_size) for _ in range(draw.randint(*sizes.request_prompt_lens))),
            draw.randint(*sizes.request_output_lens),
        )
        for _ in range(sizes.num_requests)
    ]


def headway_rate(bench: Bench, requests: Sequence[Request]) -> float:
    """Output tokens per second, all requests at once. Raises ``RuntimeError`` unless each got what it asked for."""
    recording = run_on_engine(bench.engine, requests, [0.0] * len(requests))
    if len(recording.completed) < len(requests):
        raise RuntimeError(f"Headway completed {len(recording.completed)} of {len(requests)} requests")
    return recording.num_output_tokens / recording.duration_seconds


def peer_rate(peer: InProcessPeer, requests: Sequence[Request]) -> float:
    """The same."""
    task = Task([TaskRequest(list(request.prompt_token_ids), request.num_output_tokens, 0.0) for request in requests])
    answer = drive(peer.engine, task)
    wanted = [request.num_output_tokens for request in requests]
    if [times.num_tokens for times in answer.times] != wanted:
        raise RuntimeError("transformers gave other numbers of tokens than it was asked for")
    return sum(wanted) / max(times.ended_at or 0.0 for times in answer.times)


class InProcessPeer:
    """transformers' engine, and what it computes attention with."""

    def __init__(self, bench: Bench, requests: Sequence[Request]) -> None:
        from transformers import ContinuousBatchingConfig
        from transformers.generation.continuous_batching.utils import WorkloadHints

        model = build_model(bench.sizes.model, bench.device, "sdpa")
        config = ContinuousBatchingConfig(
            allow_block_sharing=False,
            # Otherwise it may look for kernels on the hub.
            auto_switch_to_flash=any(find_spec(name) for name in FLASH_MODULES),
        )
        if bench.sizes.peer_cached_tokens is not None:
            config.page_size = 32
            config.num_blocks = bench.sizes.peer_cached_tokens // config.page_size
            config.max_batch_tokens = bench.sizes.num_step_tokens
        hints = WorkloadHints(
            max_prompt_length=max(len(request.prompt_token_ids) for request in requests),
            max_generated_length=max(request.num_output_tokens for request in requests),
            num_requests=len(requests),
        )
        self.engine = TransformersEngine(model, config, hints, streams=False, wait_seconds=WAIT_SECONDS)
        self.attention = str(model.config._attn_implementation)


@contextmanager
def open_peer(bench: Bench, requests: Sequence[Request]) -> Iterator[InProcessPeer]:
    peer = InProcessPeer(bench, requests)
    try:
        yield peer
    finally:
        with suppress(RuntimeError):
            peer.engine.stop()


def _name(sizes: Sizes) -> str:
    return f"{sizes.num_requests} requests, beside transformers"


PART = Part("peer", items, measure, min_seconds=60.0)
