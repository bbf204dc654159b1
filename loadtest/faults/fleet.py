"""nats-server, `headway queue` and `headway worker` as processes of their own, on this machine.

    fleet = Fleet(folder, settings, template)
    await fleet.nats.start(); fleet.start_queue(); fleet.start_worker("w1")

Every part finds the others at ports that stay the same over restarts, or through a proxy that a test puts between.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.broker.client import Client
from headway.broker.config import BrokerConfig
from headway.broker.embedded import EmbeddedNats
from headway.core.election import ElectionConfig
from headway.core.errors import HeadwayError
from headway.core.lease_terms import LeaseTerms
from headway.core.scheduler_config import SchedulerConfig
from headway.core.status import QueueStatus, WorkerStatus
from headway.engine.config import Device, DType, EngineConfig
from headway.lease.config import LeaseConfig
from headway.settings import Settings
from headway.settings.roles import RolesConfig
from loadtest.faults.joblogs import JobLogs, watch_logs
from loadtest.faults.ports import free_port
from loadtest.faults.probes import Answer, ask
from loadtest.faults.process import Process, until
from loadtest.faults.template import Template

Groups = Mapping[str, Any]
START_SECONDS = 120.0
STATUS_SECONDS = 1.0
MANY = 1000


def impatient_settings(model: Path) -> Settings:
    """As users have them, but for a tiny model computed exactly, little patience, and no number of deaths too many."""
    return Settings(
        engine=EngineConfig(model=str(model), device=Device.CPU, dtype=DType.FLOAT64, kv_memory="16MiB", num_threads=1),
        scheduler=SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=256, max_prefill_chunk=64),
        broker=BrokerConfig(chunk_interval_seconds=0.005, nats_timeout_seconds=1.0, nats_reconnect_seconds=0.1),
        lease=LeaseConfig(
            lease_max_backoff_seconds=0.2, lease_connect_seconds=2.0, lease_keepalive_seconds=1.0, prefetch=2
        ),
        lease_terms=LeaseTerms(lease_seconds=1.0, grace_seconds=5.0, max_attempts=MANY, max_shared_attempts=MANY),
        election=ElectionConfig(election_lease_seconds=0.6, election_renew_seconds=0.1),
        roles=RolesConfig(progress_seconds=0.1, save_seconds=0.2, drain_seconds=10.0, max_restart_seconds=1.0),
    )


class Fleet:
    """Processes by name. `close` ends all that still run."""

    def __init__(
        self, folder: Path, settings: Settings, template: Template | None = None, nats_url: str | None = None
    ) -> None:
        """``nats_url``: of servers that somebody else runs; by default the fleet has one of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.nats = EmbeddedNats(folder / "nats", port=free_port())
        self._foreign_url = nats_url
        self.lease_addresses: dict[str, str] = {}
        """By queue."""
        self.processes: dict[str, Process] = {}
        self.probe_addresses: dict[str, str] = {}
        self.metrics_addresses: dict[str, str] = {}
        self.logs: JobLogs
        self._settings = settings
        self._template = template

    async def start(self) -> None:
        """NATS, and a view of all logs."""
        if self._foreign_url is None:
            await self.nats.start()
        self.logs = await watch_logs(self.nats_url)

    @property
    def nats_url(self) -> str:
        """One address, or several with commas."""
        return self._foreign_url or self.nats.url

    async def close(self) -> None:
        for process in self.processes.values():
            await process.close()
        await self.logs.connection.close()
        await self.nats.stop(kill=True)

    @property
    def lease_address(self) -> str:
        """Of all queues that there were so far."""
        if not self.lease_addresses:
            self._lease_address_of("queue")
        return ",".join(self.lease_addresses.values())

    def start_queue(self, name: str = "queue", **groups: Groups) -> Process:
        """Groups of settings by name, each with the fields that differ. Of several queues one leads."""
        lease = {"lease_listen": self._lease_address_of(name), **groups.pop("lease", {})}
        command = [sys.executable, "-m", "headway", "queue"]
        return self._start(name, command, lease=lease, **groups)

    def start_worker(self, name: str, **groups: Groups) -> Process:
        """A worker of that name; one that had it before is another one's business."""
        lease = {"lease_address": self.lease_address, **groups.pop("lease", {})}
        roles = {"worker_name": name, **groups.pop("roles", {})}
        if self._template is None:
            command = [sys.executable, "-m", "headway", "worker"]
        else:
            command = self._template.worker_command()
        return self._start(name, command, lease=lease, roles=roles, **groups)

    def engines(self, name: str) -> list[int]:
        """Process ids of the engine child of that worker: one, or none while it is being started."""
        children = self.processes[name].children
        if self._template is None:
            return children
        return [engine for child in children if (engine := self._template.engine_of(child)) is not None]

    def signal_engine(self, name: str, number: signal.Signals) -> list[int]:
        """Returns whom it was sent to."""
        engines = self.engines(name)
        for pid in engines:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return engines

    async def status(self) -> QueueStatus | None:
        """As the leader sees it; None while nobody leads."""
        try:
            async with Client.connect(self.nats_url, tenant="operator", timeout_seconds=STATUS_SECONDS) as client:
                return await client.status(STATUS_SECONDS)
        except HeadwayError:
            return None

    async def workers(self) -> list[WorkerStatus]:
        """As the leader sees them; none while nobody leads."""
        status = await self.status()
        return [] if status is None else list(status.workers)

    async def has_workers(self, *names: str) -> None:
        """Returns once all of them are connected to the leader."""

        async def are_connected() -> bool:
            for name in names:
                assert self.processes[name].is_running, self.processes[name].said
            return set(names) <= {worker.name for worker in await self.workers() if worker.is_connected}

        await until(are_connected, START_SECONDS, f"{names} to be connected")

    async def answers(self, name: str, probe: str) -> Answer:
        """``startup``, ``readiness`` or ``liveness`` of that process."""
        return await ask(self.probe_addresses[name], probe)

    async def used_pages(self, name: str) -> int:
        """Pages that sequences of that worker hold, as its metrics say."""
        text = await asyncio.to_thread(_get, f"http://{self.metrics_addresses[name]}/metrics")
        lines = [line for line in text.splitlines() if line.startswith("headway_pages{") and 'state="used"' in line]
        return int(sum(float(line.rpartition(" ")[2]) for line in lines))

    async def is_unready(self, name: str, words: str, seconds: float = 60.0) -> str:
        """The reason, once the process says that it is not ready and why."""
        answer = Answer(True, "")

        async def says_so() -> bool:
            nonlocal answer
            answer = await self.answers(name, "readiness")
            return not answer.ok and words in answer.reason

        await until(says_so, seconds, f"{name} to be unready with {words!r}")
        return answer.reason

    async def is_ready(self, name: str, seconds: float = 60.0) -> None:
        async def is_so() -> bool:
            return (await self.answers(name, "readiness")).ok

        await until(is_so, seconds, f"{name} to be ready")

    def _lease_address_of(self, queue: str) -> str:
        return self.lease_addresses.setdefault(queue, f"127.0.0.1:{free_port()}")

    def _start(self, name: str, command: list[str], **groups: Groups) -> Process:
        self.probe_addresses[name] = f"127.0.0.1:{free_port()}"
        self.metrics_addresses[name] = f"127.0.0.1:{free_port()}"
        telemetry = {"metrics_listen": self.metrics_addresses[name], **groups.pop("telemetry", {})}
        broker = {"nats_url": self.nats_url, **groups.pop("broker", {})}
        lease = {"health_listen": self.probe_addresses[name], **groups.pop("lease", {})}
        settings = with_groups(self._settings, broker=broker, lease=lease, telemetry=telemetry, **groups)
        config_file = self.folder / f"{name}.yaml"
        config_file.write_text(settings.to_yaml())
        process = Process([*command, "--config", str(config_file)], self.folder / f"{name}.log")
        self.processes[name] = process
        return process


@asynccontextmanager
async def running_fleet(
    folder: Path, settings: Settings, template: Template | None = None, nats_url: str | None = None
) -> AsyncIterator[Fleet]:
    """With NATS running and nothing else; see `Fleet`."""
    fleet = Fleet(folder, settings, template, nats_url)
    await fleet.start()
    try:
        yield fleet
    finally:
        await fleet.close()


def with_groups(settings: Settings, **groups: Groups) -> Settings:
    changed = {name: replace(getattr(settings, name), **fields) for name, fields in groups.items()}
    return replace(settings, **changed)


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=STATUS_SECONDS) as answer:
        return str(answer.read().decode())
