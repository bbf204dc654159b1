"""When a sequence is done, and which one could never be."""

from __future__ import annotations

from headway.core.errors import JobRejected, RejectCode
from headway.core.job import FinishReason
from headway.core.pages import PagePool
from headway.core.sequence import Sequence


def finish_reason(sequence: Sequence, max_model_len: int, completes_stop: bool = False) -> FinishReason | None:
    """Why the sequence ends with its last token, or None if it goes on. A stop wins over a limit.

    ``completes_stop``: the text up to that token holds one of the job's stop strings.
    """
    sampling = sequence.sampling
    num_output_tokens = sequence.num_output_tokens
    if num_output_tokens and num_output_tokens >= sampling.min_tokens:
        token = sequence.token_ids[-1]
        is_eos = token in sequence.eos_token_ids and not sampling.ignore_eos
        if completes_stop or is_eos or token in sampling.stop_token_ids:
            return FinishReason.STOP
    if num_output_tokens >= sampling.max_tokens or sequence.num_tokens >= max_model_len:
        return FinishReason.LENGTH
    return None


def max_num_tokens(sequence: Sequence, max_model_len: int) -> int:
    """How long the sequence can become: prompt and output."""
    return min(sequence.num_prompt_tokens + sequence.sampling.max_tokens, max_model_len)


def has_last_token(sequence: Sequence, max_model_len: int) -> bool:
    """Whether a step in flight samples the last token that it can have. What else may end it is not known before."""
    return sequence.num_tokens_with_pending >= max_num_tokens(sequence, max_model_len)


def check_fits(sequence: Sequence, pool: PagePool, max_model_len: int) -> None:
    """Raise `JobRejected` (``too_long``) if the sequence could not run to its end even alone."""
    if sequence.num_prompt_tokens >= max_model_len:
        message = f"has {sequence.num_prompt_tokens} tokens; the model takes {max_model_len}, output included"
        raise JobRejected(RejectCode.TOO_LONG, "prompt", message)
    longest = max_num_tokens(sequence, max_model_len)
    if pool.num_pages_for(longest) > pool.num_pages:
        held = pool.num_pages * pool.page_size
        message = f"prompt and output may come to {longest} tokens; the KV memory of a worker holds {held}"
        raise JobRejected(RejectCode.TOO_LONG, "max_tokens", message)
