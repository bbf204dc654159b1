"""What NATS does not let us do, told to whoever waits for it.

The server answers a message that its user may not publish with an error on the connection, apart from all requests,
and never answers the request itself. nats-py hands that error to a callback, so the request would wait for its whole
timeout and then look as if nobody were there. Here the request to that subject fails at once.

The same goes for our inbox: if its subscription is refused, no answer can reach us.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

VIOLATION = re.compile(r'permissions violation for (publish|subscription)[^"]*"([^"]+)"', re.IGNORECASE)


class PermissionViolation(nats.errors.Error):
    """NATS does not let us do what an operation needs; `errors.translated` makes it a `BrokerRefused`."""

    def __init__(self, description: str) -> None:
        super().__init__(description)
        self.description = description


class PermissionClient(Client):
    """nats-py's client, but its requests raise `PermissionViolation` once `note` has heard of the server's refusal.

    nats-py makes JetStream's publishes and calls of its API requests of this client, so they do so too. A request that
    waits is interrupted by a timeout that nothing but a refusal lets expire: no task for each request, of which a
    worker sends thousands in a second.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: defaultdict[str, set[asyncio.Timeout]] = defaultdict(set)
        """By subject, in lower case: nats-py tells the server's errors so."""
        self._refused_inbox = ""
        """Our subscription for answers, if the server refused it."""

    async def request(self, subject: str, payload: bytes = b"", *args: Any, **kwargs: Any) -> Msg:
        """As nats-py's. Raises `PermissionViolation` too."""
        if self._refused_inbox:
            raise self._violation(subject)
        name = subject.lower()
        try:
            async with asyncio.timeout(None) as waiting:
                self._waiting[name].add(waiting)
                return await super().request(subject, payload, *args, **kwargs)
        except TimeoutError as exc:
            if waiting.expired():
                raise self._violation(subject) from exc
            raise
        finally:
            self._waiting[name].discard(waiting)
            if not self._waiting[name]:
                del self._waiting[name]

    def note(self, error: str) -> None:
        """An error that the server sent; anything but a missing permission is ignored."""
        if (violation := VIOLATION.search(error)) is None:
            return
        kind, subject = violation[1].lower(), violation[2].lower()
        if kind == "publish":
            self._refuse(self._waiting.get(subject, set()))
        elif subject.startswith(f"{self.new_inbox().rpartition('.')[0].lower()}."):
            self._refused_inbox = subject
            self._refuse(set().union(*self._waiting.values()))

    def forget(self) -> None:
        """A new connection subscribes anew, perhaps with other rights."""
        self._refused_inbox = ""

    def _refuse(self, requests: set[asyncio.Timeout]) -> None:
        now = asyncio.get_running_loop().time()
        for waiting in requests:
            if not waiting.expired():
                waiting.reschedule(now)

    def _violation(self, subject: str) -> PermissionViolation:
        if self._refused_inbox:
            return PermissionViolation(
                f"NATS does not let this user subscribe to answers in {self._refused_inbox}: set nats_inbox_prefix to "
                "what it may subscribe to"
            )
        return PermissionViolation(
            f"NATS does not let this user publish to {subject}: use the tenant that your credentials belong to, or "
            "credentials that may (nats_user, nats_credentials_file, nats_nkey_file)"
        )
