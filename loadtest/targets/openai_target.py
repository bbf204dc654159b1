"""Any server that speaks OpenAI's protocol: vLLM, SGLang, llama.cpp, or a gateway before them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from typing import Any

import aiohttp

from loadtest.errors import BenchError
from loadtest.machine import CpuClock
from loadtest.progress import Watch, nobody
from loadtest.recording import Recording, StepLog
from loadtest.targets.openai_clients import Clients
from loadtest.targets.openai_dialect import DIALECTS, Dialect
from loadtest.targets.openai_stream import ServerRefused, StreamBroken, complete
from loadtest.targets.sending import DEFAULT_TIMEOUT_SECONDS
from loadtest.targets.server import Server
from loadtest.workloads.plan import Plan
from loadtest.workloads.requests import Request

API_KEY_VARIABLE = "OPENAI_API_KEY"
CONNECT_SECONDS = 30.0
MAX_LINE_BYTES = 2**20
PROBE = Request(tuple(range(100, 108)), num_output_tokens=2)


@contextmanager
def open_server(
    server: Server, watch: Watch = nobody, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
) -> Iterator[OpenAITarget]:
    """It has answered when this returns. Raises `BenchError`."""
    with ExitStack() as parts:
        loop = parts.enter_context(asyncio.Runner())
        session = loop.run(_open_session())
        parts.callback(lambda: loop.run(session.close()))
        model, dialect = loop.run(_get_to_know(session, server))
        yield OpenAITarget(loop, session, server, model, dialect, watch, timeout_seconds)


class OpenAITarget:
    def __init__(
        self,
        loop: asyncio.Runner,
        session: aiohttp.ClientSession,
        server: Server,
        model: str,
        dialect: Dialect,
        watch: Watch,
        timeout_seconds: float,
    ) -> None:
        self._loop = loop
        self._session = session
        self._server = server
        self._model = model
        self._dialect = dialect
        self._watch = watch
        self._timeout_seconds = timeout_seconds
        self._num_runs = 0

    @property
    def facts(self) -> dict[str, Any]:
        return {"name": self._server.name, "url": self._server.url, "model": self._model, **self._dialect.facts}

    def run(self, requests: Sequence[Request], plan: Plan) -> Recording:
        self._num_runs += 1
        cpu = CpuClock({"client": os.getpid()})
        # The server may have a cache of prefixes, which nobody can switch off from here.
        bodies = [self._dialect.body(self._model, request.rotated(self._num_runs)) for request in requests]
        clients = Clients(self._session, self._server.url, requests, bodies, self._timeout_seconds)
        self._loop.run(clients.send(plan, self._watch))
        return Recording(clients.timelines, StepLog(), cpu.elapsed(), clients.errors)


async def _open_session() -> aiohttp.ClientSession:
    """As many connections as there are requests: waiting for a free one would hide what the server does."""
    key = os.environ.get(API_KEY_VARIABLE)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        headers={"Authorization": f"Bearer {key}"} if key else {},
        read_bufsize=MAX_LINE_BYTES,
    )


async def _get_to_know(session: aiohttp.ClientSession, server: Server) -> tuple[str, Dialect]:
    """The model that it serves, and how it is asked. Raises `BenchError`."""
    try:
        model = server.model or await _first_model(session, server)
        return model, await _find_dialect(session, server, model)
    except (aiohttp.ClientError, OSError, StreamBroken) as exc:
        raise BenchError(f"{server.name} at {server.url} does not answer: {exc or type(exc).__name__}") from exc


async def _first_model(session: aiohttp.ClientSession, server: Server) -> str:
    async with session.get(f"{server.url}/models") as response:
        try:
            return str((await response.json())["data"][0]["id"])
        except (aiohttp.ContentTypeError, ValueError, LookupError, TypeError) as exc:
            what = f"{server.url}/models lists no model (HTTP {response.status})"
            raise BenchError(f"{what}; name one with --served-model or URL#MODEL") from exc


async def _find_dialect(session: aiohttp.ClientSession, server: Server, model: str) -> Dialect:
    """The richest that it takes."""
    for dialect in DIALECTS:
        try:
            async with aclosing(complete(session, server.url, dialect.body(model, PROBE))) as pieces:
                async for _ in pieces:
                    pass
            return dialect
        except ServerRefused as exc:
            refused = exc
    raise BenchError(f"{server.name} at {server.url} takes no completions: {refused}") from refused
