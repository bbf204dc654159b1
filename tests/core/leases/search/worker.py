"""A worker process around the real `WorkerLeases`: what `roles.worker` and `roles.worker_jobs` do, step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from headway.core.job import FinishReason, JobKey
from headway.core.lease_messages import CancelJob, Demand, Grant, LeaderMessage, Recall, Welcome, WorkerLoad
from headway.core.lease_messages import WorkerMessage as Message
from headway.core.records import Attempt, End, GrantToken, Record, Released, Tokens
from headway.core.stats import PageStats, SchedulerStats
from headway.core.worker_leases import GrantVerdict, WorkerFacts, WorkerLeases
from tests.core.leases.search.logs import HASH, Log, Rules, Violation

MODEL, PAGE_SIZE, NUM_PAGES = "m", 16, 100
LOAD = WorkerLoad(0, 0, NUM_PAGES, 0.01)


NO_GRANT = GrantToken(0, 0)


class Phase(Enum):
    TAKING = auto()
    """The attempt is to be written."""
    WAITING = auto()
    """In the engine, not started."""
    RUNNING = auto()
    WRITING = auto()
    """Out of the engine; its end, or that it is released, is to be written."""
    WRITTEN = auto()
    """That stands in the log, and the worker does not know yet."""
    REFUSED = auto()
    """The log has refused it, and the worker does not know yet."""


IN_ENGINE = (Phase.WAITING, Phase.RUNNING)


@dataclass(slots=True)
class Run:
    """One attempt (`roles.job_run`)."""

    token: GrantToken
    num_lost_attempts: int
    """As the grant says."""
    phase: Phase = Phase.TAKING
    cancelling: FinishReason | None = None
    returning: bool = False
    num_tokens: int = 0
    """Of the job's output, as its writer knows it."""
    num_counted_attempts: int = 0
    last_word: Record | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What came out of a step."""

    messages: tuple[Message, ...]
    """Said on the stream, in order."""
    record: Record | None = None
    """Stored in the log of the step's job,"""
    writer: GrantToken | None = None
    """under this grant."""


@dataclass(frozen=True, slots=True)
class WorkerView:
    incarnation: str
    stream: str | None
    is_welcome: bool
    has_drained: bool
    holds_any: bool
    runs: tuple[tuple[JobKey, Phase], ...]
    """The jobs that it can do something about now."""


@dataclass
class WorkerProcess:
    """One incarnation. ``says`` collects what it sends during a step."""

    incarnation: str
    leases: WorkerLeases
    rules: Rules
    num_tokens: int
    max_num_seqs: int
    stream: str | None = None
    is_welcome: bool = False
    is_stopping: bool = False
    last_demand: Demand | None = None
    newest: GrantToken = NO_GRANT
    """That it has heard of."""
    runs: dict[JobKey, Run] = field(default_factory=dict)
    says: list[Message] = field(default_factory=list)

    # -- the stream

    def connect(self, stream: str) -> Done:
        self.stream, self.is_welcome = stream, False
        return Done((self.leases.hello(),))

    def lose_stream(self) -> Done:
        self.stream, self.is_welcome = None, False
        return Done(())

    def hear(self, message: LeaderMessage) -> Done:
        match message:
            case Welcome():
                self._welcomed(message)
            case Grant():
                self._granted(message)
                self._ask()
            case Recall(key, token) if self.leases.holds(key, token):
                self._hand_back(key, only_if_waiting=True)
            case CancelJob(key, token, reason) if key in self.runs and self.leases.holds(key, token):
                self._cancel(self.runs[key], reason)
        return self._done()

    def report(self) -> Done:
        """The heartbeat."""
        self._say(self.leases.progress(LOAD))
        return self._done()

    # -- the way of one job

    def take_log(self, key: JobKey, log: Log) -> Done:
        """Write the attempt, unless the log forbids it."""
        run = self.runs[key]
        if log.end is not None:
            del self.runs[key]
            self._tell(self.leases.ended(key, log.end, log.num_tokens))
            return self._done()
        if not self.rules.may_take(log, run.token):
            self._refuse(key)
            return self._done()
        run.num_tokens, run.num_counted_attempts = log.num_tokens, log.num_counted_attempts + 1
        run.returning |= log.num_counted_attempts > run.num_lost_attempts
        self._enter_engine(key, run)
        return self._done(Attempt(run.num_counted_attempts, run.token, self.incarnation, HASH), run.token)

    def step(self, key: JobKey, log: Log) -> Done:
        """The engine gives the job's next token, and with the last one its end; a token is stored, or refused."""
        run, record = self.runs[key], None
        run.phase = Phase.RUNNING
        self.leases.report(key, 1, 0, run.num_tokens + 1)
        if run.num_tokens < self.num_tokens:
            if not self.rules.follows(log, run.token):
                self._refuse(key)
                self._ask()
                return self._done()
            record = Tokens(run.num_tokens, run.num_tokens, (0,), "")
            run.num_tokens += 1
        if run.num_tokens >= self.num_tokens:
            self._leave_engine(run, End(FinishReason.STOP))
        self._ask()
        return self._done(record, run.token)

    def write(self, key: JobKey, log: Log) -> Done:
        """The broker handles the record that ends the attempt."""
        run = self.runs[key]
        if not self.rules.follows(log, run.token):
            run.phase = Phase.REFUSED
            return Done(())
        run.phase = Phase.WRITTEN
        return Done((), run.last_word, run.token)

    def learn(self, key: JobKey) -> Done:
        """The broker's answer has come."""
        run = self.runs[key]
        if run.phase is Phase.REFUSED:
            self._refuse(key)
            return self._done()
        del self.runs[key]
        if isinstance(run.last_word, End):
            self._tell(self.leases.ended(key, run.last_word.finish_reason, self.num_tokens))
        else:
            self._tell(self.leases.returned(key, "handed back", run.num_counted_attempts - 1))
        return self._done()

    # -- faults

    def lose_engine(self) -> Done:
        """Its engine dies and is started again, with which it connects anew: the world closes its stream."""
        self._say(self.leases.demand(None))
        for key, run in list(self.runs.items()):
            if run.phase in IN_ENGINE:
                del self.runs[key]
                self._tell(self.leases.returned(key, "the engine died", run.num_counted_attempts))
        self.leases.engine_restarted(worker_facts(self.incarnation, self.max_num_seqs))
        return self._done()

    def drain(self) -> Done:
        self.is_stopping = True
        self.leases.stop()
        self._ask()
        for key in list(self.runs):
            self._hand_back(key, only_if_waiting=False)
        return self._done()

    # -- inside

    def _welcomed(self, welcome: Welcome) -> None:
        """A leader that is a former one is left, which the world does when it sees ``stream`` gone."""
        if not self.leases.welcome(welcome):
            self.lose_stream()
            return
        if welcome.epoch < self.newest.epoch:
            raise Violation("a worker goes on with a former leader")
        self.newest = max(self.newest, GrantToken(welcome.epoch, 0))
        self.is_welcome, self.last_demand = True, None
        self._ask()

    def _granted(self, grant: Grant) -> None:
        verdict = self.leases.accept(grant)
        if verdict in (GrantVerdict.START, GrantVerdict.RENEWED):
            if grant.token < self.newest:
                raise Violation("a worker took up the grant of a former leader")
            self.newest = grant.token
        match verdict:
            case GrantVerdict.START:
                self.runs[grant.key] = Run(grant.token, grant.num_lost_attempts)
            case GrantVerdict.STOPPING:
                self._tell(self.leases.returned(grant.key, "the worker is stopping"))

    def _cancel(self, run: Run, reason: FinishReason) -> None:
        run.cancelling = reason
        if run.phase in IN_ENGINE:
            self._leave_engine(run, End(reason))
            self._ask()

    def _hand_back(self, key: JobKey, only_if_waiting: bool) -> None:
        run = self.runs.get(key)
        if run is None or run.phase not in (Phase.TAKING, *IN_ENGINE):
            return
        if run.phase is Phase.TAKING:
            run.returning = True
        elif run.phase is Phase.WAITING or not only_if_waiting:
            self._leave_engine(run, Released("", run.token))
            self._ask()

    def _enter_engine(self, key: JobKey, run: Run) -> None:
        if run.cancelling is not None:
            self._leave_engine(run, End(run.cancelling))
        elif run.returning:
            self._leave_engine(run, Released("", run.token))
        else:
            run.phase = Phase.WAITING
            self.leases.submitted(key)
            self._ask()

    def _leave_engine(self, run: Run, last_word: Record) -> None:
        run.phase, run.last_word = Phase.WRITING, last_word

    def _refuse(self, key: JobKey) -> None:
        del self.runs[key]
        self._tell(self.leases.refused(key, conflict=False))

    def _tell(self, message: Message | None) -> None:
        if message is not None:
            self._say(message)
            self.last_demand = None
            self._ask()

    def _ask(self) -> None:
        demand = self.leases.demand(self._stats())
        if demand != self.last_demand and self.stream is not None:
            self._say(demand)
            self.last_demand = demand

    def _stats(self) -> SchedulerStats:
        """Of an engine that has pages enough for every job, so that slots alone decide what it can take."""
        phases = [run.phase for run in self.runs.values()]
        running, waiting = phases.count(Phase.RUNNING), phases.count(Phase.WAITING)
        num_pages = NUM_PAGES + len(self.leases.held_keys)
        pages = PageStats(num_pages, num_pages, 0, 0)
        return SchedulerStats(running, waiting, 0, NUM_PAGES + self._num_before_the_engine(), pages, 0, 0, 0, 0)

    def _num_before_the_engine(self) -> int:
        held = [self.leases.find(key) for key in self.leases.held_keys]
        return sum(grant is not None and not grant.in_engine for grant in held)

    def _say(self, message: Message) -> None:
        """What is said without a stream is lost."""
        if self.stream is not None:
            self.says.append(message)

    def _done(self, record: Record | None = None, writer: GrantToken | None = None) -> Done:
        says, self.says = self.says, []
        return Done(tuple(says), record, writer)

    # -- what the search asks

    def view(self) -> WorkerView:
        return WorkerView(
            incarnation=self.incarnation,
            stream=self.stream,
            is_welcome=self.is_welcome,
            has_drained=self.is_stopping and not self.leases.held_keys,
            holds_any=bool(self.leases.held_keys),
            runs=tuple((key, run.phase) for key, run in self.runs.items() if self._can_go_on(key, run)),
        )

    def _can_go_on(self, key: JobKey, run: Run) -> bool:
        """A job in the engine waits for a slot, and for those before it."""
        num_running = sum(other.phase is Phase.RUNNING for other in self.runs.values())
        first = next((other for other, run in self.runs.items() if run.phase is Phase.WAITING), None)
        return run.phase is not Phase.WAITING or (num_running < self.max_num_seqs and first == key)


def worker_facts(incarnation: str, max_num_seqs: int) -> WorkerFacts:
    return WorkerFacts(incarnation, incarnation[:2], MODEL, PAGE_SIZE, NUM_PAGES, max_num_seqs)
