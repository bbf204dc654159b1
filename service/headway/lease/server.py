"""The queue's end of the lease streams: gRPC in, callbacks out.

One stream per connected worker. Messages go out through a bounded queue per stream, so that sending never waits: a
worker that does not read loses its stream instead of holding up the others, and comes back for what it holds.
A process that does not lead answers every hello with a `Redirect`. If it does not know who leads, it keeps the worker
waiting for a moment: when there is a new leader, it needs its workers at once.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from itertools import count
from typing import Protocol, Self

import grpc

from headway.core.errors import LeaseError
from headway.core.lease_messages import Hello, LeaderMessage, Redirect, WorkerMessage
from headway.lease import lease_pb2 as pb
from headway.lease.channel import Options, RenewedCertificates, TlsFiles, connection_options
from headway.lease.config import LeaseConfig, split_address
from headway.lease.outgoing import Outgoing
from headway.lease.ports import cannot_be_had, require_free
from headway.lease.translate import leader_messages_to_wire, worker_messages_from_wire
from headway.lease.versions import METHOD, SERVICE, OtherVersions

logger = logging.getLogger(__name__)

NOBODY = Redirect(None)
EVERY_ADDRESS = ("0.0.0.0", "::")
SOMEWHERE = ("192.0.2.1", 9)
"""An address that no machine has (RFC 5737)."""
STOP_SECONDS = 1.0
"""How long workers have to take the redirect when the server stops."""

Requests = AsyncIterator[pb.WorkerMessages]
Messages = AsyncIterator[WorkerMessage]


class LeaseHandler(Protocol):
    """Called in the event loop; must not block. Per stream: connected, received any number of times, disconnected."""

    def connected(self, stream: int, hello: Hello) -> None: ...

    def received(self, stream: int, message: WorkerMessage) -> None: ...

    def disconnected(self, stream: int) -> None: ...


class _Stream:
    """The outgoing side of one stream: what waits to be sent, and whether it is to end."""

    def __init__(self, number: int, max_messages: int) -> None:
        self.number = number
        self.outgoing: Outgoing[LeaderMessage] = Outgoing(max_messages)
        self.dropped: str | None = None
        """Why the stream ends before its time."""
        self.task: asyncio.Task[None] | None = None
        self.handler = asyncio.current_task()
        """gRPC's call of us, whole."""

    async def write_all(self, context: grpc.aio.ServicerContext) -> None:
        while messages := await self.outgoing.take():
            for wire in leader_messages_to_wire(messages):
                await context.write(wire)


class LeaseServer:
    """Serves ``lease_listen`` inside ``async with``. It lets workers in, unless `follow` was called before."""

    def __init__(self, config: LeaseConfig, handler: LeaseHandler) -> None:
        config.require_tls_or_loopback("lease_listen", config.lease_listen)
        self._config = config
        self._handler = handler
        self._server: grpc.aio.Server | None = None
        self._port: int | None = None
        self._streams: dict[int, _Stream] = {}
        self._numbers = count(1)
        self._redirect: Redirect | None = None
        """What a hello is answered with; None: workers are let in."""
        self._news = asyncio.Event()
        """Set, and replaced, when `_redirect` changes."""
        self._is_stopping = False
        self.num_kept_waiting = 0
        """Workers that have said hello, and wait to hear who leads."""

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises ``SettingError`` if the port cannot be had or a TLS file cannot be read."""
        options: Options = [*connection_options(self._config), ("grpc.so_reuseport", 0)]
        self._server = grpc.aio.server(options=options)
        handler = grpc.stream_stream_rpc_method_handler(
            self._attach, pb.WorkerMessages.FromString, pb.LeaderMessages.SerializeToString
        )
        attach = grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})
        self._server.add_generic_rpc_handlers((attach, OtherVersions()))
        self._port = self._bind(self._server)
        await self._server.start()

    async def stop(self) -> None:
        """Ends every stream; workers keep what they hold and look for another leader."""
        self._is_stopping = True
        self.follow(None)
        if self._server is not None:
            await self._server.stop(grace=STOP_SECONDS)
        for stream in self._streams.values():  # on a busy machine one outlived gRPC's server once
            if stream.handler is not None:
                stream.handler.cancel()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def address(self) -> str:
        """Where workers reach this process: as advertised, or as bound (with the port that was given for port 0)."""
        assert self._port is not None, "the server is not started"
        host, _ = split_address(self._config.lease_listen)
        return self._config.lease_advertised_address or f"{_reachable(host)}:{self._port}"

    # -- for the leader ------------------------------------------------------------------------------------------

    def lead(self) -> None:
        """From now on workers are let in."""
        self._answer(None)

    def follow(self, leader: str | None) -> None:
        """Send every worker, now and later, to the leader at ``host:port`` (None: it is not known yet)."""
        self._answer(redirect := Redirect(leader))
        for stream in list(self._streams.values()):
            if not stream.outgoing.put(redirect):
                self.drop(stream.number, "redirected")
            stream.outgoing.close()

    def send(self, stream: int, message: LeaderMessage) -> None:
        """Queue the message; to a stream that is gone it is lost (its worker says anew what it holds)."""
        open_stream = self._streams.get(stream)
        if open_stream is not None and not open_stream.outgoing.put(message):
            self.drop(stream, f"more than {self._config.max_lease_messages} messages wait to be read")

    def drop(self, stream: int, reason: str) -> None:
        """End the stream at once; `disconnected` follows."""
        open_stream = self._streams.get(stream)
        if open_stream is not None and open_stream.task is not None:
            logger.warning("lease stream %d dropped: %s", stream, reason)
            open_stream.dropped = reason
            open_stream.task.cancel()

    # -- one stream ----------------------------------------------------------------------------------------------

    async def _attach(self, requests: Requests, context: grpc.aio.ServicerContext) -> None:
        messages = _received(requests)
        try:
            hello = await self._hello(messages)
            await self._wait_for_leader()
            if self._redirect is not None:
                for wire in leader_messages_to_wire([self._redirect]):
                    await context.write(wire)
                return
            await self._serve(hello, messages, context)
        except LeaseError as error:
            await context.abort(grpc.StatusCode.ABORTED, str(error))

    async def _hello(self, messages: Messages) -> Hello:
        try:
            async with asyncio.timeout(self._config.lease_connect_seconds):
                first = await anext(messages, None)
        except TimeoutError as error:
            raise LeaseError("no hello came") from error
        if not isinstance(first, Hello):
            raise LeaseError("the first message of a stream must be a hello")
        return first

    async def _wait_for_leader(self) -> None:
        """Not for longer than a worker waits for its first answer."""
        self.num_kept_waiting += 1
        try:
            async with asyncio.timeout(self._config.lease_connect_seconds / 2):
                while self._redirect == NOBODY and not self._is_stopping:
                    await self._news.wait()
        except TimeoutError:
            return
        finally:
            self.num_kept_waiting -= 1

    def _answer(self, redirect: Redirect | None) -> None:
        self._redirect = redirect
        self._news.set()
        self._news = asyncio.Event()

    async def _serve(self, hello: Hello, messages: Messages, context: grpc.aio.ServicerContext) -> None:
        stream = _Stream(next(self._numbers), self._config.max_lease_messages)
        stream.task = asyncio.create_task(stream.write_all(context), name=f"lease-stream-{stream.number}-out")
        reader = asyncio.create_task(self._read(stream, messages), name=f"lease-stream-{stream.number}-in")
        self._streams[stream.number] = stream
        try:
            self._handler.connected(stream.number, hello)
            await asyncio.wait((reader, stream.task), return_when=asyncio.FIRST_COMPLETED)
            _raise_what_ended_it(stream, reader)
        finally:
            del self._streams[stream.number]
            reader.cancel()
            stream.task.cancel()
            self._handler.disconnected(stream.number)

    async def _read(self, stream: _Stream, messages: Messages) -> None:
        async for message in messages:
            if stream.dropped is not None:
                return
            self._handler.received(stream.number, message)

    def _bind(self, server: grpc.aio.Server) -> int:
        tls, listen = TlsFiles.read(self._config), self._config.lease_listen
        require_free("lease_listen", listen)
        try:
            if tls is None:
                return server.add_insecure_port(listen)
            return server.add_secure_port(listen, RenewedCertificates(self._config, tls).credentials())
        except RuntimeError as error:
            raise cannot_be_had("lease_listen", listen, str(error)) from error


async def _received(requests: Requests) -> Messages:
    """One by one, as they were sent."""
    async for request in requests:
        for message in worker_messages_from_wire(request):
            yield message


def _reachable(host: str) -> str:
    """The host as others reach it: every address of this machine is none, so the one that it has on its way out."""
    if host not in EVERY_ADDRESS:
        return f"[{host}]" if ":" in host else host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(SOMEWHERE)  # of a datagram socket it sends nothing
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])


def _raise_what_ended_it(stream: _Stream, reader: asyncio.Task[None]) -> None:
    """Raises ``LeaseError`` (or a fault of our own) unless both sides just had nothing more to say."""
    if stream.dropped is not None:
        raise LeaseError(stream.dropped)
    for task in (reader, stream.task):
        if task is not None and task.done() and not task.cancelled():
            task.result()
