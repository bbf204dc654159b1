"""A line to NATS that lets through just so many tokens of each job: what is published beyond them is lost.

So a test decides at which token a worker dies, however fast it generates. A record that is lost is published again by
its writer, after a while; the writer never learns why.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from loadtest.faults.proxy import Proxy

Allows = Callable[[str, dict[str, Any]], bool]
"""Whether this record of a log may pass, by subject and content."""

LINE_END = b"\r\n"
LOGS = "headway.log."


class GatedProxy(Proxy):
    """Looks at what workers write; everything else passes."""

    def __init__(self, server_url: str, allows: Allows) -> None:
        super().__init__(server_url)
        self._allows = allows

    async def _to_server(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                line = await reader.readuntil(LINE_END)
                await self._delay()
                await self._pass_on(line, reader, writer)
        except asyncio.IncompleteReadError as exc:
            raise ConnectionResetError from exc

    async def _pass_on(self, line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One message of NATS's protocol: ``HPUB subject [reply] header-bytes bytes``, or without headers."""
        words = line.split()
        if words[:1] not in ([b"PUB"], [b"HPUB"]):
            return await self._send(writer, line)
        content = await reader.readexactly(int(words[-1]) + len(LINE_END))
        num_header_bytes = int(words[-2]) if words[0] == b"HPUB" else 0
        if self._may_pass(words[1].decode(), content[num_header_bytes : -len(LINE_END)]):
            await self._send(writer, line + content)

    def _may_pass(self, subject: str, payload: bytes) -> bool:
        return not subject.startswith(LOGS) or self._allows(subject, json.loads(payload))


class TokenGate:
    """Allows the tokens before index `limit` of every job: one by one of those in ``fine`` (their ids).

    Of the others a record that begins below the limit may pass, whatever it carries.
    """

    def __init__(self, fine: frozenset[str]) -> None:
        self.limit = -1
        self._fine = fine
        self.num_crowded = 0
        """Records refused because they carry the next token and more. Their writer cannot write the next one alone."""

    def allows(self, subject: str, record: dict[str, Any]) -> bool:
        if record["kind"] != "tokens" or self.is_open:
            return True
        if record["token_start"] >= self.limit:
            return False
        is_alone = len(record["token_ids"]) == 1 or subject.rpartition(".")[2] not in self._fine
        self.num_crowded += not is_alone
        return is_alone

    @property
    def is_open(self) -> bool:
        return self.limit < 0

    def open(self) -> None:
        """For whatever comes."""
        self.limit = -1
