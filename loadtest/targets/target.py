"""What is measured, by name."""

from __future__ import annotations

from enum import StrEnum


class Target(StrEnum):
    ENGINE = "engine"
    """The engine alone, in a process of its own."""
    STATIC = "static"
    """The same with batches that live until their longest member ends, whatever the settings say."""
    NATS = "nats"
    """The whole path: client, NATS, queue, worker, engine."""
    OPENAI = "openai"
    """A server that is there already and speaks OpenAI's protocol."""


HEADWAYS = (Target.ENGINE, Target.STATIC, Target.NATS)
"""Those that are started here."""
