"""Three questions about a process, three answers."""

from __future__ import annotations

import pytest

from headway.lease.config import LeaseConfig
from headway.lease.health import HealthServer, Probe
from headway.roles.probes import Probes


@pytest.fixture
def health():
    return HealthServer(LeaseConfig())


@pytest.fixture
def probes(health):
    return Probes(health, "nats", "engine", "leader", startup={"engine"})


def is_ok(health):
    return tuple(health.is_ok(probe) for probe in (Probe.STARTUP, Probe.READINESS, Probe.LIVENESS))


def test_a_process_that_loads_is_alive_and_neither_started_nor_ready(health, probes):
    probes.met("nats")
    probes.failing("engine", "loading weights")
    assert is_ok(health) == (False, False, True)
    assert health.answers[Probe.STARTUP].reason == "engine: loading weights"
    assert health.answers[Probe.READINESS].reason == "engine: loading weights; leader: not yet"


def test_what_has_loaded_has_started_though_nothing_else_is_there(health, probes):
    """The probe of a start kills what takes too long; that brings neither NATS nor a leader."""
    probes.met("engine")
    assert is_ok(health) == (True, False, True)
    assert health.answers[Probe.READINESS].reason == "nats: not yet; leader: not yet"


def test_what_has_started_stays_started(health, probes):
    for condition in ("nats", "engine", "leader"):
        probes.met(condition)
    assert is_ok(health) == (True, True, True)
    probes.failing("engine", "killed by signal 9")
    assert is_ok(health) == (True, False, True)


def test_a_process_with_nothing_to_load_has_started_at_once(health):
    Probes(health, "nats")
    assert is_ok(health) == (True, False, True)


def test_what_is_beyond_help_says_so_until_it_is_not(health, probes):
    probes.dead("the engine failed to start 3 times")
    assert not health.is_ok(Probe.LIVENESS)
    probes.dead(None)
    assert health.is_ok(Probe.LIVENESS)


def test_the_log_says_when_a_process_becomes_ready_and_when_it_is_not_any_more(health, caplog):
    caplog.set_level("INFO")
    probes = Probes(health, "nats", "leader")
    probes.met("nats")
    assert caplog.messages == []
    for _ in range(2):
        probes.met("leader")
    probes.failing("leader", "nobody leads")
    probes.failing("leader", "still nobody leads")
    probes.met("leader")
    assert caplog.messages == ["ready", "not ready any more: leader: nobody leads", "ready again"]


def test_every_condition_is_told_from_the_start_whether_it_holds(health):
    told = []
    probes = Probes(health, "nats", "leader", on_condition=lambda name, holds: told.append((name, holds)))
    probes.met("nats")
    probes.failing("nats", "gone")
    assert told == [("nats", False), ("leader", False), ("nats", True), ("nats", False)]
