"""Choosing the next token of every sampled row of a step, all rows at once.

    raw logits ─ penalties ─ logit bias ─ min_tokens mask ─▶ greedy: argmax
        │                                                └─▶ else: draw with the job's own random number
        └─▶ log-probabilities, before any of the above (`logprobs`)

A row costs only what its job asks for: a batch that is all greedy is one argmax. Nothing here mixes rows, and random
numbers are keyed by job and output position (`rng`), so what a sequence samples does not depend on its batch-mates.

The host launches all this without knowing the tokens before, and asks the device nothing: where a row stands in its
output follows from the plan, and counts of tokens are kept on the device (`penalties`). `SampledTokens.read` waits.
"""

from __future__ import annotations

from collections.abc import Sequence as Rows

import numpy as np
import torch
from torch import Tensor

from headway.core.batch import SampledToken
from headway.core.sequence import Sequence
from headway.engine.drawing import Draws, draw
from headway.engine.greedy import NO_TOKEN, argmax, greedy, is_usable
from headway.engine.logprobs import logprobs
from headway.engine.penalties import Penalties, has_penalties
from headway.engine.rng import stream_key, uniforms
from headway.engine.sampled_rows import SampledRow, SampledTokens
from headway.engine.transfer import to_device


class Sampler:
    """Samples for one engine. It remembers the token counts of penalised sequences until it is told to forget them."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._penalties = Penalties(vocab_size, device)

    @torch.inference_mode()
    def launch(self, logits: Tensor, rows: Rows[SampledRow]) -> SampledTokens:
        """One token per row of ``logits`` [rows, vocab], of any floating type; or none for a row that says nothing
        (`is_usable`)."""
        if all(map(_is_plain, rows)):
            return SampledTokens(greedy(logits))
        if logits.dtype in (torch.bfloat16, torch.float16):
            logits = logits.float()
        tokens = self._choose(logits, rows)
        num_tops = {i: n for i, row in enumerate(rows) if (n := row.sequence.sampling.logprobs) is not None}
        asked = logprobs(logits, tokens, num_tops) if num_tops else None
        return SampledTokens(torch.where(is_usable(logits), tokens, NO_TOKEN), asked)

    def sample(self, logits: Tensor, sequences: Rows[Sequence]) -> list[SampledToken | None]:
        """`launch` for sequences of which all tokens are known, and the tokens at once."""
        return self.launch(logits, [SampledRow(s, s.num_output_tokens) for s in sequences]).read()

    def forget(self, sequence: Sequence) -> None:
        """The sequence has left the engine."""
        self._penalties.forget(sequence.number)

    def _choose(self, logits: Tensor, rows: Rows[SampledRow]) -> Tensor:
        """Token ids [rows]; whatever for an unusable row, but an id. ``logits`` stay as they are."""
        penalised = [i for i, row in enumerate(rows) if has_penalties(row.sequence.sampling)]
        biased = [i for i, row in enumerate(rows) if row.sequence.sampling.logit_bias]
        masked = [i for i, row in enumerate(rows) if _must_go_on(row)]
        if penalised or biased or masked:
            logits = logits.clone()
        if penalised:
            picked = _indices(penalised, logits.device)
            slots = self._penalties.apply(logits, picked, [rows[i] for i in penalised])
        if biased:
            _add_bias(logits, biased, rows)
        if masked:
            _mask_stops(logits, masked, rows)
        tokens = _pick(logits, rows)
        if penalised:
            self._penalties.count(slots, tokens[picked])
        return tokens


def _pick(logits: Tensor, rows: Rows[SampledRow]) -> Tensor:
    """Token ids [rows]: the likeliest, or drawn."""
    random = [i for i, row in enumerate(rows) if not row.sequence.sampling.is_greedy]
    if not random:
        return argmax(logits)
    picked = [rows[i] for i in random]
    keys = [stream_key(row.sequence.sampling.seed, row.sequence.key) for row in picked]
    numbers = uniforms(keys, [row.position for row in picked])
    draws = Draws([row.sequence.sampling for row in picked], numbers)
    if len(random) == len(rows):
        return draw(logits, draws)
    where = _indices(random, logits.device)
    tokens = argmax(logits)
    tokens[where] = draw(logits[where], draws)
    return tokens


def _is_plain(row: SampledRow) -> bool:
    """Whether its token is the likeliest, and nothing else is asked for."""
    params = row.sequence.sampling
    asks_more = has_penalties(params) or params.logit_bias or params.logprobs is not None or _must_go_on(row)
    return params.is_greedy and not asks_more


def _must_go_on(row: SampledRow) -> bool:
    """Whether it is below its min_tokens, and there are tokens that would end it."""
    return row.position < row.sequence.sampling.min_tokens and bool(ending_token_ids(row.sequence))


def _add_bias(logits: Tensor, biased: Rows[int], rows: Rows[SampledRow]) -> None:
    entries = [(i, token) for i in biased for token, _ in rows[i].sequence.sampling.logit_bias]
    values = np.array([bias for i in biased for _, bias in rows[i].sequence.sampling.logit_bias])
    where, tokens = _indices(entries, logits.device).T
    logits.index_put_((where, tokens), to_device(values, logits.device).to(logits.dtype), accumulate=True)


def _mask_stops(logits: Tensor, masked: Rows[int], rows: Rows[SampledRow]) -> None:
    """Rule out the tokens that would end a sequence before its min_tokens."""
    entries = [(i, token) for i in masked for token in ending_token_ids(rows[i].sequence)]
    where, tokens = _indices(entries, logits.device).T
    logits.index_put_((where, tokens), logits.new_full((), -torch.inf))


def _indices(numbers: list[int] | list[tuple[int, int]], device: torch.device) -> Tensor:
    return to_device(np.array(numbers, dtype=np.int64), device)


def ending_token_ids(sequence: Sequence) -> frozenset[int]:
    """The tokens that end this sequence: EOS unless ignored, and the job's own."""
    eos: frozenset[int] = frozenset() if sequence.sampling.ignore_eos else sequence.eos_token_ids
    return eos.union(sequence.sampling.stop_token_ids)
