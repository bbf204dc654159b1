"""What goes over the wire, without any library of ours: jobs as JSON, and the records of their logs."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from loadtest.faults.joblogs import JobLog

TIMEOUT_SECONDS = 60.0


class Log(JobLog):
    """The records of one job as a plain subscriber sees them."""

    @property
    def error(self) -> tuple[str, str | None]:
        """Code and field."""
        return self.end["error"]["code"], self.end["error"].get("field")


@dataclass
class Wire:
    """Bare nats-py: publishes payloads, and keeps every record of every job in the order of the stream."""

    client: NatsClient
    attempts: list[tuple[str, str]] = field(default_factory=list)
    """(tenant, id) of every ``attempt`` record, as they came."""
    _logs: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def publish(
        self,
        tenant: str,
        job: Mapping[str, Any] | bytes,
        model: str = "default",
        headers: dict[str, str] | None = None,
    ) -> int:
        """Returns the stream sequence."""
        payload = job if isinstance(job, bytes) else json.dumps(job).encode()
        ack = await self.client.jetstream().publish(f"headway.jobs.{model}.{tenant}", payload, headers=headers)
        return ack.seq

    async def publish_all(self, jobs: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Jobs by tenant, all at once: without waiting for the stream to acknowledge each."""
        for tenant, job in jobs:
            await self.client.publish(f"headway.jobs.default.{tenant}", json.dumps(job).encode())

    async def run(self, tenant: str, job_id: str, **fields: Any) -> Log:
        await self.publish(tenant, make_job(id=job_id, **fields))
        return await self.ended(tenant, job_id)

    def log(self, tenant: str, job_id: str) -> Log:
        return Log(list(self._logs[tenant, job_id]))

    async def ended(self, tenant: str, job_id: str) -> Log:
        await self.until(lambda: bool(self.log(tenant, job_id).of_kind("end")))
        return self.log(tenant, job_id)

    async def has_tokens(self, tenant: str, job_id: str) -> None:
        await self.until(lambda: bool(self.log(tenant, job_id).of_kind("tokens")))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Looks again after every record."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def num_jobs(self) -> int:
        """In the stream: those whose end is not acknowledged."""
        return (await self.client.jetstream().stream_info("HEADWAY_JOBS")).state.messages

    async def dead_reasons(self, tenant: str, job_id: str) -> list[str]:
        """Of all dead letters of this identity."""
        subject, js = f"headway.dead.{tenant}.{job_id}", self.client.jetstream()
        state = (await js.stream_info("HEADWAY_DEAD", subjects_filter=subject)).state
        subscription = await js.subscribe(subject, ordered_consumer=True)
        messages = [await subscription.next_msg() for _ in range((state.subjects or {}).get(subject, 0))]
        await subscription.unsubscribe()
        return [(message.headers or {})["Headway-Reason"] for message in messages]

    async def take(self, message: Msg) -> None:
        _, _, tenant, job_id = message.subject.split(".")
        record = json.loads(message.data)
        self._logs[tenant, job_id].append(record)
        if record["kind"] == "attempt":
            self.attempts.append((tenant, job_id))
        self._news.set()


def make_job(**fields: Any) -> dict[str, Any]:
    """Greedy, of a known length."""
    return {"prompt": "Hello", "max_tokens": 12, "temperature": 0, "ignore_eos": True, **fields}
