"""Ending a job that no worker runs: what the queue's leader, or a worker that cannot begin, writes into its log.

The end is appended behind what was read, and in between whoever writes it is asked whether it still may: so nothing
that was written since then, by somebody newer, is cut off (`broker.epoch_proof`).
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from headway.broker.errors import LogIncomplete
from headway.broker.joblog import LogState, StoredRecord
from headway.broker.log_store import Append, JobLogs, Stored
from headway.core.job import JobKey
from headway.core.records import End, Usage


class EndResult(StrEnum):
    """What came of an attempt to end a job."""

    WRITTEN = "written"
    ALREADY_ENDED = "already_ended"
    """The job's own ``end`` stood there."""
    OTHER_JOB = "other_job"
    """The log belongs to another payload under the same identity; it was left alone."""


@dataclass(frozen=True, slots=True)
class EndOutcome:
    result: EndResult
    state: LogState
    """The log as it is now; its ``end`` is the one that counts."""


MayEnd = Callable[[LogState], Awaitable[None]]
"""Asked with the log as it was read; raises if the end is not ours to write (any more)."""


async def anybody_may(_: LogState) -> None:
    """Where there is nobody else."""


async def append_end(
    logs: JobLogs, key: JobKey, end: End, payload_hash: str, may_end: MayEnd = anybody_may
) -> EndOutcome:
    """End the log of a job, whoever writes there now: a worker that still does is refused from then on.

    Raises what ``may_end`` raises. Can be repeated. Without a usage of its own, the end gets that of the output so far.
    A log that has lost its first records to its age limit is ended all the same.
    """
    write_id = secrets.token_hex(8)
    while True:
        state = await _read(logs, key)
        if not state.belongs_to(payload_hash):
            return EndOutcome(EndResult.OTHER_JOB, state)
        if state.end is not None:
            return EndOutcome(EndResult.ALREADY_ENDED, state)
        await may_end(state)
        record = replace(end, usage=state.usage) if end.usage == Usage() else end
        outcome = await logs.append(Append(key, record, state.last_sequence, write_id, payload_hash))
        if isinstance(outcome, Stored):
            state.add(StoredRecord(outcome.sequence, record, write_id, payload_hash))
            return EndOutcome(EndResult.WRITTEN, state)


async def _read(logs: JobLogs, key: JobKey) -> LogState:
    """The log; of one that is incomplete only where it ends, and how."""
    try:
        return await logs.read(key)
    except LogIncomplete:
        tail = await logs.tail(key)
    if tail is None:
        return LogState(key)
    return LogState(key, tail.sequence, end=tail.record if isinstance(tail.record, End) else None)
