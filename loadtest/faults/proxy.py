"""A bad line: a TCP proxy in front of one server, that can break connections, slow them, or let nothing through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from urllib.parse import urlsplit


class Proxy:
    """One server, ``scheme://host:port``, and any number of connections to it through `url`."""

    def __init__(self, server_url: str) -> None:
        target = urlsplit(server_url)
        self._scheme, self._host, self._port = target.scheme, target.hostname, target.port
        self.url = ""
        self.delay_seconds = 0.0
        """Of every piece of data, in both directions."""
        self.num_cuts = 0
        self._bytes_left: int | None = None
        self._passing = asyncio.Event()
        self._passing.set()
        self._letting_in = True
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        """``host:port``."""
        return self.url.rpartition("//")[2]

    def cut(self) -> None:
        """Break all connections, with what is on its way; new ones are let in."""
        self.num_cuts += 1
        self._bytes_left = None
        for writer in tuple(self._writers):
            writer.transport.abort()

    def cut_after(self, num_bytes: int) -> None:
        """`cut` once, in the middle of what the server sends: at most so many bytes from now on still pass."""
        self._bytes_left = num_bytes

    def close(self) -> None:
        """`cut`, and break every new connection too, until `open`: a server that is not there."""
        self._letting_in = False
        self.cut()

    def open(self) -> None:
        self._letting_in = True

    def hold(self) -> None:
        """A black hole: connections stay and can be made, but nothing comes through until `release` or `cut`."""
        self._passing.clear()

    def release(self) -> None:
        self._passing.set()

    def begin(self, port: int) -> None:
        """It listens there."""
        self.url = f"{self._scheme}://127.0.0.1:{port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until one side ends it."""
        with suppress(OSError):
            if self._letting_in:
                await self._connect(reader, writer)
        writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(self._host, self._port)
        writers = {writer, server_writer}
        self._writers |= writers
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._to_server(reader, server_writer))
                group.create_task(self._to_client(server_reader, writer))
        except* OSError:
            pass
        finally:
            self._writers -= writers
            server_writer.transport.abort()

    async def _to_server(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until one side ends, which ends the other."""
        while data := await reader.read(65536):
            await self._delay()
            await self._send(writer, data)
        raise ConnectionResetError

    async def _to_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._delay()
            if self._bytes_left is not None:
                data, self._bytes_left = data[: self._bytes_left], self._bytes_left - len(data)
            await self._send(writer, data)
            if self._bytes_left is not None and self._bytes_left <= 0:
                self.cut()
        raise ConnectionResetError

    async def _delay(self) -> None:
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        await self._passing.wait()

    @staticmethod
    async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def serving(proxy: Proxy) -> AsyncIterator[Proxy]:
    """The proxy on a free port; afterwards all its connections are broken."""
    tasks: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(task := asyncio.create_task(proxy.serve(reader, writer), name="proxy"))
        task.add_done_callback(tasks.discard)

    async with AsyncExitStack() as stack:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        stack.callback(server.close)
        proxy.begin(server.sockets[0].getsockname()[1])
        yield proxy
        proxy.cut()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
