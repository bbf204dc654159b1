"""Jobs of all kinds under fire: a fault now and then, and afterwards every log is compared with a calm one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import cycle, islice

from headway.broker.client import Client
from headway.broker.config import BrokerConfig
from headway.broker.errors import BrokerUnavailable, Busy
from loadtest.faults.calm import Calm
from loadtest.faults.fleet import Fleet
from loadtest.faults.joblogs import JobLog

Strike = Callable[[], Awaitable[None]]
BATCH_JOBS = 14
"""Between two strikes: two of each kind."""
END_SECONDS = 120.0
SUBMIT_SECONDS = 60.0


@dataclass
class Storm:
    """Some jobs, then a strike as soon as one of them has begun, and so on."""

    fleet: Fleet
    calm: Calm
    tenant: str
    strike: Strike
    client_url: str | None = None
    """Of NATS as the client of the jobs sees it."""
    kinds: dict[str, str] = field(default_factory=dict)
    """By job."""

    async def run(self, num_strikes: int) -> list[str]:
        """What is wrong with the logs once all jobs have ended, and with what their client has read."""
        config = BrokerConfig(nats_url=self.client_url or self.fleet.nats_url, nats_timeout_seconds=1.0)
        async with Client.connect(tenant=self.tenant, config=config) as client:
            reading: list[asyncio.Task[list[str]]] = []
            for _ in range(num_strikes):
                batch = self._next_batch()
                reading += [asyncio.create_task(self._follow(client, job_id)) for job_id in batch]
                await self._begun(batch)
                await self.strike()
            complaints = [complaint for found in await asyncio.gather(*reading) for complaint in found]
        await self.fleet.logs.read_stream()
        return complaints + self._differences()

    @property
    def logs(self) -> dict[str, JobLog]:
        return {job_id: self.fleet.logs.of(self.tenant, job_id) for job_id in self.kinds}

    def _next_batch(self) -> list[str]:
        kinds = list(islice(cycle(self.calm.kinds), BATCH_JOBS))
        batch = {f"n{len(self.kinds) + index}": kind for index, kind in enumerate(kinds)}
        self.kinds |= batch
        return list(batch)

    async def _begun(self, batch: list[str]) -> None:
        def has_tokens() -> bool:
            return any(self.fleet.logs.of(self.tenant, job_id).token_ids for job_id in batch)

        await self.fleet.logs.until(has_tokens, END_SECONDS, f"the first token of {batch[0]} to {batch[-1]}")

    async def _follow(self, client: Client, job_id: str) -> list[str]:
        """As its client sees it: published whatever happens, then read to its end."""
        kind = self.kinds[job_id]
        fields = {name: value for name, value in self.calm.job(kind, job_id).items() if name not in ("id", "prompt")}
        async with asyncio.timeout(END_SECONDS):
            stream = client.submit("Hello", id=job_id, timeout_seconds=SUBMIT_SECONDS, **fields)
            while True:
                try:
                    await stream.start()
                    break
                except (BrokerUnavailable, Busy):
                    await asyncio.sleep(0.1)
            result = await stream.result()
        calm = self.calm.logs[kind]
        is_same = (list(result.token_ids), result.text) == (calm.token_ids, calm.text)
        return [] if is_same else [f"{job_id} ({kind}): its client read {result.text!r}, not {calm.text!r}"]

    def _differences(self) -> list[str]:
        found = []
        for job_id, log in self.logs.items():
            found += [f"{job_id}: {difference}" for difference in self.calm.differences(self.kinds[job_id], log)]
        return found
