"""How far a model with smaller weights is from the model as it is, token by token over the same passages.

Both read the same tokens at every position (teacher forcing), so one difference does not make all that follows differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headway.core.job import JobKey, SamplingParams
from headway.engine.engine import Engine
from headway.engine.forward import DeviceInputs, EagerForward
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel
from headway.engine.messages import Submit
from headway.engine.step_inputs import StepInputs

ROWS_AT_ONCE = 64
"""Of logits in float32, many megabytes each for a large vocabulary."""
PAGE_SIZE = 16


@dataclass(frozen=True, slots=True)
class Passage:
    """Tokens that follow each other, the first of them at the beginning of a sequence."""

    token_ids: tuple[int, ...]
    num_given: int = 1
    """So many are context only; the prediction of each later one counts."""


@dataclass(slots=True)
class Quality:
    """Sums over all predictions; log-likelihoods in nats."""

    num_predictions: int = 0
    num_equal: int = 0
    """Of them, both models' most likely token is the same."""
    plain_log_likelihood: float = 0.0
    log_likelihood: float = 0.0
    divergence_sum: float = 0.0

    @property
    def plain_perplexity(self) -> float:
        """e to the mean negative log-likelihood of the passages' own tokens; the model as it is."""
        return math.exp(-self.plain_log_likelihood / self.num_predictions)

    @property
    def perplexity(self) -> float:
        return math.exp(-self.log_likelihood / self.num_predictions)

    @property
    def agreement(self) -> float:
        return self.num_equal / self.num_predictions

    @property
    def divergence(self) -> float:
        """Mean Kullback-Leibler divergence of the predictions from the plain model's."""
        return self.divergence_sum / self.num_predictions

    def add(self, plain_logits: Tensor, logits: Tensor, next_token_ids: Tensor) -> None:
        """``logits`` [rows, vocab_size]; the tokens that really followed: [rows]"""
        plain, ours = plain_logits.float().log_softmax(-1), logits.float().log_softmax(-1)
        self.num_predictions += len(next_token_ids)
        self.num_equal += int((plain.argmax(-1) == ours.argmax(-1)).sum())
        self.plain_log_likelihood += float(plain.gather(1, next_token_ids[:, None]).sum())
        self.log_likelihood += float(ours.gather(1, next_token_ids[:, None]).sum())
        self.divergence_sum += float((plain.exp() * (plain - ours)).sum())


def measure_quality(plain: LoadedModel, ours: LoadedModel, passages: Iterable[Passage]) -> Quality:
    quality = Quality()
    for passage in passages:
        next_token_ids = torch.tensor(passage.token_ids[passage.num_given :])
        rows = [predictions(loaded, passage) for loaded in (plain, ours)]
        for some in zip(*(tensor.split(ROWS_AT_ONCE) for tensor in (*rows, next_token_ids)), strict=True):
            quality.add(*some)
    return quality


def predictions(loaded: LoadedModel, passage: Passage) -> Tensor:
    """The logits of every token that counts, by the engine's own way through the model: [rows, vocab_size]."""
    num_tokens = len(passage.token_ids)
    num_pages = -(-num_tokens // PAGE_SIZE)
    forward = EagerForward(loaded, KvCache(loaded, num_pages, PAGE_SIZE))
    places = np.arange(num_tokens)
    return forward(
        DeviceInputs.of(
            StepInputs(
                token_ids=np.array(passage.token_ids, dtype=np.int64),
                positions=places,
                slot_mapping=places,
                page_table=np.arange(num_pages, dtype=np.int32)[None],
                query_start=np.array([0, num_tokens], dtype=np.int32),
                context_lens=np.array([num_tokens], dtype=np.int32),
                sampled_rows=places[passage.num_given - 1 : -1],
            ),
            loaded.device,
        )
    )


def windows(token_ids: Sequence[int], size: int) -> list[Passage]:
    """A text in pieces of ``size`` tokens; what is left over at its end is left out, unless it is all."""
    pieces = [tuple(token_ids[start : start + size]) for start in range(0, len(token_ids), size)]
    return [Passage(piece) for piece in pieces if len(piece) == size or len(pieces) == 1]


def greedy_answers(engine: Engine, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[Passage]:
    """Each prompt with what the engine's model says to it."""
    sampling = SamplingParams(max_tokens=num_tokens, min_tokens=num_tokens, temperature=0.0, ignore_eos=True)
    answers: list[list[int]] = [[] for _ in prompts]
    for number, prompt in enumerate(prompts):
        engine.submit(Submit(JobKey("loadtest", str(number)), sampling, tuple(prompt), None), 0.0)
    while engine.has_work:
        for output in engine.step(0.0).outputs:
            answers[int(output.key.id)] += output.token_ids
    return [Passage((*prompt, *answer), len(prompt)) for prompt, answer in zip(prompts, answers, strict=True)]
