"""nats-py's client, with a `flush` that is a barrier.

nats-py keeps commands in a list until its own task writes them, but writes the PING of a flush at once, before them. So
the answer may come while a subscription that was made just before is still on its way, and whoever tells another
process "now you can ask me" is asked too early.
"""

from __future__ import annotations

import asyncio

from nats.aio.client import PING_PROTO, Client


class OrderedClient(Client):
    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        """In line behind what was to be sent before; nats-py resolves ``future`` when the answer comes."""
        self._pongs.append(future or asyncio.Future())
        await self._send_command(PING_PROTO)
        await self._flush_pending()
