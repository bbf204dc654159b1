"""How far a model with smaller weights, or smaller keys and values, is from the model as it is, token by token.

Both read the same tokens at every position (teacher forcing), so one difference does not make all that follows differ.

`python -m loadtest.quality` compares pages of eight bits (kv_cache_dtype: fp8) with the model's own; what int8 weights
cost is `loadtest.quantization`'s to say. It reads texts in pieces of 512 tokens, the workload's prompts, and the first
tokens of what the model says to those prompts, greedily. The JSON is one object: model, dtype, the texts as SHA-256 by
path, and by kind of text ``num_predictions``, ``perplexity`` (``auto`` and ``fp8``), ``agreement`` (the share of
positions where both pick the same token), ``divergence`` (mean Kullback-Leibler, nats).
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.commands.statuses import status_of
from headway.core.errors import HeadwayError
from headway.core.job import JobKey, SamplingParams
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.allocation import page_scales
from headway.engine.build import assemble
from headway.engine.config import EngineConfig, KvCacheDType
from headway.engine.engine import Engine
from headway.engine.forward import DeviceInputs, EagerForward
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel, load_model
from headway.engine.messages import Submit
from headway.engine.page_scales import Scales
from headway.engine.step_inputs import StepInputs
from loadtest.quality_options import engine_config, options_parser, say
from loadtest.workloads.requests import load_workload

ROWS_AT_ONCE = 64
"""Of logits in float32, many megabytes each for a large vocabulary."""
PAGE_SIZE = 16
PIECE = 512
ANSWER = 32
"""Tokens."""


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


def measure_quality(
    plain: LoadedModel, ours: LoadedModel, passages: Iterable[Passage], scales: Sequence[Scales] | None = None
) -> Quality:
    """With ``scales`` our model's pages are of eight bits."""
    quality = Quality()
    for passage in passages:
        next_token_ids = torch.tensor(passage.token_ids[passage.num_given :])
        rows = [predictions(plain, passage), predictions(ours, passage, scales)]
        for some in zip(*(tensor.split(ROWS_AT_ONCE) for tensor in (*rows, next_token_ids)), strict=True):
            quality.add(*some)
    return quality


def predictions(loaded: LoadedModel, passage: Passage, scales: Sequence[Scales] | None = None) -> Tensor:
    """The logits of every token that counts, by the engine's own way through the model: [rows, vocab_size]."""
    num_tokens = len(passage.token_ids)
    num_pages = -(-num_tokens // PAGE_SIZE)
    forward = EagerForward(loaded, KvCache(loaded, num_pages, PAGE_SIZE, scales))
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


def passages_of(engine: Engine, tokenizer: Any, texts: Iterable[Path]) -> dict[str, list[Passage]]:
    """By kind: what ``engine``'s model is asked to read."""
    prompts = [request.prompt_token_ids for request in load_workload()]
    return {
        "text": [piece for text in texts for piece in windows(tokenizer.encode(text.read_text()), PIECE)],
        "prompts": [Passage(prompt) for prompt in prompts],
        "answers": greedy_answers(engine, prompts, ANSWER),
    }


def compare_pages(config: EngineConfig, texts: Sequence[Path]) -> dict[str, Any]:
    """The report. Raises ``HeadwayError``."""
    loaded = load_model(config, say)
    scales = page_scales(loaded, replace(config, kv_cache_dtype=KvCacheDType.FP8), say)
    passages = passages_of(assemble(loaded, config, SchedulerConfig(), say), loaded.tokenizer, texts)
    report: dict[str, Any] = {
        "model": config.model,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "texts": {str(text): hashlib.sha256(text.read_bytes()).hexdigest() for text in texts},
        "quality": {},
    }
    for name, some in passages.items():
        say(f"reading the {name}")
        quality = measure_quality(loaded, loaded, some, scales)
        report["quality"][name] = {
            "num_predictions": quality.num_predictions,
            "perplexity": {KvCacheDType.AUTO: quality.plain_perplexity, KvCacheDType.FP8: quality.perplexity},
            "agreement": quality.agreement,
            "divergence": quality.divergence,
        }
    return report


def report_text(report: Mapping[str, Any]) -> str:
    lines = [f"{'':10}{'tokens':>8}{'ppl auto':>10}{'fp8':>10}{'ratio':>9}{'agreement':>12}{'divergence':>12}"]
    for name, of_name in report["quality"].items():
        plain, ours = of_name["perplexity"].values()
        lines.append(
            f"{name:10}{of_name['num_predictions']:8}{plain:10.3f}{ours:10.3f}{ours / plain:9.4f}"
            f"{of_name['agreement']:12.2%}{of_name['divergence']:12.5f}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = options_parser(__doc__, "of the model")
    options = parser.parse_args(arguments)
    try:
        report = compare_pages(engine_config(options), options.text)
    except HeadwayError as error:
        say(str(error))
        return status_of(error)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(report_text(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
