"""Every record of every job as a plain subscriber sees it, and what must hold of a log whatever died meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from nats.aio.msg import Msg

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.replay import read_page
from headway.broker.streams import JOBS, RESULTS

Record = dict[str, Any]
Name = tuple[str, str]
"""Tenant and id."""


@dataclass(frozen=True)
class JobLog:
    """The records of one job in the order of the stream."""

    records: list[Record]

    def of_kind(self, kind: str) -> list[Record]:
        return [record for record in self.records if record["kind"] == kind]

    @property
    def kinds(self) -> list[str]:
        """``tokens`` in a row count once."""
        return [kind for kind, _ in groupby(record["kind"] for record in self.records)]

    @property
    def token_ids(self) -> list[int]:
        return [token_id for record in self.of_kind("tokens") for token_id in record["token_ids"]]

    @property
    def text(self) -> str:
        return "".join(record["text"] for record in self.of_kind("tokens"))

    @property
    def logprobs(self) -> list[Record]:
        return [value for record in self.of_kind("tokens") for value in record.get("logprobs") or ()]

    @property
    def end(self) -> Record:
        (end,) = self.of_kind("end")
        return end

    @property
    def has_ended(self) -> bool:
        return bool(self.of_kind("end"))

    @property
    def workers(self) -> list[str]:
        """One for each attempt."""
        return [record["worker"] for record in self.of_kind("attempt")]

    @property
    def worker(self) -> str | None:
        """Of the newest attempt."""
        return self.workers[-1] if self.workers else None

    @property
    def num_gaps(self) -> int:
        """Records of tokens that do not follow on, because some before them are missing."""
        return sum(start > expected for start, expected in self._starts)

    @property
    def num_overlaps(self) -> int:
        """Records of tokens that repeat some, ends after the first, and whatever stands behind an end."""
        behind = max(0, len(self.records) - 1 - self._first_end) if self.has_ended else 0
        return sum(start < expected for start, expected in self._starts) + behind

    @property
    def _first_end(self) -> int:
        return next(index for index, record in enumerate(self.records) if record["kind"] == "end")

    @property
    def _starts(self) -> list[tuple[int, int]]:
        """Of each record of tokens: where it begins, and where it should."""
        starts, expected = [], 0
        for record in self.of_kind("tokens"):
            starts.append((record["token_start"], expected))
            expected = record["token_start"] + len(record["token_ids"])
        return starts


@dataclass
class JobLogs:
    """A live view of all logs over one connection, completed from the stream where that was away."""

    connection: Connection
    _records: dict[Name, dict[int, Record]] = field(default_factory=lambda: defaultdict(dict))
    """By stream sequence."""
    _num_read: int = 0
    """Stream sequence up to which the stream itself was read."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def of(self, tenant: str, job_id: str) -> JobLog:
        records = self._records.get((tenant, job_id), {})
        return JobLog([records[sequence] for sequence in sorted(records)])

    def in_order(self, kind: str) -> list[Record]:
        """The records of that kind of all jobs, as the stream stored them."""
        by_sequence = {number: record for records in self._records.values() for number, record in records.items()}
        return [record for _, record in sorted(by_sequence.items()) if record["kind"] == kind]

    async def ended(self, tenant: str, job_id: str, seconds: float = 60.0) -> JobLog:
        await self.until(lambda: self.of(tenant, job_id).has_ended, seconds, f"the end of {tenant}/{job_id}")
        return self.of(tenant, job_id)

    async def has_tokens(self, tenant: str, job_id: str, count: int = 1) -> None:
        what = f"{count} tokens of {tenant}/{job_id}"
        await self.until(lambda: len(self.of(tenant, job_id).token_ids) >= count, 60.0, what)

    async def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Looks again after every record."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise TimeoutError(f"waited {seconds:g} s for {what}") from None

    async def publish(self, tenant: str, job: Record, model: str = "default") -> int:
        """Returns the stream sequence."""
        ack = await self.connection.js.publish(f"headway.jobs.{model}.{tenant}", json.dumps(job).encode())
        return ack.seq

    async def num_jobs(self) -> int:
        """In the stream: those whose end is not acknowledged."""
        return (await self.connection.js.stream_info(JOBS)).state.messages

    async def read_stream(self) -> None:
        """What the stream of results holds, for when this connection was away meanwhile; from where it left off."""
        last = (await self.connection.js.stream_info(RESULTS)).state.last_seq
        while self._num_read < last:
            page = await read_page(self.connection, RESULTS, "headway.log.>", self._num_read + 1)
            for message in page:
                self._num_read = message.metadata.sequence.stream
                self._add(message.subject, self._num_read, message.data)

    async def take(self, message: Msg) -> None:
        self._add(message.subject, int((message.headers or {})["Nats-Sequence"]), message.data)

    def _add(self, subject: str, sequence: int, data: bytes) -> None:
        _, _, tenant, job_id = subject.split(".")
        self._records[tenant, job_id][sequence] = json.loads(data)
        self._news.set()


async def watch_logs(url: str) -> JobLogs:
    """Close its ``connection`` afterwards."""
    config = BrokerConfig(nats_url=url, nats_timeout_seconds=2.0, nats_reconnect_seconds=0.1)
    logs = JobLogs(await connect(config, "watch"))
    await logs.connection.client.subscribe("headway.results.>", cb=logs.take)
    await logs.connection.client.flush()
    return logs
