"""Two processes of the queue, one of which leads, with a worker that knows both."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from nats.aio.msg import Msg
from nats.errors import Error
from nats.js.errors import NotFoundError

from headway.core.status import QueueStatus
from loadtest.faults.fleet import Fleet, Groups
from loadtest.faults.process import Process, until

STATE = "KV_HEADWAY_STATE"
JOBS = "HEADWAY_JOBS"


@dataclass
class QueuePair:
    """``leader`` and ``standby`` say what the two are at the start; afterwards they may have changed places."""

    fleet: Fleet
    leader: Process
    standby: Process

    async def lock(self) -> dict[str, Any]:
        """What the leader's lock says."""
        message = await self.fleet.logs.connection.js.get_last_msg(STATE, "$KV.HEADWAY_STATE.leader")
        return {**json.loads(message.data or b""), "revision": message.seq}

    async def saved(self, key: str) -> dict[str, Any] | None:
        """A value of the state bucket."""
        try:
            message = await self.fleet.logs.connection.js.get_last_msg(STATE, f"$KV.HEADWAY_STATE.{key}")
        except NotFoundError:
            return None
        return json.loads(message.data or b"")

    async def grants_with(self, epoch: int, seconds: float = 60.0) -> QueueStatus:
        """The state of a leader of at least that epoch, once it is done with its grace."""
        status = None

        async def grants() -> bool:
            nonlocal status
            status = await self.fleet.status()
            return status is not None and status.epoch >= epoch and status.is_granting

        await until(grants, seconds, f"a leader of epoch {epoch} that grants")
        assert status is not None
        return status

    async def num_answers(self, num_requests: int) -> int:
        """To so many requests for the status, from all processes together."""
        client, count = self.fleet.logs.connection.client, 0

        async def hear(_: Msg) -> None:
            nonlocal count
            count += 1

        inbox = client.new_inbox()
        answers = await client.subscribe(inbox, cb=hear)
        for _ in range(num_requests):
            await client.publish("headway.status", reply=inbox)
            await client.flush()
        await until(lambda: count >= num_requests, what=f"{num_requests} answers")
        await client.flush()
        await answers.unsubscribe()
        return count

    async def consumers(self) -> list[str]:
        """Of the stream of jobs."""
        try:
            return [info.name for info in await self.fleet.logs.connection.js.consumers_info(JOBS)]
        except Error:
            return []


async def start_pair(fleet: Fleet, *, leader: Groups | None = None, **groups: Any) -> QueuePair:
    """Queues ``q1`` and ``q2``, once the first leads and the other stands by. ``leader``: settings of ``q1`` alone."""
    first = fleet.start_queue("q1", **{**groups, **(leader or {})})
    await _says(first, "leads with epoch")
    second = fleet.start_queue("q2", **groups)
    await _says(second, "stands by")
    return QueuePair(fleet, first, second)


async def _says(process: Process, words: str) -> None:
    await until(lambda: words in process.said or not process.is_running, what=f"a queue that {words}")
    assert process.is_running, process.said
