"""Who leads the queue: a lock that one process holds at a time, each judging by its own clock.

    follows ──take──▶ leads ──renew, renew, …──▶ leads ──release, taken, or not renewed──▶ follows

The lock is a small record in a store with compare-and-swap. Its holder writes it again every few hundred milliseconds;
any change of its version is a sign of life. Nobody compares clocks with anybody (nor does Kubernetes' leader election):

    holder     begins a renewal that succeeds ├──── leads ────┤ stop_seconds: leads no longer
    observer        sees that it has changed      ├────────────────────── lease_seconds ┤ may take it

The observer sees a change after the holder began to write it, so the holder has stopped by itself before another may
take the lock, whatever the clocks show, as long as they run equally fast to within a third. A holder that was paused
finds by a look at its clock that its time is over. What was on its way at that moment is not this module's business:
the epoch fences it (docs/architecture.md, Takeover).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from headway.core.errors import SettingError


class ElectionKind(StrEnum):
    """Where the lock is."""

    NATS = "nats"
    KUBERNETES = "kubernetes"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ElectionConfig:
    """How the processes of the queue agree on one that leads."""

    election: ElectionKind = ElectionKind.NATS
    """How one of several queue processes comes to lead: nats, a lock in the state bucket; kubernetes, a Lease; none,
    there is only one."""
    election_lease_seconds: float = 3.0
    """Seconds without a sign of life from the leader after which another process takes over."""
    election_renew_seconds: float = 0.5
    """Seconds between two signs of life of the leader."""

    def __post_init__(self) -> None:
        if not self.election_lease_seconds > 0:
            raise SettingError("election_lease_seconds", self.election_lease_seconds, "give seconds > 0")
        if not 0 < self.election_renew_seconds <= self.election_lease_seconds / 3:
            fix = "give at most a third of election_lease_seconds, so that one lost renewal does not end the leadership"
            raise SettingError("election_renew_seconds", self.election_renew_seconds, fix)


@dataclass(frozen=True, slots=True)
class LockRecord:
    """What the lock says."""

    holder: str
    """Identity of a process, unique per start; empty: nobody holds it."""
    address: str | None
    """``host:port`` at which workers reach the holder."""
    lease_seconds: float
    """The holder's own setting, which counts for everybody."""

    @property
    def is_free(self) -> bool:
        return not self.holder

    @property
    def stop_seconds(self) -> float:
        """After such a time without a renewal its holder leads no longer."""
        return self.lease_seconds * 2 / 3


@dataclass(frozen=True, slots=True)
class StoredLock:
    record: LockRecord
    version: str
    """Of the store (a revision, say); another one after every write."""


class LeaderLock(Protocol):
    """The store. What cannot be done now raises a `HeadwayError`; a write that failed so may be stored all the same.

    All implementations are tested by one suite (tests/roles/test_election.py).
    """

    async def read(self) -> StoredLock | None:
        """None: nobody has ever held it."""

    async def write(self, record: LockRecord, version: str | None) -> str | None:
        """Store it if the stored version still is this one (None: there is none), and return the new one.

        None: it was not stored, since somebody has written in between.
        """

    async def wait_for_change(self, timeout_seconds: float) -> None:
        """Until the lock may have changed since the last `read`, or the time is over."""


class Candidacy:
    """One process's view of the lock. ``now`` is its own monotonic clock, in seconds."""

    def __init__(self, holder: str, address: str | None, config: ElectionConfig) -> None:
        self.record = LockRecord(holder, address, config.election_lease_seconds)
        """What this process writes."""
        self._found: StoredLock | None = None
        self._found_at: float | None = None
        """When its version was first seen; None before the first look."""
        self._leads_until: float | None = None

    @property
    def free_record(self) -> LockRecord:
        """What it writes to release the lock."""
        return LockRecord("", None, self.record.lease_seconds)

    @property
    def version(self) -> str | None:
        """That a write has to name."""
        return None if self._found is None else self._found.version

    @property
    def is_ours(self) -> bool:
        """As far as we have seen."""
        return self._found is not None and self._found.record.holder == self.record.holder

    @property
    def leads_until(self) -> float | None:
        """None: it does not lead."""
        return self._leads_until

    def leads(self, now: float) -> bool:
        return self._leads_until is not None and now < self._leads_until

    def may_take(self, now: float) -> bool:
        """Of its own record it knows that nobody leads by it, unless it does so itself."""
        if self._found_at is None:
            return False
        return self._found is None or self._found.record.is_free or self.is_ours or now >= self._free_at()

    def leader(self, now: float) -> LockRecord | None:
        """Who leads, as far as one can tell; None: nobody, for all we know."""
        if self._found is None or self._found_at is None or self._found.record.is_free:
            return None
        if self.is_ours:
            return self._found.record if self.leads(now) else None
        record = self._found.record
        return record if now < self._found_at + record.stop_seconds else None

    def next_look(self, now: float) -> float:
        """In how many seconds something changes for an observer, even if nobody writes."""
        if self._found is None or self._found_at is None:
            return self.record.lease_seconds
        doubtful_at = self._found_at + self._found.record.stop_seconds
        return max(0.0, (doubtful_at if now < doubtful_at else self._free_at()) - now)

    def saw(self, found: StoredLock | None, now: float) -> None:
        """What a read gave. A lock that somebody else holds now is lost."""
        if self._found_at is None or found != self._found:
            self._found, self._found_at = found, now
        if not self.is_ours:
            self._leads_until = None

    def wrote(self, version: str, asked_at: float) -> None:
        """Our record was stored by a write that began at ``asked_at``: we lead, for as long as that lasts."""
        self._found, self._found_at = StoredLock(self.record, version), asked_at
        self._leads_until = asked_at + self.record.stop_seconds

    def stop(self) -> None:
        """Lead no longer, whoever holds the lock."""
        self._leads_until = None

    def _free_at(self) -> float:
        assert self._found is not None
        assert self._found_at is not None
        return self._found_at + self._found.record.lease_seconds
