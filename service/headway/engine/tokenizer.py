"""From a job to token ids, and every check of a job that only the model's own numbers allow.

Raises ``JobRejected`` with the field that is at fault; nothing else that a client can send makes this fail.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

from transformers import PreTrainedTokenizerBase

from headway.core.errors import JobRejected, RejectCode
from headway.core.job import Message, SamplingParams
from headway.engine.messages import Submit
from headway.engine.text_limit import TextLimit, text_limit


class Tokenizer:
    """The model's tokenizer, with the limits that its vocabulary and length set to jobs.

    One thread may encode while others decode. To encode with a tokenizer of the tokenizers library is to change its
    settings, which fails ("Already borrowed") while another thread uses it; so that is done with a copy.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocab_size: int, max_model_len: int) -> None:
        self._tokenizer = tokenizer
        self._encoder = copy.deepcopy(tokenizer) if tokenizer.is_fast else tokenizer
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len
        self._text_limit = text_limit(tokenizer)

    def encode(self, job: Submit) -> list[int]:
        """The job's prompt as token ids, at least one, with room for its max_tokens behind it.

        What is cheap to check comes first: a long text may take a second or more.
        """
        self._check_sampling(job.sampling)
        if job.messages is not None:
            field, token_ids = "messages", self._encode_messages(job.messages)
        elif isinstance(job.prompt, str):
            field, token_ids = "prompt", self._encode_text("prompt", job.prompt, add_special_tokens=True)
        else:
            field, token_ids = "prompt", list(job.prompt or ())
        self._check_length(field, len(token_ids), job.sampling.max_tokens)
        # Texts too: some tokenizers know tokens that their model has no embedding of (Gemma 3's image tokens), and a
        # look-up beyond the table ends a GPU for its process.
        self._check_ids(field, token_ids)
        return token_ids

    def decode(self, token_ids: list[int]) -> str:
        """Text of token ids, without special tokens; bytes that are no character read as U+FFFD."""
        text = self._tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(text)

    def _encode_messages(self, messages: Sequence[Message]) -> list[int]:
        """Through the model's chat template, which transformers runs in jinja's sandbox."""
        if not self._encoder.chat_template:
            raise _invalid("messages", "this model has no chat template; send a prompt instead")
        turns = [message._asdict() for message in messages]
        try:
            text = self._encoder.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        except Exception as error:  # a template is a program, and raises what it likes about its input
            raise _invalid("messages", f"the model's chat template refuses them: {error}") from error
        return self._encode_text("messages", str(text), add_special_tokens=False)

    def _encode_text(self, field: str, text: str, add_special_tokens: bool) -> list[int]:
        """A chat is measured as its template writes it: a template may leave out any part of the messages."""
        if self._text_limit is not None:
            self._check_characters(field, text, self._text_limit)
        return list(self._encoder.encode(text, add_special_tokens=add_special_tokens, verbose=False))

    def _check_characters(self, field: str, text: str, limit: TextLimit) -> None:
        per_token, num_characters = limit.max_characters_per_token, limit.num_characters(text)
        most = self._max_model_len * per_token
        if num_characters > most:
            sizes = f"{self._max_model_len} tokens of at most {per_token} characters"
            message = f"has {num_characters} characters; at most {most} are possible: {sizes}"
            raise JobRejected(RejectCode.TOO_LONG, field, message)

    def _check_sampling(self, sampling: SamplingParams) -> None:
        self._check_ids("stop_token_ids", sampling.stop_token_ids)
        self._check_ids("logit_bias", [token for token, _ in sampling.logit_bias])

    def _check_ids(self, field: str, token_ids: Collection[int]) -> None:
        for token_id in (min(token_ids, default=0), max(token_ids, default=0)):
            if not 0 <= token_id < self._vocab_size:
                raise _invalid(field, f"token id {token_id} is not below the vocabulary's size, {self._vocab_size}")

    def _check_length(self, field: str, num_prompt_tokens: int, max_tokens: int) -> None:
        most = self._max_model_len
        if num_prompt_tokens == 0:
            raise _invalid(field, "must not be empty")
        if num_prompt_tokens >= most:
            message = f"has {num_prompt_tokens} tokens; with one output token at most {most} are possible"
            raise JobRejected(RejectCode.TOO_LONG, field, message)
        if num_prompt_tokens + max_tokens > most:
            message = f"{max_tokens}, with {num_prompt_tokens} prompt tokens, is more than the {most} that are possible"
            raise JobRejected(RejectCode.TOO_LONG, "max_tokens", message)


def _invalid(field: str, message: str) -> JobRejected:
    return JobRejected(RejectCode.INVALID_VALUE, field, message)
