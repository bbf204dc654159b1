"""Leading and following: campaigns for the lock, holds it with renewals, and gives it back.

What may be done when is decided by `core.election.Candidacy`; the lock itself is anything that is a `LeaderLock`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from headway.core.election import Candidacy, ElectionConfig, LeaderLock
from headway.core.errors import HeadwayError

log = logging.getLogger(__name__)

RACE_SECONDS = 0.02
"""After a lost compare-and-swap, before the next look."""
RELEASE_SECONDS = 1.0

OnLeader = Callable[[str | None], None]


class LeadershipLost(HeadwayError):
    """Another process leads, or may do so any moment."""


class Election(Protocol):
    """One process's part in it: `campaign`, then `hold` until it raises, then `step_down`, and again."""

    @property
    def is_contested(self) -> bool:
        """Whether others may lead at other times, so that losing is no fault."""

    def leads(self) -> bool:
        """Whether this process may act as the leader at this very moment: look before whatever must not be late."""

    async def campaign(self) -> None:
        """Returns once this process leads."""

    async def hold(self) -> None:
        """Keeps leading. Ends only by `LeadershipLost`, with the reason, before anybody else may lead."""

    async def step_down(self) -> None:
        """Leads no longer from the call on; others may lead once it returns. Harmless if it did not lead."""


class Unopposed:
    """The only queue process that there is. Whether that is so nobody checks; only the epoch protects the jobs."""

    is_contested = False

    def __init__(self) -> None:
        self._leads = False

    def leads(self) -> bool:
        return self._leads

    async def campaign(self) -> None:
        self._leads = True

    async def hold(self) -> None:
        await asyncio.Event().wait()

    async def step_down(self) -> None:
        self._leads = False


class LockElection:
    """By a lock. ``on_leader`` hears the leader's address whenever that changes; None: nobody leads."""

    is_contested = True

    def __init__(
        self, lock: LeaderLock, holder: str, address: str | None, config: ElectionConfig, on_leader: OnLeader
    ) -> None:
        self._lock = lock
        self._config = config
        self._candidacy = Candidacy(holder, address, config)
        self._on_leader = on_leader
        self._told: str | None = ""
        """The last word to `_on_leader`; no address is empty."""

    def leads(self) -> bool:
        return self._candidacy.leads(time.monotonic())

    async def campaign(self) -> None:
        while True:
            await self._try_to_lead()
            if self.leads():
                return
            await self._look_again()

    async def hold(self) -> None:
        while True:
            await asyncio.sleep(self._config.election_renew_seconds)
            await self._renew()

    async def step_down(self) -> None:
        self._candidacy.stop()
        self._tell()
        if not self._candidacy.is_ours:
            return
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._lock.write(self._candidacy.free_record, self._candidacy.version)
        except (HeadwayError, TimeoutError) as exc:
            log.info("the lock runs out by itself: %s", str(exc) or "no answer")

    async def _try_to_lead(self) -> None:
        """Look at the lock, and take it if nobody leads by it."""
        candidacy = self._candidacy
        try:
            candidacy.saw(await self._lock.read(), time.monotonic())
            if candidacy.may_take(asked_at := time.monotonic()):
                version = await self._lock.write(candidacy.record, candidacy.version)
                if version is None:
                    await asyncio.sleep(RACE_SECONDS)
                    candidacy.saw(await self._lock.read(), time.monotonic())
                else:
                    candidacy.wrote(version, asked_at)
        except HeadwayError as exc:
            log.debug("the lock cannot be read or taken: %s; trying again", exc)
        self._tell()

    async def _look_again(self) -> None:
        """Returns when the lock may have changed, or when it is time to think again; soon also if nobody tells."""
        seconds = min(self._candidacy.next_look(time.monotonic()), 2 * self._config.election_renew_seconds)
        try:
            await self._lock.wait_for_change(max(seconds, RACE_SECONDS))
        except HeadwayError as exc:
            log.debug("the lock cannot be watched: %s", exc)
            await asyncio.sleep(self._config.election_renew_seconds)
        self._tell()

    async def _renew(self) -> None:
        """Raises `LeadershipLost`, at the latest when the time of the last renewal is over."""
        deadline = self._candidacy.leads_until or 0.0
        failure = "this process did not come to it"
        while (now := time.monotonic()) < deadline:
            try:
                async with asyncio.timeout(deadline - now):
                    if await self._write_again(deadline):
                        return
                failure = "somebody else writes it"
            except LeadershipLost:
                raise
            except HeadwayError as exc:
                failure = str(exc)
            except TimeoutError:
                failure = "no answer"
            await asyncio.sleep(RACE_SECONDS)
        self._candidacy.stop()
        raise LeadershipLost(f"the lock was not renewed in time: {failure}")

    async def _write_again(self, deadline: float) -> bool:
        """Whether that renewed it in time. A try whose answer was lost may be stored; then the next one is refused."""
        candidacy, asked_at = self._candidacy, time.monotonic()
        version = await self._lock.write(candidacy.record, candidacy.version)
        if version is not None:
            candidacy.wrote(version, asked_at)
            return time.monotonic() < deadline
        candidacy.saw(await self._lock.read(), time.monotonic())
        if not candidacy.is_ours:
            raise LeadershipLost("another process has taken the lock")
        return False

    def _tell(self) -> None:
        leader = self._candidacy.leader(time.monotonic())
        address = None if leader is None else leader.address
        if address != self._told:
            self._told = address
            self._on_leader(address)
