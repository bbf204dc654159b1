"""A small real HTTP server with OpenAI's streaming completions, that does as it is told: slowly, with faults, or with
fewer of the usual extensions."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

NEVER = 3600.0


@dataclass
class Behaviour:
    takes_token_ids: bool = True
    takes_extensions: bool = True
    """``ignore_eos``, ``min_tokens`` and ``continuous_usage_stats``; without them an answer stops after 3 tokens."""
    num_at_once: int = 1
    """Tokens in one piece of text."""
    text: str = " more"
    """Of every piece after the first; empty: half a character, that waits for its other half."""
    faults: dict[int, str] = field(default_factory=dict)
    """By the ``max_tokens`` of a request: ``status`` (500), ``error`` (an event), ``drop`` (the connection, in the
    middle), ``end`` (the stream, without a word), ``garbage``, ``silent`` (for ever, after a token)."""


@dataclass
class CompletionServer:
    behaviour: Behaviour
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """Of all completions that were asked for."""
    headers: list[dict[str, str]] = field(default_factory=list)
    num_left: int = 0
    """Clients that closed their connection in the middle."""

    def asked(self, num_tokens: int) -> list[dict[str, Any]]:
        return [body for body in self.bodies if body["max_tokens"] == num_tokens]

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "first"}, {"id": "second"}]})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        if isinstance(body["prompt"], list) and not self.behaviour.takes_token_ids:
            return _refused("prompt must be a string")
        if ("ignore_eos" in body or len(body["stream_options"]) > 1) and not self.behaviour.takes_extensions:
            return _refused("unknown field")
        fault = self.behaviour.faults.get(body["max_tokens"])
        if fault == "status":
            return web.json_response({"error": {"message": "out of memory"}}, status=500)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            await self._stream(request, response, body, fault)
        except (asyncio.CancelledError, ConnectionResetError):
            self.num_left += 1
            raise
        return response

    async def _stream(self, request, response, body: dict[str, Any], fault: str | None) -> None:
        await _send(response, {"choices": [{"text": "one", "finish_reason": None}]})
        if fault == "silent":
            await asyncio.sleep(NEVER)
        elif fault == "drop":
            request.transport.close()
        elif fault == "error":
            await _send(response, {"error": {"message": "the engine died"}})
        elif fault == "garbage":
            await response.write(b"data: what?\n\n")
        if fault is None:
            await self._rest(response, body)

    async def _rest(self, response, body: dict[str, Any]) -> None:
        is_exact = "ignore_eos" in body
        num_tokens = body["max_tokens"] if is_exact else min(3, body["max_tokens"])
        for start in range(1, num_tokens, self.behaviour.num_at_once):
            await asyncio.sleep(0)
            usage = {"completion_tokens": min(num_tokens, start + self.behaviour.num_at_once)}
            event = {"choices": [{"text": self.behaviour.text, "finish_reason": None}]}
            if body["stream_options"].get("continuous_usage_stats"):
                event["usage"] = usage
            await _send(response, event)
        reason = "length" if num_tokens == body["max_tokens"] else "stop"
        await _send(response, {"choices": [{"text": "", "finish_reason": reason}]})
        await _send(response, {"choices": [], "usage": {"completion_tokens": num_tokens, "prompt_tokens": 5}})
        await response.write(b"data: [DONE]\n\n")


@contextmanager
def serving(behaviour: Behaviour | None = None) -> Iterator[CompletionServer]:
    """In a thread with an event loop of its own: the client under test blocks this one."""
    server = CompletionServer(behaviour or Behaviour())
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    app = web.Application()
    app.add_routes([web.get("/v1/models", server.models), web.post("/v1/completions", server.complete)])
    # Without access logs; a client that leaves cancels its handler.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)

    async def start() -> str:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/v1"

    try:
        server.url = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")


def _refused(message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=400)
