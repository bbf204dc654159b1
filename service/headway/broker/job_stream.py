"""One job as its client sees it: published on first use, then an async iterator of chunks."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Generator
from typing import Any, Self

from headway.broker.connection import Connection
from headway.broker.errors import Busy, Conflict, LogIncomplete
from headway.broker.job_publish import Publication, publish_job
from headway.broker.joblog import StoredRecord
from headway.broker.log_reader import LogReader
from headway.broker.results import Chunk, JobResult, Transcript
from headway.core.errors import HeadwayError, RejectCode
from headway.core.job import JobKey
from headway.core.records import Attempt, End, ErrorInfo, Tokens


class JobStream:
    """A job's output, live.

        async for chunk in client.submit("Hello"):      # publishes, then streams
            print(chunk.text, end="")

        job = await client.submit("Hello")              # publishes; streams later, or never
        result = await job.result()                     # all of it, once it has ended

    Reading is never tied to a connection: records that were missed are read again from the stream, so a chunk comes
    exactly once and in order. Give a stream that you leave early back with `aclose`, or use it in ``async with``.
    """

    def __init__(
        self,
        connection: Connection,
        reader: LogReader,
        publication: Publication | None,
        is_new: bool,
        submit_timeout_seconds: float,
    ) -> None:
        """``publication`` None follows a job that somebody else published. ``is_new``: its id was made up just now."""
        self._connection = connection
        self._reader = reader
        self._publication = publication
        self._is_new = is_new
        self._submit_timeout_seconds = submit_timeout_seconds
        self._payload_hash = None if publication is None else hashlib.sha256(publication.payload).hexdigest()
        self._transcript = Transcript(reader.key.id)
        self._start_lock = asyncio.Lock()
        self._has_started = False

    @property
    def id(self) -> str:
        return self._reader.key.id

    @property
    def payload_hash(self) -> str | None:
        """SHA-256 of what is published, in hex: the log's first record repeats it. None if somebody else published."""
        return self._payload_hash

    @property
    def key(self) -> JobKey:
        return self._reader.key

    async def start(self) -> Self:
        """Have the job stored; done by the first use in any case. Harmless twice.

        Raises `TooLarge`, `Busy`, `BrokerRefused`, or `BrokerUnavailable` after the timeout. A job that was refused may
        be started again: the broker takes it once.
        """
        async with self._start_lock:
            if not self._has_started:
                await self._start()
                self._has_started = True
        return self

    async def result(self, timeout_seconds: float | None = None) -> JobResult:
        """The whole job once it has ended; after a part of it was read, or all of it, too.

        A job that was rejected or failed gives a result with its ``error``, no exception. Raises `TimeoutError`,
        `Conflict`, `LogIncomplete`, what `start` raises, and `Busy` too if the queue had no room for the bytes of this
        tenant: that is the job's end, so it takes another id to try again.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                async for _ in self:
                    pass
        except TimeoutError as exc:
            raise TimeoutError(f"job {self.key.tenant}/{self.id} has not ended in {timeout_seconds:g} s") from exc
        return self._transcript.result()

    async def aclose(self) -> None:
        """Stop reading; the job itself goes on (`Client.cancel` ends it). Harmless twice."""
        await self._reader.close()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.start().__await__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        await self.start()
        try:
            async for stored in self._reader:
                if (chunk := self._chunk(stored)) is not None:
                    self._transcript.add(chunk)
                    return chunk
        except HeadwayError:
            await self.aclose()
            raise
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _start(self) -> None:
        """Listen first, so that nothing of a new job is missed."""
        await self._reader.open(from_start=not self._is_new)
        if self._publication is None:
            return
        try:
            await publish_job(self._connection, self._publication, self._submit_timeout_seconds)
        except BaseException:
            await self._reader.pause()
            raise

    def _chunk(self, stored: StoredRecord) -> Chunk | None:
        self._check_owner(stored)
        match stored.record:
            case Attempt():
                self._transcript.num_attempts += 1
            case Tokens(token_start=token_start, token_ids=token_ids, text=text, logprobs=logprobs):
                if token_start != len(self._transcript.token_ids):
                    raise LogIncomplete(self.key)
                return Chunk(token_ids, text, logprobs)
            case End(error=ErrorInfo(code=RejectCode.BUSY, message=message)):
                raise Busy(message)
            case End(finish_reason=reason, error=error, usage=usage, timings=timings):
                return Chunk(finish_reason=reason, error=error, usage=usage, timings=timings)
        return None

    def _check_owner(self, stored: StoredRecord) -> None:
        """The first record that names a payload tells whose log this is."""
        found = stored.record.payload_hash if isinstance(stored.record, Attempt) else stored.payload_hash
        if found and self._payload_hash and found != self._payload_hash:
            raise Conflict(self.key)
