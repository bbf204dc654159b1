"""Choosing the next token of every sampled row of a step, all rows at once.

    raw logits ─ penalties ─ logit bias ─ min_tokens mask ─▶ greedy: argmax
        │                                                └─▶ else: draw with the job's own random number
        └─▶ log-probabilities, as OpenAI gives them: of the model's own distribution, before any of the above

A row costs only what its job asks for: a batch that is all greedy is one argmax. Nothing here mixes rows, and random
numbers are keyed by job and output position (`rng`), so what a sequence samples does not depend on its batch-mates.
"""

from __future__ import annotations

from collections.abc import Sequence as Rows

import torch
from torch import Tensor

from headway.core.batch import SampledToken
from headway.core.records import TokenLogprobs
from headway.core.sequence import Sequence
from headway.engine.drawing import draw
from headway.engine.greedy import NO_TOKEN, argmax, greedy, is_usable
from headway.engine.penalties import Penalties, has_penalties
from headway.engine.rng import stream_key, uniforms

_LEAST_LOGPROB = -9999.0
"""Stands for log 0, which JSON cannot say."""


class Sampler:
    """Samples for one engine. It remembers the token counts of penalised sequences until it is told to forget them."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._penalties = Penalties(vocab_size, device)

    @torch.inference_mode()
    def sample(self, logits: Tensor, sequences: Rows[Sequence]) -> list[SampledToken | None]:
        """One token per row of ``logits`` [rows, vocab], of any floating type; row i belongs to ``sequences[i]``.

        None for a row that says nothing: see `is_usable`.
        """
        if all(map(_is_plain, sequences)):
            return [None if token == NO_TOKEN else SampledToken(token) for token in greedy(logits).tolist()]
        if logits.dtype in (torch.bfloat16, torch.float16):
            logits = logits.float()
        tokens = self._choose(self._adjust(logits, sequences), sequences)
        logprobs = _logprobs(logits, tokens, sequences)
        chosen = torch.where(is_usable(logits), tokens, NO_TOKEN).tolist()
        return [None if token == NO_TOKEN else SampledToken(token, logprobs.get(i)) for i, token in enumerate(chosen)]

    def forget(self, sequence: Sequence) -> None:
        """The sequence has left the engine."""
        self._penalties.forget(sequence.number)

    def _adjust(self, logits: Tensor, sequences: Rows[Sequence]) -> Tensor:
        """Logits after penalties, bias and mask; the same tensor if no row asks for any, a copy if one does."""
        penalised = [row for row, s in enumerate(sequences) if has_penalties(s.sampling)]
        biased = [row for row, s in enumerate(sequences) if s.sampling.logit_bias]
        masked = [row for row, s in enumerate(sequences) if _must_go_on(s)]
        if not (penalised or biased or masked):
            return logits
        logits = logits.clone()
        if penalised:
            self._penalties.apply(logits, penalised, [sequences[row] for row in penalised])
        if biased:
            _add_bias(logits, biased, sequences)
        if masked:
            _mask_stops(logits, masked, sequences)
        return logits

    def _choose(self, logits: Tensor, sequences: Rows[Sequence]) -> Tensor:
        """Token ids [rows]."""
        random = [row for row, s in enumerate(sequences) if not s.sampling.is_greedy]
        if not random:
            return argmax(logits)
        picked = [sequences[row] for row in random]
        keys = [stream_key(s.sampling.seed, s.key) for s in picked]
        numbers = uniforms(keys, [s.num_output_tokens for s in picked])
        params = [s.sampling for s in picked]
        if len(random) == len(sequences):
            return draw(logits, params, numbers)
        rows = torch.tensor(random, device=logits.device)
        tokens = argmax(logits)
        tokens[rows] = draw(logits[rows], params, numbers)
        return tokens


def _is_plain(sequence: Sequence) -> bool:
    """Whether its next token is the likeliest, and nothing else is asked for."""
    params = sequence.sampling
    asks_more = has_penalties(params) or params.logit_bias or params.logprobs is not None or _must_go_on(sequence)
    return params.is_greedy and not asks_more


def _must_go_on(sequence: Sequence) -> bool:
    """Whether it is below its min_tokens, and there are tokens that would end it."""
    return sequence.num_output_tokens < sequence.sampling.min_tokens and bool(ending_token_ids(sequence))


def _add_bias(logits: Tensor, rows: Rows[int], sequences: Rows[Sequence]) -> None:
    entries = [(row, token, bias) for row in rows for token, bias in sequences[row].sampling.logit_bias]
    where, tokens, biases = zip(*entries, strict=True)
    device = logits.device
    index = (torch.tensor(where, device=device), torch.tensor(tokens, device=device))
    logits.index_put_(index, torch.tensor(biases, dtype=logits.dtype, device=device), accumulate=True)


def _mask_stops(logits: Tensor, rows: Rows[int], sequences: Rows[Sequence]) -> None:
    """Rule out the tokens that would end a sequence before its min_tokens."""
    entries = [(row, token) for row in rows for token in ending_token_ids(sequences[row])]
    where, tokens = zip(*entries, strict=True)
    logits[torch.tensor(where, device=logits.device), torch.tensor(tokens, device=logits.device)] = -torch.inf


def ending_token_ids(sequence: Sequence) -> frozenset[int]:
    """The tokens that end this sequence: EOS unless ignored, and the job's own."""
    eos: frozenset[int] = frozenset() if sequence.sampling.ignore_eos else sequence.eos_token_ids
    return eos.union(sequence.sampling.stop_token_ids)


def _logprobs(logits: Tensor, tokens: Tensor, sequences: Rows[Sequence]) -> dict[int, TokenLogprobs]:
    """By row, for the rows that ask: the chosen token's log-probability and those of the most likely tokens."""
    counts = {row: s.sampling.logprobs for row, s in enumerate(sequences) if s.sampling.logprobs is not None}
    if not counts:
        return {}
    rows = torch.tensor(list(counts), device=logits.device)
    table = logits[rows].log_softmax(-1).clamp_(min=_LEAST_LOGPROB)
    chosen = table.gather(-1, tokens[rows].unsqueeze(-1)).squeeze(-1).tolist()
    top = table.topk(min(max(counts.values()), table.shape[1]))
    ids, values = top.indices.tolist(), top.values.tolist()
    return {
        row: TokenLogprobs(chosen[i], tuple(zip(ids[i][:count], values[i][:count], strict=True)))
        for i, (row, count) in enumerate(counts.items())
    }
