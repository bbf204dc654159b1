"""The rules of the lock, on virtual clocks: at no moment do two processes lead."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.election import Candidacy, ElectionConfig, LockRecord, StoredLock
from headway.core.errors import SettingError

LEASE = 9.0
STOP = 6.0
CONFIG = ElectionConfig(election_lease_seconds=LEASE, election_renew_seconds=1.0)


def candidacy(holder: str = "me") -> Candidacy:
    return Candidacy(holder, f"{holder}:4280", CONFIG)


def lock(holder: str = "other", version: str = "1", lease_seconds: float = LEASE) -> StoredLock:
    return StoredLock(LockRecord(holder, f"{holder}:4280" if holder else None, lease_seconds), version)


def test_before_the_first_look_nothing_may_be_taken() -> None:
    assert not candidacy().may_take(100.0)


@pytest.mark.parametrize("found", [None, lock(holder="")])
def test_a_lock_that_nobody_holds_is_free_at_once(found: StoredLock | None) -> None:
    me = candidacy()
    me.saw(found, 0.0)
    assert me.may_take(0.0)
    assert me.leader(0.0) is None


def test_a_held_lock_may_be_taken_once_it_has_not_changed_for_its_lease() -> None:
    me = candidacy()
    me.saw(lock(), 100.0)
    me.saw(lock(), 108.0)
    assert not me.may_take(108.9)
    assert me.may_take(109.0)


def test_every_change_is_a_sign_of_life_whatever_it_says() -> None:
    me = candidacy()
    me.saw(lock(version="1"), 100.0)
    me.saw(lock(version="2"), 108.0)
    assert not me.may_take(116.9)


def test_the_holders_own_lease_counts_for_those_who_watch() -> None:
    me = candidacy()
    me.saw(lock(lease_seconds=30.0), 0.0)
    assert not me.may_take(29.0)
    assert me.leader(19.0) is not None


def test_a_leader_that_is_silent_counts_for_nothing_from_the_moment_when_it_must_have_stopped() -> None:
    me = candidacy()
    me.saw(lock(), 0.0)
    leader = me.leader(STOP - 0.1)
    assert leader is not None
    assert leader.address == "other:4280"
    assert me.leader(STOP) is None
    assert me.next_look(1.0) == STOP - 1.0
    assert me.next_look(STOP) == LEASE - STOP


def test_a_holder_leads_from_the_moment_when_its_write_began_and_stops_by_itself() -> None:
    me = candidacy()
    me.saw(None, 0.0)
    me.wrote("1", asked_at=10.0)
    assert me.leads(10.0 + STOP - 0.1)
    assert not me.leads(10.0 + STOP)


def test_a_lock_that_somebody_else_holds_is_lost() -> None:
    me = candidacy()
    me.wrote("1", asked_at=0.0)
    me.saw(lock(version="2"), 1.0)
    assert not me.leads(1.0)
    assert not me.is_ours


def test_its_own_record_under_another_version_is_a_write_whose_answer_was_lost() -> None:
    me = candidacy()
    me.wrote("1", asked_at=0.0)
    me.saw(lock("me", version="2"), 1.0)
    assert me.version == "2"
    assert me.leads(1.0)
    assert not me.leads(STOP), "how long that one lasts is not known, so it adds nothing"


def test_one_that_has_stopped_may_take_its_own_lock_again_at_once() -> None:
    me = candidacy()
    me.wrote("1", asked_at=0.0)
    me.stop()
    assert not me.leads(0.0)
    assert me.may_take(0.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [("election_lease_seconds", 0.0), ("election_renew_seconds", 0.0), ("election_renew_seconds", 1.1)],
)
def test_a_setting_that_cannot_hold_is_named(field: str, value: float) -> None:
    fields = {"election_lease_seconds": 3.0, "election_renew_seconds": 0.5, field: value}
    with pytest.raises(SettingError, match=field):
        ElectionConfig(**fields)


# -- two processes, with clocks of their own -------------------------------------------------------------------------


@dataclass
class Store:
    """Compare-and-swap, without any network."""

    found: StoredLock | None = None
    num_writes: int = 0

    def write(self, record: LockRecord, version: str | None) -> str | None:
        if (self.found.version if self.found else None) != version:
            return None
        self.num_writes += 1
        self.found = StoredLock(record, str(self.num_writes))
        return self.found.version


@dataclass
class Process:
    """What it asks and what it hears may lie any time apart: each is a step of its own."""

    candidacy: Candidacy
    offset: float
    rate: float
    asked_at: float = 0.0
    asking: tuple[LockRecord, str | None] | None = None
    answer: str | None = None
    reading: StoredLock | None = None
    has_read: bool = False

    def now(self, time: float) -> float:
        return self.offset + self.rate * time

    def step(self, what: str, store: Store, time: float) -> None:
        for part in WHOLE.get(what, (what,)):
            self._step(part, store, self.now(time))

    def _step(self, what: str, store: Store, now: float) -> None:
        me = self.candidacy
        if what == "read":
            self.reading, self.has_read = store.found, True
        elif what == "hear" and self.has_read:
            me.saw(self.reading, now)
        elif what == "ask" and (me.leads(now) or me.may_take(now)):
            self.asked_at, self.asking = now, (me.record, me.version)
        elif what == "store" and self.asking is not None:
            self.answer, self.asking = store.write(*self.asking), None
        elif what == "answer" and self.answer is not None:
            me.wrote(self.answer, self.asked_at)
            self.answer = None
        elif what == "release" and me.is_ours:
            me.stop()
            store.write(me.free_record, me.version)


WHOLE = {
    "look": ("read", "hear"),
    "write": ("ask", "store", "answer"),
    "take": ("read", "hear", "ask", "store", "answer"),
}
STEPS = [*WHOLE, *WHOLE, "read", "hear", "ask", "store", "answer", "release"]
WAITS = [0.0, 0.0, 0.5, 2.0, 5.0, 6.2, 8.5, LEASE]
Step = tuple[int, str, float]


@settings(max_examples=500)
@given(
    steps=st.lists(st.tuples(st.integers(0, 1), st.sampled_from(STEPS), st.sampled_from(WAITS)), max_size=60),
    offsets=st.tuples(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4)),
    rate=st.floats(0.72, 1.39),
)
def test_two_processes_never_lead_at_once(steps: list[Step], offsets: tuple[float, float], rate: float) -> None:
    """Whatever is delayed or never heard of, and however their clocks differ."""
    store, time = Store(), 0.0
    first, second = (candidacy("first"), offsets[0], 1.0), (candidacy("second"), offsets[1], rate)
    processes = [Process(*first), Process(*second)]
    for index, what, wait in steps:
        processes[index].step(what, store, time)
        assert sum(process.candidacy.leads(process.now(time)) for process in processes) <= 1
        time += wait
