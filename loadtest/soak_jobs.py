"""The jobs of a soak: published evenly over its time, each for certain, and followed by nobody until the end."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from functools import partial

import nats.errors

from headway.broker.client import Client
from headway.broker.config import BrokerConfig
from headway.broker.errors import BrokerUnavailable, Busy
from headway.broker.job_stream import JobStream
from headway.core.errors import HeadwayError
from loadtest.faults.fleet import Fleet
from loadtest.faults.joblogs import JobLog
from loadtest.faults.process import until

TENANTS = ("acme", "globex", "initech")
LENGTHS = (1, 8, 64, 256)
MAX_IN_FLIGHT = 64
"""Jobs on their way into the stream."""
END_SECONDS = 180.0
"""For what is under way when the faults are over."""
POLL_SECONDS = 0.5


class Traffic:
    """All jobs of one soak."""

    def __init__(self, fleet: Fleet, num_jobs: int, seconds: float) -> None:
        self._fleet = fleet
        self._num_jobs = num_jobs
        self._pause_seconds = seconds / num_jobs
        self._random = random.Random(0)
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._is_over = asyncio.Event()

    def is_over(self) -> bool:
        """All jobs have ended."""
        return self._is_over.is_set()

    async def run(self, seconds: float) -> None:
        """Returns once all jobs have ended, or some time after the faults, which last ``seconds``."""
        config = BrokerConfig(nats_url=self._fleet.nats.url, nats_timeout_seconds=1.0, nats_reconnect_seconds=0.1)
        try:
            async with asyncio.timeout(seconds + END_SECONDS), asyncio.TaskGroup() as group:
                clients = [Client.connect(tenant=tenant, config=config, timeout_seconds=None) for tenant in TENANTS]
                for client in clients:
                    await client.open()
                for number in range(self._num_jobs):
                    await self._slots.acquire()
                    group.create_task(self._submit(clients[number % len(clients)], number))
                    await asyncio.sleep(self._pause_seconds)
                await self._all_ended()
        except TimeoutError:
            pass  # the report says what is missing
        finally:
            self._is_over.set()
            for client in clients:
                await client.close()

    async def logs(self) -> dict[str, JobLog]:
        """By id, as the stream has them."""
        await self._fleet.logs.read_stream()
        return {self._id(number): self._log(number) for number in range(self._num_jobs)}

    async def _all_ended(self) -> None:
        """The live view misses what comes while its connection is away, so the stream is read now and then."""
        while not all(self._log(number).has_ended for number in range(self._num_jobs)):
            await asyncio.sleep(POLL_SECONDS)
            with suppress(HeadwayError, nats.errors.Error):  # it is away again
                await self._fleet.logs.read_stream()

    async def _submit(self, client: Client, number: int) -> None:
        length = self._random.choice(LENGTHS)
        stream = client.submit(
            "Hello" * self._random.randint(1, 8),
            id=self._id(number),
            max_tokens=length,
            ignore_eos=True,
            temperature=1.0,
            seed=number,
        )
        try:
            await until(partial(_is_stored, stream), END_SECONDS, f"the stream to take job {number}")
        finally:
            self._slots.release()
            await stream.aclose()

    def _log(self, number: int) -> JobLog:
        return self._fleet.logs.of(TENANTS[number % len(TENANTS)], self._id(number))

    @staticmethod
    def _id(number: int) -> str:
        return f"n{number}"


async def _is_stored(stream: JobStream) -> bool:
    try:
        await stream.start()
    except (BrokerUnavailable, Busy):
        return False
    return True
