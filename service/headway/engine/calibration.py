"""Finds the scales of pages of eight bits for a model: how large its keys and values become, by layer and head.

Some sequences of tokens drawn from the vocabulary go through the model with ordinary pages, and the largest numbers
found in those are what the scales are made for:

    scale = the power of two at or above  HEADROOM · largest / 448

A power of two moves the exponent only, so it costs none of a number's three bits; and rounding up to one makes the
scale the same where the largest number differs in its last bits: on another device, with other kernels, in another
batch. That, the fixed tokens and the fixed seed are what gives every worker of a model the same scales
(`headway.engine.page_scales` says why they must be).

Drawn tokens make numbers as large as a text's: in SmolLM2 no head of any layer came to more than 1.9 times as much over
13,000 tokens of texts and prompts as over the 2,048 that are drawn here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headway.core.batch import StepPlan
from headway.engine.forward import DeviceInputs, EagerForward
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel
from headway.engine.page_scales import LARGEST, Scales
from headway.engine.step_inputs import build_step_inputs
from headway.engine.trial_chunks import trial_chunk

HEADROOM = 4.0
"""A number this many times as large as any that was seen is still within reach. It costs the lower end: numbers below
a three thousandth of the largest lose bits. That is next to nothing: the mean divergence of SmolLM2's predictions from
those with pages of its own (float32, 4,088 tokens of text) is 0.0070, 0.0068 and 0.0070 nats with 1, 4 and 32 times."""
NUM_SEQUENCES = 4
MAX_LENGTH = 512
"""Tokens of each."""
_SEED = 0


@torch.inference_mode()
def calibrate(loaded: LoadedModel, page_size: int) -> list[Scales]:
    """By layer."""
    sequences = calibration_tokens(loaded)
    pages_each = -(-sequences.shape[1] // page_size)
    cache = KvCache(loaded, pages_each * len(sequences), page_size)
    for pages in (*cache.key_pages, *cache.value_pages):
        pages.zero_()
    forward = EagerForward(loaded, cache)
    for number, token_ids in enumerate(sequences.tolist()):
        table = list(range(number * pages_each, (number + 1) * pages_each))
        plan = StepPlan(0, (trial_chunk(number, token_ids, len(token_ids), table),))
        forward(DeviceInputs.of(build_step_inputs(plan, page_size), loaded.device))
    layers = zip(cache.key_pages, cache.value_pages, strict=True)
    return [Scales(scale_for(_largest(keys)), scale_for(_largest(values))) for keys, values in layers]


def calibration_tokens(loaded: LoadedModel) -> Tensor:
    """[sequences, tokens], the same for every model of this vocabulary and length."""
    shape = (NUM_SEQUENCES, min(MAX_LENGTH, loaded.max_model_len))
    return torch.randint(loaded.vocab_size, shape, generator=torch.Generator().manual_seed(_SEED))


def scale_for(largest: Tensor) -> Tensor:
    """For numbers up to ``largest`` [Hkv]; 1 where nothing but zeros, or no number, was seen."""
    exponent = (largest.float() * (HEADROOM / LARGEST)).log2().ceil()
    return torch.where(exponent.isfinite(), exponent, 0.0).exp2()


def _largest(pages: Tensor) -> Tensor:
    """[Hkv] of [num_pages, page_size, Hkv, D]."""
    return pages.abs().amax((0, 1, 3))
