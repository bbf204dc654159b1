"""What jobs give when nothing disturbs them: what all others are compared with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from loadtest.faults.fleet import Fleet
from loadtest.faults.joblogs import JobLog
from loadtest.faults.jobs import KINDS, MAX_TOKENS, differences, job_of, stop_in

TENANT = "calm"
STOPPED = "stopped"


@dataclass(frozen=True)
class Calm:
    """The logs of one undisturbed job of each kind, and the fields of the kinds."""

    kinds: dict[str, dict[str, Any]]
    logs: dict[str, JobLog]

    def job(self, kind: str, job_id: str, **fields: Any) -> dict[str, Any]:
        return {**job_of(job_id), **self.kinds[kind], **fields}

    def differences(self, kind: str, log: JobLog) -> list[str]:
        """Of another job of that kind."""
        return [f"{kind}: {difference}" for difference in differences(log, self.logs[kind])]


async def run_calm(fleet: Fleet, max_tokens: int = MAX_TOKENS) -> Calm:
    """On a fleet that serves, before anything is broken."""
    kinds = {kind: {**fields, "max_tokens": max_tokens} for kind, fields in KINDS.items()}
    logs = await _run(fleet, kinds)
    stopped = {STOPPED: {**kinds["greedy"], **stop_in(logs["greedy"])}}
    logs |= await _run(fleet, stopped)
    return Calm(kinds | stopped, logs)


async def _run(fleet: Fleet, kinds: dict[str, dict[str, Any]]) -> dict[str, JobLog]:
    for kind, fields in kinds.items():
        await fleet.logs.publish(TENANT, {**job_of(kind), **fields})
    ended = await asyncio.gather(*(fleet.logs.ended(TENANT, kind) for kind in kinds))
    return dict(zip(kinds, ended, strict=True))
