"""The clients of a run over NATS, and what they see."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from headway import Client
from headway.broker.job_stream import JobStream
from headway.broker.results import Chunk
from headway.core.errors import HeadwayError
from headway.core.job import FinishReason
from headway.core.lease_actions import CancelOutcome
from loadtest.progress import Watch
from loadtest.recording import Timeline
from loadtest.targets.sending import send_all, watched
from loadtest.workloads.plan import Due, Line, Plan
from loadtest.workloads.requests import Request

CANCEL_AGAIN_SECONDS = 0.05


class Senders:
    """Of one run. Which client sends a request follows from its tenant."""

    def __init__(self, requests: Sequence[Request], timeout_seconds: float) -> None:
        self.clients: dict[str, Client] = {}
        """By tenant."""
        self.timelines = [Timeline.of(request) for request in requests]
        self.errors: Counter[str] = Counter()
        self.started = 0.0
        """CLOCK_MONOTONIC, as the worker's step times are."""
        self._requests = requests
        self._timeout_seconds = timeout_seconds

    def start(self) -> None:
        """The clock of the run."""
        self.started = time.monotonic()

    async def send(self, plan: Plan, watch: Watch) -> None:
        """Returns once every request has ended or is lost."""
        with watched(self.timelines, watch, self._now):
            await send_all(Line(plan), self._follow, self._now)

    def _now(self) -> float:
        return time.monotonic() - self.started

    async def _follow(self, due: Due) -> None:
        request, timeline = self._requests[due.number], self.timelines[due.number]
        timeline.send(due.due_at, self._now())
        client = self.clients[request.tenant]
        stream = _submit(client, request)
        try:
            async with asyncio.timeout(due.due_at + self._timeout_seconds - self._now()):
                with self._given_up(client, stream, request, timeline):
                    async for chunk in stream:
                        self._note(chunk, timeline)
        except TimeoutError:
            self.errors[f"no end within {self._timeout_seconds:g} s"] += 1
            await stream.aclose()
        except HeadwayError as error:
            self.errors[type(error).__name__] += 1
            timeline.end(FinishReason.ERROR, self._now())

    def _note(self, chunk: Chunk, timeline: Timeline) -> None:
        now = self._now()
        timeline.receive(len(chunk.token_ids), now)
        if chunk.finish_reason is None:
            return
        timeline.end(chunk.finish_reason, now)
        if chunk.error is not None:
            self.errors[chunk.error.code] += 1
        if chunk.timings is not None and chunk.timings.queue_seconds is not None:
            # The broker's timestamp of the job, from which that counts, is a publish later than we sent it.
            assert timeline.sent_at is not None
            timeline.queue_seconds = timeline.sent_at - timeline.due_at + chunk.timings.queue_seconds

    @contextmanager
    def _given_up(self, client: Client, stream: JobStream, request: Request, timeline: Timeline) -> Iterator[None]:
        """While its client reads, a request may be cancelled."""
        if request.cancel_after_seconds is None:
            yield
            return
        cancel_at = timeline.due_at + request.cancel_after_seconds
        task = asyncio.create_task(self._cancel(client, stream, timeline, cancel_at), name="bench:cancel")
        try:
            yield
        finally:
            task.cancel()

    async def _cancel(self, client: Client, stream: JobStream, timeline: Timeline, cancel_at: float) -> None:
        """The queue may not have read yet what was stored a moment ago, and know of no such job."""
        with suppress(HeadwayError):  # nobody answered: then the job's own end, or none, says what became of it
            await stream.start()
            await asyncio.sleep(cancel_at - self._now())
            timeline.has_given_up = True
            while (await client.cancel(stream.id)).outcome is CancelOutcome.NOT_FOUND:  # noqa: ASYNC110 (no event says so)
                await asyncio.sleep(CANCEL_AGAIN_SECONDS)


def _submit(client: Client, request: Request) -> JobStream:
    sampling = request.sampling
    return client.submit(
        request.prompt_token_ids,
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        temperature=sampling.temperature,
        ignore_eos=sampling.ignore_eos,
        priority=request.priority or None,
    )
