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
from collections.abc import Callable
from typing import Any

import nats.errors
from nats.aio.msg import Msg

from headway.broker.ordered_client import OrderedClient

VIOLATION = re.compile(r'permissions violation for (publish|subscription)[^"]*"([^"]+)"', re.IGNORECASE)


Refuse = Callable[[], None]


class PermissionViolation(nats.errors.Error):
    """NATS does not let us do what an operation needs; `errors.translated` makes it a `BrokerRefused`."""

    def __init__(self, description: str) -> None:
        super().__init__(description)
        self.description = description


class PermissionClient(OrderedClient):
    """nats-py's client, but its requests raise `PermissionViolation` once `note` has heard of the server's refusal.

    nats-py makes JetStream's publishes and calls of its API requests of this client, so they do so too. Who publishes
    with an inbox of its own says so with `expect_answer`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: defaultdict[str, set[Refuse]] = defaultdict(set)
        """By subject, in lower case: nats-py tells the server's errors so."""
        self._refused_inbox = ""
        """Our subscription for answers, if the server refused it."""

    async def request(self, subject: str, payload: bytes = b"", *args: Any, **kwargs: Any) -> Msg:
        """As nats-py's. Raises `PermissionViolation` too.

        A request that waits is interrupted by a timeout that nothing but a refusal lets expire, which saves a task.
        """

        def refuse() -> None:
            if not waiting.expired():
                waiting.reschedule(asyncio.get_running_loop().time())

        self.expect_answer(subject, refuse)
        try:
            async with asyncio.timeout(None) as waiting:
                return await super().request(subject, payload, *args, **kwargs)
        except TimeoutError as exc:
            if waiting.expired():
                raise self.violation(subject) from exc
            raise
        finally:
            self.expect_no_answer(subject, refuse)

    def expect_answer(self, subject: str, refuse: Refuse) -> None:
        """``refuse`` is called if the server lets us not publish to that subject, or not hear the answer.

        Raises `PermissionViolation` if that is known already.
        """
        if self._refused_inbox:
            raise self.violation(subject)
        self._waiting[subject.lower()].add(refuse)

    def expect_no_answer(self, subject: str, refuse: Refuse) -> None:
        """It has come, or nobody waits for it any more."""
        name = subject.lower()
        self._waiting[name].discard(refuse)
        if not self._waiting[name]:
            del self._waiting[name]

    def note(self, error: str) -> None:
        """An error that the server sent; anything but a missing permission is ignored."""
        if (violation := VIOLATION.search(error)) is None:
            return
        kind, subject = violation[1].lower(), violation[2].lower()
        if kind == "publish":
            self._refuse([subject])
        elif subject.startswith(f"{self.new_inbox().rpartition('.')[0].lower()}."):
            self._refused_inbox = subject
            self._refuse(list(self._waiting))

    def forget(self) -> None:
        """A new connection subscribes anew, perhaps with other rights."""
        self._refused_inbox = ""

    def _refuse(self, subjects: list[str]) -> None:
        for subject in subjects:
            for refuse in tuple(self._waiting.get(subject, ())):
                refuse()

    def violation(self, subject: str) -> PermissionViolation:
        """What to raise for a publish that was refused."""
        if self._refused_inbox:
            return PermissionViolation(
                f"NATS does not let this user subscribe to answers in {self._refused_inbox}: set nats_inbox_prefix to "
                "what it may subscribe to"
            )
        return PermissionViolation(
            f"NATS does not let this user publish to {subject}: use the tenant that your credentials belong to, or "
            "credentials that may (nats_user, nats_credentials_file, nats_nkey_file)"
        )
