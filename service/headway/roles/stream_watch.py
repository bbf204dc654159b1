"""The streams of one process: right before it begins, said to be in trouble when they are, and made anew when gone.

Whoever writes a log tries until it works, so a stream that is full, deleted or out of space costs no job anything but
time. Somebody has to say so, and to look: a stream that was deleted may be there again (`create_streams`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection
from headway.broker.streams import ensure_streams
from headway.broker.troubles import Troubles
from headway.core.errors import BrokerError
from headway.roles.probes import Probes

log = logging.getLogger(__name__)

STREAMS, RESULTS = "streams", "results"
"""Conditions of readiness: the streams are as they must be; what is written is stored."""
RETRY_SECONDS = 2.0


class StreamWatch:
    """`check` at the start, `run` afterwards. Whatever writes gets `troubles`."""

    def __init__(self, config: BrokerConfig, probes: Probes, on_change: Callable[[], None] = lambda: None) -> None:
        """``on_change`` hears that the trouble has begun, changed or ended."""
        self._config = config
        self._probes = probes
        probes.met(RESULTS)
        self._on_change = on_change
        self._has_trouble = asyncio.Event()
        self.troubles = Troubles(self._on_trouble)

    @property
    def has_trouble(self) -> bool:
        """Records cannot be stored now."""
        return self._has_trouble.is_set()

    async def check(self, connection: Connection) -> None:
        """Until the streams are as they must be, saying why not meanwhile."""
        was_refused = False
        while True:
            try:
                await ensure_streams(connection.js, self._config)
            except BrokerError as exc:
                was_refused = True
                log.warning("not ready: %s", exc)
                self._probes.failing(STREAMS, str(exc))
                await asyncio.sleep(RETRY_SECONDS)
            else:
                if was_refused:
                    log.info("the streams are as they must be")
                self._probes.met(STREAMS)
                return

    async def run(self, connection: Connection) -> None:
        """While records cannot be stored, the streams are looked at again: one may be gone, to be made anew."""
        while True:
            await self._has_trouble.wait()
            await self.check(connection)
            await asyncio.sleep(RETRY_SECONDS)

    def _on_trouble(self, reason: str | None) -> None:
        if reason is None:
            self._has_trouble.clear()
            self._probes.met(RESULTS)
            log.info("records are stored again")
        else:
            self._has_trouble.set()
            self._probes.failing(RESULTS, reason)
            log.warning("not ready: %s; what cannot be stored is held", reason)
        self._on_change()
