"""Everything that can happen between leaders, workers and the broker, as moves from state to state.

    leader q0 (epoch 1) ══ streams, ordered and reliable until they break; ══ worker w0
    leader q1 (epoch 2) ══ each end hears of that by itself                ══ worker w1
          └── ends, acks ──▶ the jobs' logs, the stream of jobs ◀── attempts, tokens, ends ──┘

In each state any message may be the next to arrive, any process the next to act, and any fault may come: so messages
are delayed as long as one likes, and lost with their stream. `Bounds` says how many faults a run may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, NamedTuple, TypeVar

from headway.core.leases import Leases
from headway.core.worker_leases import WorkerLeases
from tests.core.leases.search.draft import Draft
from tests.core.leases.search.leader import LeaderFacts, LeaderProcess
from tests.core.leases.search.logs import Log, Rules, Violation
from tests.core.leases.search.parts import Numbers, Parts
from tests.core.leases.search.state import EOF, KEYS, NOT_YET, Bounds, Fault, State
from tests.core.leases.search.worker import Phase, WorkerProcess, WorkerView, worker_facts

T = TypeVar("T")


class Cost(Enum):
    """What a move takes from what the bounds allow."""

    NOTHING = auto()
    """It happens by itself, sooner or later."""
    FAULT = auto()
    RECALL = auto()
    CANCEL = auto()
    REPORT = auto()


class Move(NamedTuple):
    label: str
    cost: Cost
    act: Callable[[Draft], None]


@dataclass(frozen=True, slots=True)
class Code:
    """What is searched: the real classes, or broken copies of them."""

    leases: type[Leases] = Leases
    worker_leases: type[WorkerLeases] = WorkerLeases
    leader: type[LeaderProcess] = LeaderProcess
    worker: type[WorkerProcess] = WorkerProcess
    rules: type[Rules] = Rules


class World:
    def __init__(self, bounds: Bounds, code: Code | None = None) -> None:
        self.bounds = bounds
        self.code = code or Code()
        self.leaders: Parts[LeaderProcess, LeaderFacts] = Parts(LeaderProcess.facts)
        self.workers: Parts[WorkerProcess, WorkerView] = Parts(WorkerProcess.view)
        self.messages = Numbers()
        self.rules = self.code.rules()
        self._successors: dict[tuple[int, tuple[int, ...]], int] = {}
        self._shared: dict[Any, Any] = {}
        self._texts: dict[int, str] = {EOF: "its end"}

    # -- states

    def start(self) -> State:
        """One leader; worker w0 has asked for jobs. See `Bounds.is_under_way`."""
        first = self.code.leader.take_over(self.code.leases, 1, [], frozenset())
        workers = tuple(self.workers.number(self._new_worker(f"w{slot}.0")) for slot in range(2))
        bounds = self.bounds
        left = (bounds.num_faults, bounds.num_recalls, bounds.num_cancels, bounds.num_reports)
        state = State((self.leaders.number(first), NOT_YET), workers, (), (Log(), Log()), 0, (), (), *left)
        for slot in range(2 if bounds.is_under_way else 1):
            connect = partial(Draft.connect, stream=f"w{slot}q0a", leader=0, slot=slot)
            state = self._delivered(self.after(state, Move("", Cost.NOTHING, connect)))
        for _ in range(bounds.num_jobs if bounds.is_under_way else 0):
            state = self.after(state, Move("", Cost.NOTHING, Draft.publish))
        return state

    def _delivered(self, state: State) -> State:
        while any(link.up or link.down for _, link in state.links):
            state = self.after(state, next(self._deliveries(state)))
        return state

    def after(self, state: State, move: Move) -> State:
        """Raises `Violation` if the move breaks a promise."""
        draft = Draft(self, state)
        match move.cost:
            case Cost.FAULT:
                draft.num_faults -= 1
            case Cost.RECALL:
                draft.num_recalls -= 1
            case Cost.CANCEL:
                draft.num_cancels -= 1
            case Cost.REPORT:
                draft.num_reports -= 1
        move.act(draft)
        return draft.state()

    def shared(self, value: T) -> T:
        """One object for all that are equal: states have most of theirs in common."""
        return self._shared.setdefault(value, value)

    def next_worker(self, incarnation: str) -> int:
        slot, _, number = incarnation.partition(".")
        return self.workers.number(self._new_worker(f"{slot}.{int(number) + 1}"))

    def successor(self, state: State) -> int:
        """The leader that takes over in this state."""
        key = (state.leaders[0], state.unacked)
        if key not in self._successors:
            seen = frozenset(self.leaders.facts[state.leaders[0]].incarnations)
            jobs = [KEYS[index] for index in state.unacked]
            self._successors[key] = self.leaders.number(self.code.leader.take_over(self.code.leases, 2, jobs, seen))
        return self._successors[key]

    # -- what must hold

    def check(self, state: State) -> None:
        """Raises `Violation` for a state that must not be."""
        for leader in state.leaders:
            if leader >= 0 and self.leaders.facts[leader].fault is not None:
                raise Violation(self.leaders.facts[leader].fault)
        known = self._newest(state).jobs
        for job in state.unacked:
            if KEYS[job] not in known:
                raise Violation(f"job {job} is lost: it is in the stream, and its leader does not know it")

    def is_over(self, state: State) -> bool:
        """All jobs have ended, and nobody holds anything or waits for an answer."""
        leader = self._newest(state)
        is_everything_ended = state.num_published == self.bounds.num_jobs and not state.unacked and not leader.jobs
        is_held = any(self.workers.facts[worker].holds_any for worker in state.workers)
        return is_everything_ended and not leader.is_asked and not is_held

    def has_granted_too_often(self, state: State) -> bool:
        grants = [self.leaders.facts[leader].num_grants for leader in state.leaders if leader >= 0]
        return max(grants) > self.bounds.max_grants

    def _newest(self, state: State) -> LeaderFacts:
        return self.leaders.facts[state.leaders[0] if state.leaders[1] == NOT_YET else state.leaders[1]]

    # -- moves

    def moves(self, state: State) -> Iterator[Move]:
        """All that can happen next."""
        yield from self.natural_moves(state)
        yield from self._reports(state)
        for leader in (1, 0):
            if state.leaders[leader] >= 0 and state.num_recalls:
                yield Move(f"q{leader} recalls", Cost.RECALL, partial(Draft.leader, leader=leader, event=("recall",)))
            if state.leaders[leader] >= 0 and state.num_cancels:
                cancel = partial(Draft.leader, leader=leader, event=("cancel", KEYS[0]))
                yield Move(f"a client cancels 0 at q{leader}", Cost.CANCEL, cancel)
        if state.num_faults:
            yield from self._faults(state)

    def natural_moves(self, state: State) -> Iterator[Move]:
        """What happens by itself, sooner or later."""
        if state.leaders[0] >= 0 and state.leaders[1] >= 0:
            yield Move("q0 finds itself deposed and ends", Cost.NOTHING, partial(Draft.end_leader, leader=0))
        if state.num_published < self.bounds.num_jobs:
            yield Move(f"job {state.num_published} is published", Cost.NOTHING, Draft.publish)
        yield from self._deliveries(state)
        for slot in range(2):
            yield from self._work(state, slot)
        for leader in range(2):
            if state.leaders[leader] >= 0:
                yield from self._lead(state, leader)
        yield from self._connections(state)

    def _deliveries(self, state: State) -> Iterator[Move]:
        for stream, link in state.links:
            if link.leader_open and link.up:
                text = f"q{link.leader} hears from w{link.worker}: {self._text(link.up[0])}"
                yield Move(text, Cost.NOTHING, partial(Draft.deliver_up, stream=stream))
            if link.worker_open and link.down:
                text = f"w{link.worker} hears from q{link.leader}: {self._text(link.down[0])}"
                yield Move(text, Cost.NOTHING, partial(Draft.deliver_down, stream=stream))

    def _connections(self, state: State) -> Iterator[Move]:
        """A stream's name is used again once it is gone at both ends, so that there are few."""
        taken = {stream for stream, _ in state.links}
        for slot in range(2):
            if self.workers.facts[state.workers[slot]].stream is not None:
                continue
            for leader in (1, 0):
                free = [name for name in (f"w{slot}q{leader}a", f"w{slot}q{leader}b") if name not in taken]
                if state.leaders[leader] >= 0 and free:
                    connect = partial(Draft.connect, stream=free[0], leader=leader, slot=slot)
                    yield Move(f"w{slot} connects to q{leader}", Cost.NOTHING, connect)

    def _reports(self, state: State) -> Iterator[Move]:
        for slot in range(2):
            if state.num_reports and self.workers.facts[state.workers[slot]].is_welcome:
                yield Move(f"w{slot} reports", Cost.REPORT, partial(Draft.worker, slot=slot, event=("report",)))

    def _work(self, state: State, slot: int) -> Iterator[Move]:
        """What a worker does by itself about its jobs."""
        for key, phase in self.workers.facts[state.workers[slot]].runs:
            job = int(key.id)
            if phase in (Phase.WRITTEN, Phase.REFUSED):
                learn = partial(Draft.worker, slot=slot, event=("learn", key))
                yield Move(f"w{slot} learns what became of its last word on {job}", Cost.NOTHING, learn)
                continue
            verb, text = _STEPS[phase]
            event = (verb, key, state.logs[job])
            yield Move(f"w{slot} {text} {job}", Cost.NOTHING, partial(Draft.worker, slot=slot, event=event, job=job))

    def _lead(self, state: State, leader: int) -> Iterator[Move]:
        """What a leader does by itself, and what time does to it."""
        facts = self.leaders.facts[state.leaders[leader]]
        for key, work in facts.next_work:
            is_ready = (leader, int(key.id)) in state.ends
            text = "acks" if work.reason is None else "writes the end of" if is_ready else "reads, and leads, to end"
            carry_out = partial(Draft.carry_out, leader=leader, key=key, work=work)
            yield Move(f"q{leader} {text} {key.id}", Cost.NOTHING, carry_out)
        if not facts.is_granting:
            end_grace = partial(Draft.leader, leader=leader, event=("end_grace",))
            yield Move(f"the grace of q{leader} is over", Cost.NOTHING, end_grace)
        for incarnation in facts.incarnations:
            if not self._is_there(state, leader, incarnation):
                miss = partial(Draft.leader, leader=leader, event=("miss", incarnation))
                yield Move(f"the lease of {incarnation} at q{leader} runs out", Cost.NOTHING, miss)

    def _is_there(self, state: State, leader: int, incarnation: str) -> bool:
        """Whether the worker lives and is not another leader's, so that its lease does not run out by itself."""
        worker = self.workers.facts[state.workers[int(incarnation[1])]]
        is_elsewhere = worker.stream is not None and worker.stream[3] != str(leader)
        return worker.incarnation == incarnation and not is_elsewhere

    # -- faults

    def _faults(self, state: State) -> Iterator[Move]:
        for fault, label, act in self._all_faults(state):
            if fault in self.bounds.faults:
                yield Move(label, Cost.FAULT, act)

    def _all_faults(self, state: State) -> Iterator[tuple[Fault, str, Callable[[Draft], None]]]:
        for stream, link in state.links:
            if link.worker_open and link.leader_open:
                yield Fault.STREAM, f"the stream {stream} breaks", partial(Draft.cut, stream=stream)
        for slot in range(2):
            yield from self._worker_faults(state, slot)
        for leader in range(2):
            if state.leaders[leader] < 0:
                continue
            for incarnation in self.leaders.facts[state.leaders[leader]].incarnations:
                if self._is_there(state, leader, incarnation):
                    miss = partial(Draft.leader, leader=leader, event=("miss", incarnation))
                    yield Fault.LEASE, f"q{leader} does not hear of {incarnation} for a lease", miss
        if state.leaders[1] == NOT_YET:
            yield Fault.TAKEOVER, "q1 takes over", Draft.take_over
            yield Fault.LEADER, "q0 dies, and q1 takes over", Draft.succeed

    def _worker_faults(self, state: State, slot: int) -> Iterator[tuple[Fault, str, Callable[[Draft], None]]]:
        die = partial(Draft.restart, slot=slot, is_lost=True)
        yield Fault.WORKER, f"w{slot} dies, and what it said last is lost", die
        if self.workers.facts[state.workers[slot]].stream is not None:
            die = partial(Draft.restart, slot=slot, is_lost=False)
            yield Fault.WORKER, f"w{slot} dies, and what it said last arrives", die
        yield Fault.ENGINE, f"the engine of w{slot} dies", partial(Draft.lose_engine, slot=slot)
        yield Fault.DRAIN, f"w{slot} is told to stop", partial(Draft.worker, slot=slot, event=("drain",))

    def _new_worker(self, incarnation: str) -> WorkerProcess:
        bounds = self.bounds
        leases = self.code.worker_leases(worker_facts(incarnation, bounds.max_num_seqs), bounds.prefetch)
        return self.code.worker(incarnation, leases, self.rules, bounds.num_tokens, bounds.max_num_seqs)

    def _text(self, message: int) -> str:
        if message not in self._texts:
            self._texts[message] = _text(self.messages.things[message])
        return self._texts[message]


_STEPS = {
    Phase.TAKING: ("take_log", "takes the log of"),
    Phase.WAITING: ("step", "generates a token of"),
    Phase.RUNNING: ("step", "generates a token of"),
    Phase.WRITING: ("write", "has its last word written on"),
}


def _text(message: Any) -> str:
    words = [type(message).__name__]
    for name in ("key", "epoch", "token", "grant", "num_sequences"):
        fact = getattr(message, name, None)
        if fact is not None:
            words.append(fact.id if name == "key" else f"{name} {fact if isinstance(fact, int) else tuple(fact)}")
    return " ".join(words)
