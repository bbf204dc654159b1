"""A worker's end of the lease stream: it finds the leader, follows redirects, and comes back for ever.

The stream may break at any time, and messages in transit with it. Nothing is kept for the next stream: its hello says
what the worker holds then, and the leader draws its conclusions.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

import grpc

from headway.core.errors import LeaseError, SettingError
from headway.core.lease_messages import Demand, Hello, LeaderMessage, Redirect, Welcome, WorkerMessage
from headway.lease import lease_pb2 as pb
from headway.lease.channel import TlsFiles, connection_options
from headway.lease.config import LeaseConfig
from headway.lease.outgoing import Outgoing
from headway.lease.translate import leader_messages_from_wire, worker_messages_to_wire
from headway.lease.versions import METHOD, SERVICE, explained

logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 0.1
MAX_REDIRECTS = 3
"""In a row; then the replicas do not agree on who leads, and the client pauses before it asks again."""
REPEAT_SECONDS = 60.0
"""Between two warnings of the same reason."""
_LAYERS = re.compile(r"^(?:UNKNOWN: )?(?:ipv[46]:\S+: )?(?:Failed to connect to remote host: )?(?:connect: )?")
CLOSE_SECONDS = 5.0
"""How long `LeaseClient.close` waits for what was sent to reach the leader."""


class LeaseClient:
    """One worker's connection to whoever leads. `messages` does the work: exactly one task iterates it."""

    def __init__(self, config: LeaseConfig, hello: Callable[[], Hello]) -> None:
        """``hello`` is called whenever a stream opens; messages sent from then on belong to that stream."""
        for address in config.lease_addresses:
            config.require_tls_or_loopback("lease_address", address)
        self._config = config
        self._hello = hello
        self._targets = deque(config.lease_addresses)
        """Where to ask for the leader, in this order; whoever could not help goes to the end."""
        self._leader: str | None = None
        """Where the last redirect said that it is."""
        self._stream: _Stream | None = None
        self._num_failures = 0
        self._num_redirects = 0
        self._closing = asyncio.Event()
        self._finished = asyncio.Event()
        self._finished.set()
        self.last_error: str | None = "not connected yet"
        """Why no leader has welcomed this worker; None while one has. For the readiness probe."""
        self._last_warning: str | None = None
        self._warned_at = 0.0

    @property
    def is_connected(self) -> bool:
        return self.last_error is None

    async def messages(self) -> AsyncGenerator[LeaderMessage, None]:
        """What the leader says: on every new stream a `Welcome` first. Ends only after `close`."""
        self._finished.clear()
        try:
            while not self._closing.is_set():
                async with aclosing(self._one_stream()) as messages:
                    async for message in messages:
                        yield message
                await self._pause()
        finally:
            self._finished.set()

    def send(self, message: WorkerMessage) -> bool:
        """Queue a message for the leader. False: it is lost, and the next hello says what counts.

        A `Demand` takes the place of one that waits to be sent: it says what could be taken *now*.
        """
        if self._stream is None or self._closing.is_set():
            return False
        if not self._stream.outgoing.put(message):
            self.reconnect(f"more than {self._config.max_lease_messages} messages wait to be sent")
            return False
        return True

    def reconnect(self, reason: str) -> None:
        """Give this stream up (its leader is a former one, for instance) and open another."""
        if self._stream is not None:
            self._stream.give_up(reason)

    async def close(self) -> None:
        """Sends what is queued, then ends the stream, and with it `messages`."""
        self._closing.set()
        if self._stream is not None:
            self._stream.outgoing.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._finished.wait()
        except TimeoutError:
            self.reconnect(f"it did not end within {CLOSE_SECONDS} s")

    async def _one_stream(self) -> AsyncGenerator[LeaderMessage, None]:
        """Everything from one leader, until the stream ends in whatever way."""
        target, self._leader = self._leader or self._targets[0], None
        try:
            self._config.require_tls_or_loopback("the leader's address", target)
            self._stream = _Stream(self._config, target)
            self._stream.outgoing.put(self._hello())
            async with aclosing(self._stream.messages()) as messages:
                async for message in messages:
                    if isinstance(message, Redirect):
                        self._redirected(message)
                        return
                    if isinstance(message, Welcome):
                        self._welcomed()
                    yield message
            self._failed(target, "the leader ended the stream")
        except (LeaseError, SettingError) as error:
            self._failed(target, str(error))
        finally:
            self._stream = None

    def _welcomed(self) -> None:
        self._num_failures = self._num_redirects = 0
        self.last_error = self._last_warning = None

    def _redirected(self, redirect: Redirect) -> None:
        if redirect.address is None or self._num_redirects >= MAX_REDIRECTS:
            return self._failed(self._targets[0], "no queue process leads now")
        self._num_redirects += 1
        self._leader = redirect.address
        self.last_error = f"redirected to {redirect.address}"

    def _failed(self, target: str, reason: str) -> None:
        self._num_failures += 1
        self._num_redirects = 0
        self._targets.rotate(-1)
        self.last_error = f"{target}: {reason}"
        if not self._closing.is_set():
            self._warn(self.last_error)

    def _warn(self, reason: str) -> None:
        """The attempts go on every few seconds; the same reason is worth a line only now and then."""
        now = asyncio.get_running_loop().time()
        is_known = reason == self._last_warning and now - self._warned_at < REPEAT_SECONDS
        logger.log(logging.DEBUG if is_known else logging.WARNING, "no lease stream: %s", reason)
        if not is_known:
            self._last_warning, self._warned_at = reason, now

    async def _pause(self) -> None:
        """Exponential, and jittered so that the workers of a dead leader do not come to the next one all at once."""
        if self._num_failures == 0 or self._num_redirects > 0:
            return
        num_rounds = min(self._num_failures // len(self._targets), 16)
        longest = min(self._config.lease_max_backoff_seconds, FIRST_BACKOFF_SECONDS * 2**num_rounds)
        try:
            async with asyncio.timeout(longest * random.uniform(0.5, 1.0)):
                await self._closing.wait()
        except TimeoutError:
            return


def _reason(error: grpc.aio.AioRpcError) -> str:
    """What gRPC says, without the names of its layers and the address, which stand before what happened."""
    details = (error.details() or "").rpartition("last error: ")[2]
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return explained(details)
    return f"{error.code().name}: {_LAYERS.sub('', details)}"


class _Stream:
    """One gRPC stream to one address."""

    def __init__(self, config: LeaseConfig, target: str) -> None:
        self._config = config
        self._target = target
        self.outgoing: Outgoing[WorkerMessage] = Outgoing(config.max_lease_messages)
        self._call: grpc.aio.StreamStreamCall | None = None
        self._given_up: str | None = None

    def give_up(self, reason: str) -> None:
        self._given_up = reason
        if self._call is not None:
            self._call.cancel()

    async def messages(self) -> AsyncGenerator[LeaderMessage, None]:
        """Raises ``LeaseError`` unless the other side ended the stream in order."""
        async with self._channel() as channel:
            attach = channel.stream_stream(
                f"/{SERVICE}/{METHOD}", pb.WorkerMessages.SerializeToString, pb.LeaderMessages.FromString
            )
            self._call = attach()
            writer = asyncio.create_task(self._write_all(self._call), name="lease-stream-out")
            try:
                wire = await self._first()
                while wire is not grpc.aio.EOF:
                    for message in leader_messages_from_wire(wire):
                        yield message
                    wire = await self._read()
            finally:
                writer.cancel()
                self._call.cancel()
                await asyncio.wait((writer,))

    async def _first(self) -> pb.LeaderMessages:
        seconds = self._config.lease_connect_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._read()
        except TimeoutError as error:
            raise LeaseError(f"no answer within {seconds} s") from error

    async def _read(self) -> pb.LeaderMessages:
        """The next message, or ``grpc.aio.EOF``."""
        assert self._call is not None
        try:
            return await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise LeaseError(_reason(error)) from error
        except asyncio.CancelledError as error:
            if self._given_up is None:
                raise  # our own task was cancelled, not the call
            raise LeaseError(self._given_up) from error

    async def _write_all(self, call: grpc.aio.StreamStreamCall) -> None:
        """Ours instead of an iterator that gRPC would read: it forgets that one when the other side ends first. Why
        a call is over is for the reader to find out."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while messages := await self.outgoing.take():
                for wire in worker_messages_to_wire(_without_former_demands(messages)):
                    await call.write(wire)
            await call.done_writing()

    def _channel(self) -> grpc.aio.Channel:
        options = connection_options(self._config)
        tls = TlsFiles.read(self._config)
        if tls is None:
            return grpc.aio.insecure_channel(self._target, options)
        if self._config.lease_server_name is not None:
            options = [*options, ("grpc.ssl_target_name_override", self._config.lease_server_name)]
        return grpc.aio.secure_channel(self._target, tls.for_client(), options)


def _without_former_demands(messages: list[WorkerMessage]) -> list[WorkerMessage]:
    """Only the last demand counts: each says all that the worker could take."""
    demands = [message for message in messages if isinstance(message, Demand)]
    return [message for message in messages if not isinstance(message, Demand) or message is demands[-1]]
