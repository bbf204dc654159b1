"""The leader's state machine alone, in this process: what it costs to know, grant and settle with so many waiting."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

from headway.core.job import FinishReason, JobKey
from headway.core.lease_actions import Action, Send
from headway.core.lease_messages import Demand, Ended, Grant, Hello
from headway.core.lease_terms import LeaseTerms
from headway.core.leases import Leases
from headway.core.queue import JobQueue
from headway.core.queue_config import QueueConfig
from headway.core.queued_job import QueuedJob
from headway.core.status import LastSeen
from loadtest.queue_load.jobs import MAX_TOKENS, PRIORITIES, SEED
from loadtest.queue_load.options import QueueLoad
from loadtest.queue_load.summaries import summary_of

MODEL = "load"
STREAM = 1
PROMPT_TOKENS = (8, 512)
ARRIVALS_PER_S = 1000.0
ROOM = Hello("load", "load", MODEL, page_size=16, num_pages=10_000, max_num_seqs=64)


def measure_core(options: QueueLoad, config: QueueConfig, num_waiting: int) -> dict[str, Any]:
    """Keys as in `loadtest.queue_load.bench`. Each served job makes room for a new one, so as many wait throughout."""
    jobs = _jobs(options)
    leases = Leases(1, {MODEL: JobQueue(config)}, LeaseTerms(), 0.0, LastSeen(workers=frozenset()))
    started = time.perf_counter()
    for _ in range(num_waiting):
        _add(leases, next(jobs))
    add_seconds = time.perf_counter() - started
    leases.connect(STREAM, ROOM, now=0.0)
    decisions, settle_seconds, last_grant = [], 0.0, 0
    for _ in range(options.num_served):
        started = time.perf_counter()
        actions = leases.receive(STREAM, Demand(1, ROOM.num_pages, last_grant), now=0.0)
        decisions.append(time.perf_counter() - started)
        grant = _grant(actions)
        last_grant = grant.token.number
        started = time.perf_counter()
        leases.receive(STREAM, Demand(0, ROOM.num_pages, last_grant), now=0.0)
        leases.receive(STREAM, Ended(grant.key, grant.token, FinishReason.LENGTH, 4), now=0.0)
        settle_seconds += time.perf_counter() - started
        _add(leases, next(jobs))
    return {
        "adds_per_s": num_waiting / add_seconds,
        "grants_and_settlements_per_s": options.num_served / (sum(decisions) + settle_seconds),
        "decision_seconds": summary_of(decisions),
    }


def _add(leases: Leases, job: QueuedJob) -> None:
    leases.add(MODEL, job, now=0.0)


def _grant(actions: list[Action]) -> Grant:
    (action,) = actions
    assert isinstance(action, Send)
    assert isinstance(action.message, Grant)
    return action.message


def _jobs(options: QueueLoad) -> Iterator[QueuedJob]:
    """Without end, the same ones every time."""
    draws, number = random.Random(SEED), 0
    while True:
        number += 1
        yield QueuedJob(
            key=JobKey(f"tenant-{number % options.num_tenants}", f"n{number}"),
            stream_sequence=number,
            arrival_seconds=number / ARRIVALS_PER_S,
            num_prompt_tokens=draws.randint(*PROMPT_TOKENS),
            max_tokens=draws.randint(*MAX_TOKENS),
            priority=draws.choice(PRIORITIES),
            payload_hash="h",
        )
