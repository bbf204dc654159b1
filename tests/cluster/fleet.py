"""A fleet of simulated workers under the queue leader's real state machine (`Leases`), on virtual time.

A worker is a clock of tokens: all jobs that it runs advance by one token per step, and a step takes longer the more of
them there are. A pod starts slowly (node, image, weights), drains when it is removed, and hands back what is not
finished by then. Which pod a scale-down removes is decided as by a ReplicaSet: those that are not ready, then the
lowest deletion cost, then the youngest.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from headway.cluster.deletion_cost import deletion_cost
from headway.core.job import FinishReason, JobKey
from headway.core.lease_actions import Action, Send
from headway.core.lease_messages import Demand, Ended, Grant, Hello, Returned
from headway.core.lease_terms import LeaseTerms
from headway.core.leases import Leases
from headway.core.queue import JobQueue
from headway.core.queue_config import QueueConfig
from headway.core.queued_job import QueuedJob
from headway.core.status import LastSeen, QueueStatus

MODEL = "default"
PAGE_SIZE, NUM_PAGES, MAX_NUM_SEQS = 16, 3000, 16
STEP_SECONDS, STEP_SECONDS_PER_JOB = 0.03, 0.001
START_SECONDS = 180.0
COST_SECONDS = 10.0
"""Between two looks of the leader at the deletion costs."""


@dataclass(frozen=True)
class Arrival:
    time: float
    num_prompt_tokens: int
    num_output_tokens: int
    tenant: str = "acme"


@dataclass
class Pod:
    """A worker, from its creation to its end."""

    number: int
    created_at: float
    token_clock: float = 0.0
    """Tokens that each job has got that has run here from the first moment on."""
    running: list[tuple[float, JobKey, Grant]] = field(default_factory=list)
    """A heap by the token clock at which the job is finished."""
    last_grant: int = 0
    is_connected: bool = False
    drains_until: float | None = None
    cost: int = 0
    busy_seconds: float = 0.0
    """In the period that the utilisation is taken from."""

    def is_ready(self, now: float) -> bool:
        return now >= self.created_at + START_SECONDS

    @property
    def is_busy(self) -> bool:
        return bool(self.running)

    def advance(self, seconds: float) -> None:
        self.busy_seconds += seconds * self.is_busy
        self.token_clock += seconds / (STEP_SECONDS + STEP_SECONDS_PER_JOB * len(self.running))

    def demand(self) -> Demand:
        if self.drains_until is not None:
            return Demand(0, 0, self.last_grant)
        free = MAX_NUM_SEQS - len(self.running)
        return Demand(free, NUM_PAGES * free // MAX_NUM_SEQS, self.last_grant)


class Fleet:
    """`advance` from tick to tick; `scale` as the Deployment is told."""

    def __init__(self, arrivals: Iterable[Arrival], replicas: int, drain_seconds: float) -> None:
        terms = LeaseTerms(lease_seconds=1e9)
        self.leases = Leases(1, {MODEL: JobQueue(QueueConfig())}, terms, 0.0, LastSeen(workers=frozenset()))
        self.now = 0.0
        self._drain_seconds = drain_seconds
        self.pods: list[Pod] = []
        self.delays: list[tuple[float, float]] = []
        """Arrival and queueing delay of every granted job."""
        self.num_ended = 0
        self.num_handed_back = 0
        self.pod_seconds = 0.0
        self._arrivals = list(reversed(list(arrivals)))
        self._num_jobs = self._num_pods = 0
        self._output_tokens: dict[JobKey, int] = {}
        self._costs_at = 0.0
        self.scale(replicas)
        for pod in self.pods:
            pod.created_at = -START_SECONDS

    @property
    def replicas(self) -> int:
        """As the Deployment counts: not those that terminate."""
        return sum(pod.drains_until is None for pod in self.pods)

    @property
    def num_outstanding(self) -> int:
        """Jobs that have come and not ended."""
        return len(self._output_tokens)

    def status(self) -> QueueStatus:
        return self.leases.status(self.now)

    def utilisation(self, seconds: float) -> list[float]:
        """Of each ready pod's GPU since the last call, in percent: it computes, however few jobs it has."""
        ready = [pod for pod in self.pods if pod.drains_until is None and pod.is_ready(self.now)]
        values = [100.0 * min(1.0, pod.busy_seconds / seconds) for pod in ready]
        for pod in self.pods:
            pod.busy_seconds = 0.0
        return values

    def scale(self, replicas: int) -> None:
        for _ in range(replicas - self.replicas):
            self._num_pods += 1
            self.pods.append(Pod(self._num_pods, self.now))
        kept = [pod for pod in self.pods if pod.drains_until is None]
        kept.sort(key=lambda pod: (pod.is_ready(self.now), pod.cost, -pod.created_at, -pod.number))
        for pod in kept[: max(0, self.replicas - replicas)]:
            pod.drains_until = self.now + self._drain_seconds
            if pod.is_connected:
                self._carry_out(self.leases.receive(pod.number, pod.demand(), self.now))

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        self.pod_seconds += seconds * len(self.pods)
        while self._arrivals and self._arrivals[-1].time <= until:
            self.now = self._arrivals[-1].time
            self._arrive(self._arrivals.pop())
        self.now = until
        for pod in list(self.pods):
            if not pod.is_connected and pod.drains_until is None and pod.is_ready(self.now):
                self._connect(pod)
            pod.advance(seconds)
            self._finish(pod)
            self._end_drained(pod)
        if self.now >= self._costs_at:
            self._costs_at = self.now + COST_SECONDS
            for pod in self.pods:
                pod.cost = deletion_cost(len(pod.running))

    # -- jobs ----------------------------------------------------------------------------------------------------

    def _arrive(self, arrival: Arrival) -> None:
        self._num_jobs += 1
        key = JobKey(arrival.tenant, f"job{self._num_jobs}")
        job = QueuedJob(key, self._num_jobs, arrival.time, arrival.num_prompt_tokens, max_tokens=4096)
        self._output_tokens[key] = arrival.num_output_tokens
        self._carry_out(self.leases.add(MODEL, job, self.now))

    def _carry_out(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Send) and isinstance(action.message, Grant):
                pod = next(pod for pod in self.pods if pod.number == action.stream)
                self._start(pod, action.message)

    def _start(self, pod: Pod, grant: Grant) -> None:
        pod.last_grant = max(pod.last_grant, grant.token.number)
        ends_at = pod.token_clock + self._output_tokens[grant.key]
        heapq.heappush(pod.running, (ends_at, grant.key, grant))
        self.delays.append((grant.arrival_seconds, self.now - grant.arrival_seconds))

    def _finish(self, pod: Pod) -> None:
        num_running = len(pod.running)
        while pod.running and pod.running[0][0] <= pod.token_clock:
            _, key, grant = heapq.heappop(pod.running)
            self.num_ended += 1
            ended = Ended(key, grant.token, FinishReason.STOP, self._output_tokens.pop(key))
            self._carry_out(self.leases.receive(pod.number, ended, self.now))
        if len(pod.running) != num_running:
            self._carry_out(self.leases.receive(pod.number, pod.demand(), self.now))

    # -- pods ----------------------------------------------------------------------------------------------------

    def _connect(self, pod: Pod) -> None:
        pod.is_connected = True
        hello = Hello(f"i{pod.number}", f"pod-{pod.number}", MODEL, PAGE_SIZE, NUM_PAGES, MAX_NUM_SEQS)
        self._carry_out(self.leases.connect(pod.number, hello, self.now))
        self._carry_out(self.leases.receive(pod.number, pod.demand(), self.now))

    def _end_drained(self, pod: Pod) -> None:
        """It goes once it is empty, or when its time is over, and then hands back what it has."""
        if pod.drains_until is None or (pod.running and self.now < pod.drains_until):
            return
        self.num_handed_back += len(pod.running)
        for _, key, grant in pod.running:
            self._carry_out(self.leases.receive(pod.number, Returned(key, grant.token, "drained"), self.now))
        self.pods.remove(pod)
        if pod.is_connected:
            self._carry_out(self.leases.disconnect(pod.number, self.now))
