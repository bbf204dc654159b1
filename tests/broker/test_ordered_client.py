"""What goes over the wire, and in which order."""

from __future__ import annotations

import asyncio

from headway.broker.ordered_client import OrderedClient


class Recorder:
    """A server that answers pings and keeps the commands that came."""

    def __init__(self) -> None:
        self.commands: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id": "recorder", "version": "2.15.0", "max_payload": 1048576}\r\n')
        async for line in reader:
            self.commands.append(line.decode().split()[0])
            if line == b"PING\r\n":
                writer.write(b"PONG\r\n")
        writer.close()


async def test_a_flush_ends_after_the_server_has_all_that_was_sent_before() -> None:
    recorder, client = Recorder(), OrderedClient()
    async with await asyncio.start_server(recorder, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        await client.connect(f"nats://{host}:{port}")
        for subject in ("first", "second"):
            await client.subscribe(subject)
            await client.flush()
        assert recorder.commands == ["CONNECT", "PING", "SUB", "PING", "SUB", "PING"]
        await client.close()
