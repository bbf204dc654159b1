"""Headway: continuous batching for language models from a NATS queue, on Kubernetes.

`Client` is loaded on first use, so that importing `headway` (as every process of it does) loads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.broker.client import Client as Client

__all__ = ["Client"]


def __getattr__(name: str) -> object:
    if name == "Client":
        from headway.broker.client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
