"""What waits to be sent on one lease stream: bounded, so that sending never waits, and taken together.

A message costs gRPC a few hundred microseconds of a core however small it is, ten times what there is to say in it. So
whoever writes takes all that has come meanwhile as one: a busy stream writes fewer and larger messages, an idle one
sends each at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

from headway.lease.translate import MAX_TOGETHER

T = TypeVar("T")


class Outgoing(Generic[T]):
    """For one writer and one event loop."""

    def __init__(self, max_messages: int) -> None:
        self._max_messages = max_messages
        self._waiting: deque[T] = deque()
        self._has_news = asyncio.Event()
        self._is_closed = False

    def put(self, message: T) -> bool:
        """False: too many wait, and this one is lost. What comes after `close` is not sent."""
        if len(self._waiting) >= self._max_messages:
            return False
        if not self._is_closed:
            self._waiting.append(message)
            self._has_news.set()
        return True

    def close(self) -> None:
        """Nothing more comes."""
        self._is_closed = True
        self._has_news.set()

    async def take(self) -> list[T]:
        """What waits, in order, as much as may travel together; waits for something. Empty: closed, and all was taken.

        What is taken no longer counts as waiting.
        """
        while not self._waiting and not self._is_closed:
            self._has_news.clear()
            await self._has_news.wait()
        return [self._waiting.popleft() for _ in range(min(MAX_TOGETHER, len(self._waiting)))]
