"""One named connection to NATS that never gives up, and that can say how it is.

nats-py reconnects by itself. What it lacks, and this adds: a state with a reason that a readiness probe can
repeat, a bound on the first attempt for those who want one (a command line fails, a server waits), and our error
types.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from nats.errors import Error as NatsError
from nats.errors import SlowConsumerError
from nats.js import JetStreamContext

from headway.broker.acked_publish import AckedPublisher
from headway.broker.config import BrokerConfig
from headway.broker.errors import BrokerUnavailable, translated
from headway.broker.permissions import PermissionClient
from headway.broker.tls import RenewedTls
from headway.core.errors import SettingError

log = logging.getLogger(__name__)

MAX_OUTSTANDING_PINGS = 3
"""Pings go out every ``nats_timeout_seconds``. A line that swallows everything does not show in any other way: without
them a connection stays "connected" for as long as the kernel has patience. More than one, since an answer waits behind
whatever the server sends us."""
CANCEL_SECONDS = 0.1
CLOSE_SECONDS = 2.0
"""For each step of closing; a server that is gone does not answer."""


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """Whether NATS can be reached now, and why not."""

    connected: bool
    reason: str = ""


class Connection:
    """A NATS client with a state. ``client`` and ``js`` are nats-py's own, for the rest of this package; ``acked``
    publishes many records more cheaply than ``js``.

    ``on_change`` is called with every new state, in the event loop; it must not block.
    """

    def __init__(
        self, config: BrokerConfig, name: str, on_change: Callable[[ConnectionState], None] | None = None
    ) -> None:
        self.config = config
        self.name = name
        self.client = PermissionClient()
        self.js: JetStreamContext = self.client.jetstream(timeout=config.nats_timeout_seconds)
        self.acked = AckedPublisher(self.client, config.nats_timeout_seconds)
        self.state = ConnectionState(False, f"no answer from {without_password(config)} yet")
        self._on_change = on_change
        self._tls: RenewedTls | None = None
        self._refusal = ""
        """The server's words, if it was there and did not let us in at the last attempt that it answered."""
        self._closing = False
        self._closed = asyncio.Event()

    async def open(self, timeout_seconds: float | None = None) -> Self:
        """Connect; for ever without a timeout. Raises `BrokerUnavailable` with the last reason after it."""
        options = _options(self.config)
        self._tls = RenewedTls.of(self.config)
        if self._tls is not None:
            options["tls"] = self._tls.context
        attempts = self.client.connect(
            servers=self.config.urls,
            name=self.name,
            max_reconnect_attempts=-1,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_connected,
            closed_cb=self._on_closed,
            **options,
        )
        with translated("connect to NATS"):
            is_connected = await _within(timeout_seconds, attempts)
        if not is_connected:
            reason = self.state.reason
            await self.close()
            raise BrokerUnavailable("connect to NATS", reason)
        await self._on_connected()
        return self

    async def close(self) -> None:
        """Send what is buffered, then close; never raises and never waits long."""
        self._closing = True
        if self.client.is_connected:
            await _attempt(self.client.flush())
        await _attempt(self.client.close())
        _cancel_leftovers(self.client)
        self._change(ConnectionState(False, "closed"))
        self._closed.set()

    async def wait_closed(self) -> None:
        """Until the connection has ended for good: closed by us, or by nats-py after an error of the protocol.

        A lost connection is no end. A role that has not asked for the end should stop and be started again.
        """
        await self._closed.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def max_payload(self) -> int:
        """Bytes of one message at most, headers included, as the server said."""
        return self.client.max_payload

    async def _on_connected(self) -> None:
        self.client.forget()
        self._refusal = ""
        self._change(ConnectionState(True))

    async def _on_disconnected(self) -> None:
        if self._closing:
            return
        self._renew_tls()
        self._change(ConnectionState(False, f"lost the connection to {without_password(self.config)}"))

    async def _on_closed(self) -> None:
        cause = self.client.last_error
        self._change(ConnectionState(False, f"closed: {cause}" if cause and not self._closing else "closed"))
        self._closed.set()

    async def _on_error(self, exc: Exception) -> None:
        reason = _reason(exc)
        if isinstance(exc, SlowConsumerError) or self.client.is_connected:
            log.warning("NATS: %s", reason)
            self.client.note(reason)
            return
        self._renew_tls()
        reason = self._kept_refusal(exc) or reason
        self._change(ConnectionState(False, f"cannot reach {without_password(self.config)}: {reason}"))

    def _kept_refusal(self, exc: Exception) -> str:
        """What the server last said against us, for as long as no attempt fails for another reason.

        A server that refuses us closes at once. If our next line reaches it after that, its host resets the connection,
        and the refusal is lost on the way: a reset after a refusal is no news.
        """
        if not isinstance(exc, ConnectionResetError | BrokenPipeError):
            self._refusal = _reason(exc) if isinstance(exc, NatsError) else ""
        return self._refusal

    def _renew_tls(self) -> None:
        """Before the next attempt."""
        if self._tls is not None:
            self._tls.renew()

    def _change(self, state: ConnectionState) -> None:
        if state == self.state:
            return
        self.state = state
        if not state.connected and not self._closing:
            log.warning("NATS: %s", state.reason)
        if self._on_change is not None:
            self._on_change(state)


async def connect(
    config: BrokerConfig,
    name: str,
    *,
    timeout_seconds: float | None = None,
    on_change: Callable[[ConnectionState], None] | None = None,
) -> Connection:
    """An open connection; ``name`` is what NATS monitoring shows. Waits for ever without a timeout."""
    return await Connection(config, name, on_change).open(timeout_seconds)


async def _within(timeout_seconds: float | None, attempts: Coroutine[Any, Any, None]) -> bool:
    """Whether they came to their end in time; however that is, nothing of them goes on.

    In a task of its own, to be cancelled until it is over: between two attempts nats-py takes a cancellation for one of
    its own, and goes on for ever.
    """
    task = asyncio.create_task(attempts, name="nats:connect")
    try:
        await asyncio.wait((task,), timeout=timeout_seconds)
    finally:
        is_over = task.done()
        while not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=CANCEL_SECONDS)
    if is_over:
        task.result()
    return is_over


async def _attempt(step: Awaitable[None]) -> None:
    """Of closing: bounded, and never an error."""
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await step
    except Exception as exc:
        log.debug("closing the connection to NATS: %r", exc)


def _cancel_leftovers(client: PermissionClient) -> None:
    """nats-py ends its own tasks only if it can close in order, which it cannot once the server is gone."""
    tasks = [client._reconnection_task, *(sub._wait_for_msgs_task for sub in client._subs.values())]
    for task in tasks:
        if task is not None and not task.done():
            task.cancel()


def _options(config: BrokerConfig) -> dict[str, Any]:
    options: dict[str, Any] = {
        "reconnect_time_wait": config.nats_reconnect_seconds,
        "connect_timeout": config.nats_timeout_seconds,
        "ping_interval": config.nats_timeout_seconds,
        "max_outstanding_pings": MAX_OUTSTANDING_PINGS,
        "inbox_prefix": config.nats_inbox_prefix,
        "user": config.nats_user,
        "password": config.nats_password,
        "user_credentials": config.nats_credentials_file,
        "nkeys_seed": config.nats_nkey_file,
    }
    for setting in ("nats_credentials_file", "nats_nkey_file"):
        path = getattr(config, setting)
        if path is not None and not Path(path).is_file():
            raise SettingError(setting, path, "there is no such file")
    return {name: value for name, value in options.items() if value is not None}


def _reason(exc: Exception) -> str:
    """In words; asyncio's own name the address once more."""
    if isinstance(exc, ConnectionError) and exc.errno is not None:
        return os.strerror(exc.errno).lower()
    return str(exc) or type(exc).__name__


def without_password(config: BrokerConfig) -> str:
    """The addresses as they may be logged."""
    return ", ".join(
        urlsplit(url)._replace(netloc=urlsplit(url).netloc.rpartition("@")[2]).geturl() for url in config.urls
    )
