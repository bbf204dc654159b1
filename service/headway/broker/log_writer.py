"""The one writer of a job's log during an attempt.

    attempt ──▶ tokens, tokens, … ──▶ end | release

Tokens come from the engine at every step and must not wait for the broker, so `tokens` only puts them aside. The
first go out at once; after that one publish is in flight, and the next carries all that came meanwhile, when the
`Pace` of all jobs says so. Fewer, larger records while the broker is slow: the reader loses nothing, and the engine
never waits. What piles up is bounded by the job's own ``max_tokens``.

Once somebody else has written to the log, everything here raises `Fenced`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headway.broker.codec import encode_record
from headway.broker.errors import Fenced, LogConflict, LogEnded
from headway.broker.joblog import LogState, StoredRecord
from headway.broker.log_pace import Pace
from headway.broker.log_store import Append, JobLogs, Stored
from headway.core.errors import HeadwayError
from headway.core.job import JobKey
from headway.core.records import Attempt, End, Record, Released, TokenLogprobs, Tokens


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step gave; its ids, text and log-probabilities belong together."""

    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprobs, ...] | None

    def halves(self) -> tuple[Piece, Piece]:
        """Cut in the middle of the ids (of the text, if there is only one id).

        The text is cut in proportion, for want of knowing better. A reader only ever joins texts, and a resumed
        attempt goes on from the text that was delivered.
        """
        if len(self.token_ids) < 2:
            middle = len(self.text) // 2
            return Piece(self.token_ids, self.text[:middle], self.logprobs), Piece((), self.text[middle:], None)
        ids = len(self.token_ids) // 2
        middle = len(self.text) * ids // len(self.token_ids)
        first = Piece(self.token_ids[:ids], self.text[:middle], self.logprobs[:ids] if self.logprobs else None)
        return first, Piece(self.token_ids[ids:], self.text[middle:], self.logprobs[ids:] if self.logprobs else None)


class LogWriter:
    """Writes one attempt. Not for several threads; every call comes from the event loop."""

    def __init__(self, logs: JobLogs, state: LogState, pace: Pace) -> None:
        """``state`` is what `JobLogs.read` gave; the writer keeps it up to date. ``pace`` is that of all jobs."""
        self.state = state
        self._logs = logs
        self._pace = pace
        self._attempt: Attempt | None = None
        self._pieces: deque[Piece] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._failure: HeadwayError | None = None
        self._has_written = False
        """Tokens; the first do not wait."""
        self._is_waiting = False
        """For its turn."""
        self._is_finishing = False

    @property
    def key(self) -> JobKey:
        return self.state.key

    @property
    def num_pending_tokens(self) -> int:
        """Tokens that wait behind the publish in flight."""
        return sum(len(piece.token_ids) for piece in self._pieces)

    async def attempt(self, attempt: Attempt) -> LogState:
        """Take the log over; returns what it held, for the engine to go on from. Its ``number`` is set here.

        A previous writer may still add tokens until the attempt is stored, so the state can be newer than the one
        that the writer was made with. Raises `LogEnded`, `LogConflict` (another payload's log) or `Fenced` (an equal
        or higher grant has written).
        """
        write_id = secrets.token_hex(8)
        while True:
            self._check_may_take(attempt)
            attempt = replace(attempt, number=self.state.num_attempts + 1)
            append = Append(self.key, attempt, self.state.last_sequence, write_id)
            outcome = await self._logs.append(append)
            if isinstance(outcome, Stored):
                self.state.add(StoredRecord(outcome.sequence, attempt))
                self._attempt = attempt
                return self.state
            self.state = await self._logs.read(self.key)

    def tokens(self, token_ids: Sequence[int], text: str, logprobs: Sequence[TokenLogprobs] | None = None) -> None:
        """Put output aside for the next record; returns at once. Raises `Fenced` if that is known by now."""
        self._raise_failure()
        assert self._attempt is not None, "the attempt comes first"
        assert not self._is_finishing, "nothing comes after the end"
        self._pieces.append(Piece(tuple(token_ids), text, None if logprobs is None else tuple(logprobs)))
        if not self._has_written:
            self._has_written = True
            self._start_writing()
        elif not self._is_writing:  # else the turn is asked for once that record is stored
            self._wait_for_turn()

    async def flush(self) -> None:
        """Store everything that is pending, without waiting for a turn. Raises `Fenced`."""
        self._start_writing()
        while self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing.result()
            if self._failure is not None or not self._pieces:
                break
            self._start_writing()
        self._raise_failure()

    async def end(self, end: End) -> None:
        """Store what is pending, then the end. Doing it twice is harmless. Raises `Fenced`."""
        if self.state.end is None:
            await self._finish(end)

    async def release(self, released: Released) -> None:
        """Store what is pending, then that the job goes back. Raises `Fenced`."""
        await self._finish(released)

    async def drop(self) -> None:
        """Stop without another word, as after `Fenced`; what is pending is lost."""
        self._pieces.clear()
        if self._writing is not None and not self._writing.done():
            self._writing.cancel()
            await asyncio.wait([self._writing])

    def _check_may_take(self, attempt: Attempt) -> None:
        state = self.state
        if not state.belongs_to(attempt.payload_hash):
            raise LogConflict(self.key, attempt.payload_hash, state.payload_hash or "")
        if state.end is not None:
            raise LogEnded(self.key, state.end)
        if state.grant is not None and state.grant >= attempt.grant:
            raise Fenced(self.key, f"grant {attempt.grant} comes after {state.grant}")

    async def _finish(self, record: Record) -> None:
        self._is_finishing = True
        await self.flush()
        await self._write(record)

    @property
    def _is_writing(self) -> bool:
        return self._writing is not None and not self._writing.done()

    def _wait_for_turn(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._pace.add(self._take_turn)

    def _take_turn(self) -> None:
        self._is_waiting = False
        self._start_writing()

    def _start_writing(self) -> None:
        if self._pieces and self._failure is None and (self._writing is None or _has_ended_well(self._writing)):
            self._writing = asyncio.create_task(self._write_pending(), name=f"log {self.key.tenant}/{self.key.id}")

    async def _write_pending(self) -> None:
        """One record in the background. A failure is kept for the next call; after a fault of ours, which `flush`
        raises, nothing follows, since its tokens are missing."""
        try:
            await self._write(self._take_record())
        except HeadwayError as exc:
            self._failure = exc
            return
        if self._pieces and not self._is_finishing:
            self._wait_for_turn()

    def _take_record(self) -> Tokens:
        """All that is pending as one record, or as much of it as the server takes at once."""
        pieces = list(self._pieces)
        self._pieces.clear()
        while len(encode_record(record := self._record(pieces))) > self._logs.max_record_bytes:
            pieces = self._put_half_back(pieces)
        return record

    def _record(self, pieces: list[Piece]) -> Tokens:
        logprobs = tuple(value for piece in pieces for value in piece.logprobs or ())
        return Tokens(
            seq=self.state.next_seq,
            token_start=len(self.state.output_token_ids),
            token_ids=tuple(token_id for piece in pieces for token_id in piece.token_ids),
            text="".join(piece.text for piece in pieces),
            logprobs=logprobs or None,
        )

    def _put_half_back(self, pieces: list[Piece]) -> list[Piece]:
        if len(pieces) == 1:
            pieces = list(pieces[0].halves())
        middle = len(pieces) // 2
        self._pieces.extendleft(reversed(pieces[middle:]))
        return pieces[:middle]

    async def _write(self, record: Record) -> None:
        append = Append(self.key, record, self.state.last_sequence, secrets.token_hex(8))
        outcome = await self._logs.append(append)
        if not isinstance(outcome, Stored) and outcome.tail is None:
            # All of the log has reached its age limit. Its reader has long gone, but the job still ends in order.
            outcome = await self._logs.append(replace(append, expected_sequence=0))
        if not isinstance(outcome, Stored):
            raise _fenced_by(self.key, outcome.tail)
        self.state.add(StoredRecord(outcome.sequence, record))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _has_ended_well(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _fenced_by(key: JobKey, tail: StoredRecord | None) -> Fenced:
    """The error for a log that ends with somebody else's record."""
    match tail.record if tail else None:
        case End() as end:
            return LogEnded(key, end)
        case Attempt(number=number, worker=worker):
            return Fenced(key, f"attempt {number} on {worker} has taken over")
        case _:
            return Fenced(key, "somebody else writes its log")
