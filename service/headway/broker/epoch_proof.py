"""Shows that a leader is the newest one, for the one thing that the epoch alone does not keep from a former leader.

Whoever was deposed can neither fetch nor acknowledge, and workers refuse its epoch. But a log takes an ``end`` from
anybody who names its last record: a leader that was paused between its decision and its writing would end a job that
its successor has granted meanwhile. So a leader writes in three steps,

    read where the log ends ─▶ prove the epoch ─▶ append behind what was read

and the proof is a write: the epoch in the bucket, once more, if it still is the newest. If that is stored, no successor
had raised the epoch when the log was read. Whatever a successor's workers write comes later, so it finds the ``end``,
as if that had been written before the takeover; or it comes first, and the ``end`` is refused.

A reading would not do: a replica, or a server that was cut off from the others a moment ago, answers with what it had.
"""

from __future__ import annotations

import asyncio
import logging

from headway.broker.errors import BrokerUnavailable, Deposed
from headway.broker.state import StateStore

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
PAUSE_SECONDS = 0.02
"""Between two proofs, so that a leader with many jobs to end leaves its successor room to raise the epoch."""


class EpochProof:
    """One leader's. Many may ask at once: a proof that begins after they asked is good for all of them."""

    def __init__(self, store: StateStore, epoch: int) -> None:
        self._store = store
        self._epoch = epoch
        self._revision: int | None = None
        """Of our last proof."""
        self._turn = asyncio.Lock()
        self._num_begun = 0
        self._newest_good = 0
        """Number of the newest proof that succeeded."""

    async def give_way(self, to: int) -> None:
        """Somebody has heard of a higher epoch: raise `Deposed`, once the next one to be given out is above that.

        It may be that the bucket was lost, and the epochs in it began anew. Then workers, and logs, refuse all grants
        until they are where they were.
        """
        while True:
            try:
                if await self._store.epoch() < to:
                    await self._store.raise_epoch(above=to)
            except BrokerUnavailable as exc:
                log.warning("%s; trying again", exc)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                raise Deposed(self._epoch, f"a worker has heard of epoch {to}")

    async def renew(self) -> None:
        """Returns once it was shown, later than this call, that no higher epoch has been given out.

        Tries again while NATS is away. Raises `Deposed`.
        """
        wanted = self._num_begun + 1
        async with self._turn:
            while self._newest_good < wanted:
                self._num_begun += 1
                try:
                    self._revision = await self._store.confirm_epoch(self._epoch, self._revision)
                except BrokerUnavailable as exc:
                    log.warning("%s; trying again", exc)
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    self._newest_good = self._num_begun
                    await asyncio.sleep(PAUSE_SECONDS)
