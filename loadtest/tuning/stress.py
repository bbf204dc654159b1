"""Stress of one candidate: its batch is kept full, and what it then does is measured for some seconds.

As many clients as the batch has slots each send a request, wait for its end and send the next (a closed loop), so the
batch is never empty and nobody queues: throughput is the most that this batch gives, and the time to a first token
that of the prompt's way through the engine. Requests come from the workload, over and over.

A batch that starts with all its requests at once would go on in step: all prompts, then all decodes. So the first
requests are those that a batch holds after a long time, each somewhere in its answer: long ones as much more often as
they stay longer, and of each a random part of its tokens (Cox, Renewal Theory, 1962: what is met at a random moment).
Were they drawn evenly, too many would end at first, and a short stress of a large batch would see twice the prompts.
What is measured begins when all of these have their first token. What is open at the end is cancelled.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import TYPE_CHECKING

from headway.core.job import FinishReason, JobKey
from headway.core.scheduler_config import SchedulerConfig
from headway.core.stats import StepStats
from headway.engine.messages import Cancel, StepReport, Submit
from loadtest.errors import BenchError
from loadtest.statistics import percentile
from loadtest.tuning.knobs import Goal, Run
from loadtest.workloads.requests import Request, WorkloadError

if TYPE_CHECKING:
    from headway.engine.engine import Engine

LEAST_GAPS = 8
"""Of a request, for its time per token to count; or all that it has."""
LEAST_COUNTED = 8
"""Requests that a run measures at least, unless it takes `MOST_TIMES` as long as planned."""
MOST_TIMES = 3.0
MOST_WARM_UP_TIMES = 5.0
"""As long as a run is planned, at the most, all first tokens are waited for."""


@dataclass(slots=True)
class _Client:
    """A request as its client sees it. Times in seconds of the engine's clock."""

    request: Request
    sent_at: float
    is_first: bool
    num_tokens: int = 0
    first_token_at: float | None = None
    counted_from: float | None = None
    """When the window began, or its first token came in it."""
    num_gaps: int = 0
    last_token_at: float = 0.0

    def receive(self, num_tokens: int, now: float, is_measured: bool) -> None:
        if not num_tokens:
            return
        self.num_tokens += num_tokens
        if self.first_token_at is None:
            self.first_token_at = now
        if not is_measured:
            return
        if self.counted_from is None:
            self.counted_from = now
            num_tokens = 0
        self.num_gaps += num_tokens
        self.last_token_at = now

    def wait_seconds(self, now: float) -> float:
        """For its first token, so far."""
        return (now if self.first_token_at is None else self.first_token_at) - self.sent_at

    @property
    def tpot_seconds(self) -> float | None:
        """In the window; None: too few tokens in it."""
        enough = min(LEAST_GAPS, self.request.num_output_tokens - 1)
        if self.counted_from is None or self.num_gaps < max(1, enough):
            return None
        return (self.last_token_at - self.counted_from) / self.num_gaps


@dataclass(slots=True)
class _Window:
    """What was seen since all first requests had their first token."""

    started_at: float | None = None
    num_tokens: int = 0
    steps: list[StepStats] = field(default_factory=list)


def stress(engine: Engine, scheduler: SchedulerConfig, requests: Sequence[Request], goal: Goal, seconds: float) -> Run:
    """Of a candidate, on an idle engine, which is idle again afterwards. Runs in the engine's process."""
    from headway.engine.build import reschedule

    scheduler = reschedule(engine, scheduler)
    return Stress(engine, scheduler.max_num_seqs, requests).run(goal, seconds)


class Stress:
    def __init__(
        self,
        engine: Engine,
        num_clients: int,
        requests: Sequence[Request],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._num_clients = num_clients
        self._requests = self._endless(requests)
        self._clock = clock
        self._clients: dict[JobKey, _Client] = {}
        """Those that wait for tokens."""
        self._sent: list[_Client] = []
        """All."""
        self._num_waited_for = num_clients
        self._window = _Window()
        self._begun_at = clock()

    def run(self, goal: Goal, seconds: float) -> Run:
        """Raises `WorkloadError` for a request that the engine refuses, `BenchError` for one that fails. The engine is
        idle afterwards."""
        num_preemptions = -self._engine.report().scheduler.num_preemptions_total
        try:
            for _ in range(self._num_clients):
                self._send()
            while not self._is_over(seconds):
                self._note(self._engine.step(self._clock()))
                if self._window.started_at is None and self._is_warm(seconds):
                    self._open_window()
            ended_at = self._clock()
        finally:
            num_preemptions += self._stop()
        return self._sum_up(goal, ended_at, num_preemptions)

    def _endless(self, requests: Sequence[Request]) -> Iterator[Request]:
        rng = random.Random(len(requests))
        lengths = [request.num_output_tokens for request in requests]
        for request in rng.choices(requests, lengths, k=self._num_clients):
            yield replace(request, num_output_tokens=max(1, math.ceil(request.num_output_tokens * rng.random())))
        yield from cycle(requests)

    def _send(self) -> None:
        request, now = next(self._requests), self._clock()
        key = JobKey("tune", str(len(self._sent)))
        self._clients[key] = _Client(request, now, is_first=len(self._sent) < self._num_clients)
        self._sent.append(self._clients[key])
        self._engine.submit(Submit(key, request.sampling, request.prompt_token_ids, None), now)

    def _note(self, report: StepReport) -> None:
        now = self._clock()
        if report.step is not None and self._window.started_at is not None:
            self._window.steps.append(report.step)
        for output in report.outputs:
            self._receive(self._clients[output.key], len(output.token_ids), now)
            if output.finish_reason is None:
                continue
            del self._clients[output.key]
            if output.finish_reason is not FinishReason.LENGTH:
                reason = output.error.message if output.error else output.finish_reason
                failure = WorkloadError if output.finish_reason is FinishReason.REJECTED else BenchError
                raise failure(f"a request of the workload cannot be run: {reason}")
            self._send()

    def _is_warm(self, seconds: float) -> bool:
        return not self._num_waited_for or self._clock() - self._begun_at > MOST_WARM_UP_TIMES * seconds

    def _open_window(self) -> None:
        now = self._window.started_at = self._clock()
        for client in self._clients.values():
            if client.first_token_at is not None:
                client.counted_from = now

    def _receive(self, client: _Client, num_tokens: int, now: float) -> None:
        is_measured = self._window.started_at is not None
        had_none = client.first_token_at is None
        client.receive(num_tokens, now, is_measured)
        if had_none and client.is_first and client.first_token_at is not None:
            self._num_waited_for -= 1
        if is_measured:
            self._window.num_tokens += num_tokens

    @property
    def _num_started(self) -> int:
        """Requests that were sent into a full batch and have a token."""
        started_at = self._window.started_at or 0.0
        return sum(client.first_token_at is not None and client.sent_at >= started_at for client in self._sent)

    def _is_over(self, seconds: float) -> bool:
        started_at = self._window.started_at
        if started_at is None:
            return False
        elapsed = self._clock() - started_at
        if elapsed >= MOST_TIMES * seconds:
            return True
        return elapsed >= seconds and self._num_started >= LEAST_COUNTED and len(self._tpots()) >= LEAST_COUNTED

    def _stop(self) -> int:
        """The preemptions that the engine has counted."""
        for key in list(self._clients):
            self._engine.cancel(Cancel(key), self._clock())
        return self._engine.report().scheduler.num_preemptions_total

    def _ttfts(self, now: float) -> list[float]:
        """Of requests that were sent into a full batch; where outputs are so long that none of these has a token, of
        the first ones. One that waits still counts once it waits longer than all of them did."""
        started_at = self._window.started_at or 0.0
        known = [c.wait_seconds(now) for c in self._sent if c.first_token_at is not None and c.sent_at >= started_at]
        known = known or [c.wait_seconds(now) for c in self._sent if c.first_token_at is not None]
        longest = max(known, default=0.0)
        waiting = [c.wait_seconds(now) for c in self._sent if c.first_token_at is None]
        return known + [seconds for seconds in waiting if seconds > longest]

    def _tpots(self) -> list[float]:
        return [tpot for client in self._sent if (tpot := client.tpot_seconds) is not None]

    def _tpot(self, share: float, elapsed: float) -> float:
        """What that share kept. Where tokens come so slowly that nobody had enough, what it is at least; 0 where no
        request has a second token."""
        tpots = sorted(self._tpots())
        if tpots:
            return percentile(tpots, 100 * share)
        if all(client.request.num_output_tokens < 2 for client in self._sent):
            return 0.0
        return elapsed / max(1, *(client.num_gaps for client in self._sent))

    def _sum_up(self, goal: Goal, ended_at: float, num_preemptions: int) -> Run:
        window = self._window
        assert window.started_at is not None
        elapsed = ended_at - window.started_at
        ttfts = sorted(self._ttfts(ended_at))
        steps = sorted(step.seconds for step in window.steps)
        num_prompt_tokens = sum(step.num_prefill_tokens for step in window.steps)
        return Run(
            output_tokens_per_s=window.num_tokens / elapsed,
            tpot_seconds=self._tpot(goal.share, elapsed),
            ttft_seconds=percentile(ttfts, 100 * goal.share),
            num_requests=len(self._tpots()),
            num_preemptions=num_preemptions,
            details={
                "step_p50_seconds": percentile(steps, 50),
                "step_p99_seconds": percentile(steps, 99),
                "ttft_p50_seconds": percentile(ttfts, 50),
                "tpot_p50_seconds": self._tpot(0.5, elapsed),
                "prompt_tokens_per_s": num_prompt_tokens / elapsed,
            },
        )
