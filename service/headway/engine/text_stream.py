"""From token ids to text as they come, without ever showing half a character.

A token need not be whole characters (an emoji is often several tokens), and what a token reads as may depend on the
one before it (SentencePiece drops the space of a text's first word). So the new text is the difference between two
decodings of a short window, one with and one without the new tokens, and it waits while it ends in U+FFFD, which is
what an unfinished character reads as:

    ── read before ──┬─ pending ─┐
     window: [ctx…  ]│[t₁ t₂ … ] │     new text = decode(window) − decode(window without the pending tokens)

The end of the prompt is the first window: a completion goes on from it.
"""

from __future__ import annotations

from collections.abc import Callable

REPLACEMENT = "\ufffd"
MAX_CHARACTER_BYTES = 4
CONTEXT_TOKENS = 8
"""Tokens of the prompt's end that the first token's text may depend on."""

Decode = Callable[[list[int]], str]
"""Text of token ids, without special tokens."""


class TextStream:
    """Tokens in, complete characters out. What it gives depends on the tokens only, not on when they are pushed."""

    def __init__(self, decode: Decode, prompt_token_ids: list[int]) -> None:
        self._decode = decode
        self._window = prompt_token_ids[-CONTEXT_TOKENS:]
        self._num_read = len(self._window)
        self._read_text = decode(self._window)
        while self._num_read and self._read_text.endswith(REPLACEMENT):
            self._num_read -= 1  # token ids that end in half a character: the output may bring the other half
            self._read_text = decode(self._window[: self._num_read])

    @property
    def num_pending(self) -> int:
        """Last tokens whose text is not out yet; may reach back into the prompt."""
        return len(self._window) - self._num_read

    def push(self, token_id: int) -> str:
        """The text that this token completes; empty while a character is unfinished."""
        self._window.append(token_id)
        text = self._decode(self._window)
        if not text.endswith(REPLACEMENT) or len(text) <= len(self._read_text):
            return self._read(len(self._window), text)
        return self._read_invalid(text)

    def finish(self) -> str:
        """The rest at the end of the output, without the character that was never finished."""
        return self._decode(self._window)[len(self._read_text) :].rstrip(REPLACEMENT)

    def _read_invalid(self, text: str) -> str:
        """Let go of bytes that will never be a character: four tokens later, a U+FFFD that still stands is final."""
        settled = len(self._window) - MAX_CHARACTER_BYTES
        if settled <= self._num_read:
            return ""
        head = self._decode(self._window[:settled])
        return self._read(settled, head) if text.startswith(head) else ""

    def _read(self, num_tokens: int, text: str) -> str:
        """Take ``text``, the decoding of the window's first ``num_tokens``, as read; returns what is new in it."""
        new = text[len(self._read_text) :]
        if new:
            self._start_window_at(self._num_read, num_tokens, text)
        elif text and text == self._read_text:
            del self._window[self._num_read : num_tokens]  # a special token: it says nothing, so keep no trace of it
        else:
            self._num_read, self._read_text = num_tokens, text
        return new

    def _start_window_at(self, start: int, num_tokens: int, text: str) -> None:
        """Shorten the window to begin with the tokens read last, if they read as something by themselves."""
        tail = self._decode(self._window[start:num_tokens])
        if tail:
            del self._window[:start]
        self._num_read = num_tokens - start if tail else num_tokens
        self._read_text = tail or text
