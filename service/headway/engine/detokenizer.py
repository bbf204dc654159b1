"""The output of one job on its way to the client: which tokens may be shown now, and with what text.

Tokens and their text leave together, at a token border, once no character is half and no stop string could still
begin in them. So what a job's log holds is always a state from which another worker can go on:

    output tokens   t0 t1 t2 t3 │ t4 t5 t6
    output text     "Hello wor" │ "ld</"         stop = "</s>": t4 to t6 wait
                      delivered │ held back
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from headway.core.job import SamplingParams
from headway.core.records import TokenLogprobs
from headway.engine.stop_strings import StopStrings
from headway.engine.text_stream import Decode, TextStream


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens and the text that belongs to them."""

    token_ids: tuple[int, ...] = ()
    text: str = ""
    logprobs: tuple[TokenLogprobs, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Border:
    """A place where tokens and whole characters end together."""

    num_tokens: int
    num_characters: int


class Detokenizer:
    """One job's output. After a resume, `restore` first."""

    def __init__(self, decode: Decode, prompt_token_ids: list[int], sampling: SamplingParams) -> None:
        self._stream = TextStream(decode, prompt_token_ids)
        self._stops = StopStrings(sampling.stop)
        self._min_tokens = sampling.min_tokens
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprobs | None] = []
        self._text = ""
        self._stop_at: int | None = None
        self._borders: deque[_Border] = deque()
        self._delivered = _Border(0, 0)

    def restore(self, token_ids: tuple[int, ...], text: str, is_stopped: bool) -> None:
        """Output of earlier attempts, delivered with this text; ``is_stopped``: its last token was a stop token."""
        for index, token_id in enumerate(token_ids, start=1):
            self.push(token_id, None, is_stop=is_stopped and index == len(token_ids))
        self._delivered = _Border(len(token_ids), len(text))
        self._borders.clear()

    @property
    def found_stop(self) -> bool:
        """Whether the output holds a stop string that counts."""
        return self._stop_at is not None

    def push(self, token_id: int, logprobs: TokenLogprobs | None, is_stop: bool) -> None:
        """The next output token. ``is_stop``: it ends the sequence (EOS or a stop token) and has no text."""
        self._token_ids.append(token_id)
        self._logprobs.append(logprobs)
        if not is_stop:
            self._append(self._stream.push(token_id))
        self._mark_border(len(self._token_ids) - self._stream.num_pending)

    def take(self) -> Piece:
        """What may be shown now and was not taken before."""
        safe = self._stops.safe_length(self._text)
        border = self._delivered
        while self._borders and self._borders[0].num_characters <= safe:
            border = self._borders.popleft()
        return self._deliver(border, self._text)

    def finish(self) -> Piece:
        """All that is left, at the end of the sequence: up to the stop string if one was found."""
        text = self._text + self._stream.finish() if self._stop_at is None else self._text[: self._stop_at]
        return self._deliver(_Border(len(self._token_ids), len(text)), text)

    def _append(self, text: str) -> None:
        num_before = len(self._text)
        self._text += text
        if text and self._stop_at is None and len(self._token_ids) >= self._min_tokens:
            self._stop_at = self._stops.find(self._text, num_before)

    def _mark_border(self, num_tokens: int) -> None:
        """Whole characters end behind this many tokens: remember it, unless it is no news (as right after a resume)."""
        last = self._borders[-1] if self._borders else self._delivered
        if num_tokens > last.num_tokens and len(self._text) >= last.num_characters:
            self._borders.append(_Border(num_tokens, len(self._text)))

    def _deliver(self, border: _Border, text: str) -> Piece:
        """Everything from the last delivery up to ``border``."""
        tokens = slice(self._delivered.num_tokens, border.num_tokens)
        new_text = text[self._delivered.num_characters : border.num_characters]
        self._delivered = border
        logprobs = tuple(entry for entry in self._logprobs[tokens] if entry is not None)
        return Piece(tuple(self._token_ids[tokens]), new_text, logprobs or None)
