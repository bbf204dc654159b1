"""The next state in the making: what one move changes, and whether a promise breaks by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headway.core.job import FinishReason, JobKey
from headway.core.lease_messages import Refused
from headway.core.records import End, GrantToken, Record
from tests.core.leases.search.leader import DropStream, Work
from tests.core.leases.search.logs import Violation
from tests.core.leases.search.state import EOF, GONE, KEYS, NOT_YET, Link, State

if TYPE_CHECKING:
    from tests.core.leases.search.world import World


class Draft:
    """Starts as a copy of a state."""

    def __init__(self, world: World, state: State) -> None:
        self._world = world
        self._state = state
        self.leaders = list(state.leaders)
        self.workers = list(state.workers)
        self.links = dict(state.links)
        self.logs = list(state.logs)
        self.num_published = state.num_published
        self.unacked = state.unacked
        self.ends = state.ends
        self.num_faults = state.num_faults
        self.num_recalls = state.num_recalls
        self.num_cancels = state.num_cancels
        self.num_reports = state.num_reports

    def state(self) -> State:
        return State(
            tuple(self.leaders),
            tuple(self.workers),
            self._world.shared(tuple(sorted(self.links.items()))),
            self._world.shared(tuple(self.logs)),
            self.num_published,
            self.unacked,
            self.ends,
            self.num_faults,
            self.num_recalls,
            self.num_cancels,
            self.num_reports,
        )

    # -- processes

    def leader(self, leader: int, event: tuple[Any, ...]) -> None:
        self.leaders[leader], outs = self._world.leaders.step(self.leaders[leader], event)
        for stream, message in outs:
            link = self.links.get(stream)
            if link is None or not link.leader_open:
                continue
            if isinstance(message, DropStream):
                self.end_leader_side(stream)
            else:
                self.links[stream] = link._replace(down=(*link.down, self._world.messages.of(message)))

    def worker(self, slot: int, event: tuple[Any, ...], job: int | None = None) -> None:
        """``job``: whose log the step may write to."""
        self.workers[slot], done = self._world.workers.step(self.workers[slot], event)
        if done.messages:
            self._send(slot, done.messages)
        if done.record is not None:
            assert job is not None
            self._append(job, done.record, done.writer)
        identity = self._world.workers.facts[self.workers[slot]]
        if identity.stream is None:
            self.close_worker_side(slot)
        if identity.has_drained:
            self.restart(slot, is_lost=False)

    def carry_out(self, leader: int, key: JobKey, work: Work) -> None:
        """The next thing that a leader has to do with the broker about a job."""
        job = int(key.id)
        if work.reason is not None:
            self._end(leader, key, work.reason)
        elif leader == 0 and self.leaders[1] >= 0:
            self.end_leader(0)
        elif self.logs[job].end is None:
            raise Violation(f"job {job} was settled before its end was stored")
        else:
            self.unacked = tuple(other for other in self.unacked if other != job)
            self.leader(leader, ("acked", key))

    def _end(self, leader: int, key: JobKey, reason: FinishReason) -> None:
        """One of the steps to a stored end: `broker.log_end`."""
        job = int(key.id)
        if (ended := self.logs[job].end) is not None:
            self.leader(leader, ("end_written", key, ended))
        elif (leader, job) not in self.ends:
            self._prepare_end(leader, job)
        elif leader == 0 and self.logs[job].is_past_takeover:
            raise Violation(f"a former leader ended job {job}, which has gone on under its successor")
        else:
            self._append(job, End(reason), None)
            self.leader(leader, ("end_written", key, reason))

    def _prepare_end(self, leader: int, job: int) -> None:
        is_deposed = leader == 0 and self.leaders[1] >= 0
        if is_deposed and self._world.rules.must_lead_to_end:
            self.end_leader(0)
        else:
            self.ends = tuple(sorted({*self.ends, (leader, job)}))

    def _append(self, job: int, record: Record, writer: GrantToken | None) -> None:
        log = self.logs[job].append(record, writer)
        is_past_takeover = self.leaders[0] >= 0 and self.leaders[1] >= 0
        self.logs[job] = log._replace(is_past_takeover=log.is_past_takeover or is_past_takeover)
        if self._world.rules.is_end_fenced:
            self.ends = tuple(end for end in self.ends if end[1] != job)

    def publish(self) -> None:
        """The next job comes into the stream, and to the leader whose consumer that has."""
        job = self.num_published
        self.num_published += 1
        self.unacked = (*self.unacked, job)
        self.leader(0 if self.leaders[1] == NOT_YET else 1, ("publish", KEYS[job]))

    def take_over(self) -> None:
        self.leaders[1] = self._world.successor(self._state)

    def succeed(self) -> None:
        self.end_leader(0)
        self.take_over()

    def end_leader(self, leader: int) -> None:
        self.leaders[leader] = GONE
        self.ends = tuple(end for end in self.ends if end[0] != leader)
        if leader == 0:
            self.logs = [log._replace(is_past_takeover=False) for log in self.logs]
        for stream, link in list(self.links.items()):
            if link.leader == leader and link.leader_open:
                self.end_leader_side(stream)

    def restart(self, slot: int, is_lost: bool) -> None:
        """The process ends, and another comes in its place; what it has said last is lost, or still arrives."""
        identity = self._world.workers.facts[self.workers[slot]]
        if identity.stream is not None and is_lost:
            link = self.links[identity.stream]
            self.links[identity.stream] = link._replace(up=link.up and ((EOF,) if link.up[-1] == EOF else ()))
        self.close_worker_side(slot)
        self.workers[slot] = self._world.next_worker(identity.incarnation)

    def lose_engine(self, slot: int) -> None:
        """It is started again, and the worker connects anew."""
        self.worker(slot, ("lose_engine",))
        self.worker(slot, ("lose_stream",))

    # -- streams

    def connect(self, stream: str, leader: int, slot: int) -> None:
        self.links[stream] = Link(leader, slot)
        self.worker(slot, ("connect", stream))

    def cut(self, stream: str) -> None:
        """With all that is on its way."""
        self.links[stream] = self.links[stream]._replace(up=(EOF,), down=(EOF,))

    def deliver_up(self, stream: str) -> None:
        leader, message = self.links[stream].leader, self._take(stream, "up")
        if message == EOF:
            self.end_leader_side(stream)
            self.leader(leader, ("lose_stream", stream))
        else:
            self.leader(leader, ("hear", stream, self._world.messages.things[message]))

    def deliver_down(self, stream: str) -> None:
        slot, message = self.links[stream].worker, self._take(stream, "down")
        if message == EOF:
            self.worker(slot, ("lose_stream",))
        else:
            self.worker(slot, ("hear", self._world.messages.things[message]))

    def _take(self, stream: str, queue: str) -> int:
        link = self.links[stream]
        first, *rest = getattr(link, queue)
        self.links[stream] = link._replace(**{queue: tuple(rest)})
        return int(first)

    def end_leader_side(self, stream: str) -> None:
        link = self.links[stream]
        self._keep(stream, link._replace(leader_open=False, up=(), down=_ended(link.down)))

    def close_worker_side(self, slot: int) -> None:
        for stream, link in list(self.links.items()):
            if link.worker == slot and link.worker_open:
                self._keep(stream, link._replace(worker_open=False, down=(), up=_ended(link.up)))

    def _keep(self, stream: str, link: Link) -> None:
        if link.worker_open or link.leader_open:
            self.links[stream] = link
        else:
            del self.links[stream]

    def _send(self, slot: int, messages: tuple[Any, ...]) -> None:
        if self._state.num_faults == self._world.bounds.num_faults and any(
            isinstance(message, Refused) for message in messages
        ):
            raise Violation("a worker was fenced although nothing had gone wrong")
        for stream, link in self.links.items():
            if link.worker == slot and link.worker_open:
                numbers = tuple(self._world.messages.of(message) for message in messages)
                if link.leader_open and link.up[-1:] != (EOF,):
                    self.links[stream] = link._replace(up=link.up + numbers)
                return


def _ended(queue: tuple[int, ...]) -> tuple[int, ...]:
    return queue if queue[-1:] == (EOF,) else (*queue, EOF)
