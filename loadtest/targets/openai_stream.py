"""One streamed completion, read as server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from headway.core.errors import HeadwayError
from headway.core.job import FinishReason

DATA = b"data:"
DONE = b"[DONE]"
MAX_SHOWN_CHARACTERS = 200


class ServerRefused(HeadwayError):
    """The server answered that it does not do this: a status, or an error in the stream."""

    def __init__(self, status: int | None, message: str) -> None:
        self.status = status
        self.message = message
        what = "error" if status is None else f"HTTP {status}"
        super().__init__(f"{what}: {message[:MAX_SHOWN_CHARACTERS]}")


class StreamBroken(HeadwayError):
    """It was over before the request had ended."""


@dataclass(frozen=True, slots=True)
class Piece:
    num_tokens: int | None
    """So far; None: it does not say."""
    num_new_tokens: int
    """With this piece, as far as can be told."""
    num_prompt_tokens: int | None
    finish_reason: FinishReason | None


async def complete(session: aiohttp.ClientSession, url: str, body: Mapping[str, Any]) -> AsyncGenerator[Piece, None]:
    """The pieces of one completion. Raises `ServerRefused`, `StreamBroken`, or aiohttp's ``ClientError``."""
    has_ended = False
    async with session.post(f"{url}/completions", json=body) as response:
        if response.status != 200:
            raise ServerRefused(response.status, _message(await response.text()))
        async for line in response.content:
            if not line.startswith(DATA):
                continue
            data = line.removeprefix(DATA).strip()
            if data == DONE:
                break
            piece = _piece(data)
            has_ended = has_ended or piece.finish_reason is not None
            yield piece
    if not has_ended:
        raise StreamBroken("the stream was over before the request")


def _piece(data: bytes) -> Piece:
    """Raises `ServerRefused` for an error, `StreamBroken` for what nobody can read."""
    try:
        event = json.loads(data)
        if "error" in event:
            raise ServerRefused(None, _message(data.decode()))
        usage = event.get("usage") or {}
        choice = (event.get("choices") or [{}])[0]
        reason = choice.get("finish_reason")
        token_ids = choice.get("token_ids")
        num_new = len(token_ids) if token_ids else int(bool(choice.get("text")))
        return Piece(usage.get("completion_tokens"), num_new, usage.get("prompt_tokens"), _finish_reason(reason))
    except (ValueError, TypeError, AttributeError, KeyError) as exc:
        raise StreamBroken("the stream has an event that is no completion") from exc


def _finish_reason(reason: str | None) -> FinishReason | None:
    if reason is None:
        return None
    return FinishReason(reason) if reason in ("stop", "length") else FinishReason.ERROR


def _message(text: str) -> str:
    """The server's words, out of the usual forms of an error."""
    try:
        error = json.loads(text)
        error = error.get("error", error)
        return str(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, AttributeError):
        return text
