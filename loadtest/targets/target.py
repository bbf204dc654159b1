"""Which part of Headway is measured."""

from __future__ import annotations

from enum import StrEnum


class Target(StrEnum):
    ENGINE = "engine"
    """The engine alone, in a process of its own."""
    NATS = "nats"
    """The whole path: client, NATS, queue, worker, engine."""
