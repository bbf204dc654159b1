"""Leader and workers together, over streams that lose messages, with crashes and takeovers at any time.

The logs of the jobs are modelled as the broker keeps them: one writer at a time, and one end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from headway.core.job import FinishReason, JobKey
from headway.core.lease_actions import Action, CancelAnswer, Drop, Send, Settle, WriteDead, WriteEnd
from headway.core.lease_messages import CancelJob, Demand, Grant, HeldJob, Recall, Welcome, WorkerLoad
from headway.core.queued_job import QueuedJob
from headway.core.records import GrantToken
from headway.core.stats import PageStats, SchedulerStats
from headway.core.worker_leases import GrantVerdict, WorkerFacts, WorkerLeases

MAX_NUM_SEQS, PREFETCH, NUM_PAGES = 2, 1, 8


@dataclass
class Log:
    """A job's log: who may write, and how it ended."""

    writer: tuple[GrantToken, str] | None = None
    ends: list[FinishReason] = field(default_factory=list)


class Worker:
    """A worker process around the real `WorkerLeases`; what it sends lies in ``outbox`` until it is delivered."""

    def __init__(self, name: str, logs: dict[JobKey, Log]) -> None:
        self.name = name
        self.logs = logs
        self.leases = WorkerLeases(WorkerFacts(name, name, "m", 16, NUM_PAGES, MAX_NUM_SEQS), PREFETCH)
        self.stream: int | None = None
        self.inbox: list[Any] = []
        self.outbox: list[Any] = []
        self.running: dict[JobKey, GrantToken] = {}

    def hear(self, message: Any) -> None:
        match message:
            case Welcome():
                assert self.leases.welcome(message), "the simulation opens streams to the newest leader only"
            case Grant():
                verdict = self.leases.accept(message)
                assert verdict in (GrantVerdict.START, GrantVerdict.RENEWED)
            case Recall() if self.leases.holds(message.key, message.grant) and message.key not in self.running:
                self.say(self.leases.returned(message.key, "recalled"))
            case CancelJob() if self.leases.holds(message.key, message.grant):
                self.finish(message.key, message.reason)
        self.say_demand()

    def start(self, key: JobKey) -> None:
        """Read the log, then write the attempt: as the worker's role does."""
        held, log = self.leases.find(key), self.logs[key]
        assert held is not None
        if log.ends:
            self.say(self.leases.ended(key, log.ends[0]))
        elif log.writer is not None and log.writer[0] >= held.token:
            self.say(self.leases.refused(key, conflict=False))
        else:
            log.writer = (held.token, self.name)
            self.running[key] = held.token
            self.leases.submitted(key)
            self.leases.report(key, 15, 0, 1)

    def finish(self, key: JobKey, reason: FinishReason = FinishReason.STOP) -> None:
        if key not in self.running:
            self.start(key)
        token, log = self.running.pop(key, None), self.logs[key]
        if token is None:
            return
        if log.ends or log.writer != (token, self.name):
            self.say(self.leases.refused(key, conflict=False))
            return
        log.ends.append(reason)
        self.say(self.leases.ended(key, reason, 5))

    def give_back(self, key: JobKey) -> None:
        self.running.pop(key, None)
        self.say(self.leases.returned(key, "drained"))

    def say(self, message: Any) -> None:
        if message is not None and self.stream is not None:
            self.outbox.append(message)

    def say_demand(self) -> None:
        num_waiting = len(self.leases.held_keys) - len(self.running)
        pages = PageStats(NUM_PAGES, NUM_PAGES - len(self.running), 0, len(self.running))
        stats = SchedulerStats(len(self.running), 0, 0, pages.num_available, pages, 0, 0, 0, 0)
        demand = self.leases.demand(stats)
        assert len(self.running) + num_waiting + demand.num_sequences <= MAX_NUM_SEQS + PREFETCH
        self.say(demand)
        self.say(self.leases.progress(WorkerLoad(len(self.running), num_waiting, pages.num_available, 0.01)))

    def lose_stream(self) -> None:
        self.stream = None
        self.inbox.clear()
        self.outbox.clear()


class LeaseWorld(RuleBasedStateMachine):
    def __init__(self, make_leader: Any) -> None:
        super().__init__()
        self.make_leader = make_leader
        self.leader = make_leader()
        self.logs: dict[JobKey, Log] = {}
        self.unsettled: dict[int, QueuedJob] = {}
        self.num_settled: Counter[int] = Counter()
        self.to_write: list[WriteEnd] = []
        self.asked: set[JobKey] = set()
        self.workers = [Worker(f"w{number}", self.logs) for number in range(3)]
        self.num_incarnations = 3

    # -- carrying out what the leader decides

    def carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(stream, message):
                    for worker in self.workers:
                        if worker.stream == stream:
                            worker.inbox.append(message)
                case Drop(stream):
                    for worker in self.workers:
                        if worker.stream == stream:
                            self.cut(worker)
                case WriteEnd():
                    self.to_write.append(action)
                case Settle(job):
                    assert len(self.logs[job.key].ends) == 1, "settled without a stored end"
                    self.num_settled[job.stream_sequence] += 1
                    del self.unsettled[job.stream_sequence]
                case CancelAnswer(key):
                    self.asked.discard(key)
                case WriteDead():
                    pass

    def cut(self, worker: Worker) -> None:
        stream = worker.stream
        worker.lose_stream()
        if stream is not None:
            self.carry_out(self.leader.disconnect(stream))

    def reconnect(self, worker: Worker) -> None:
        self.leader.num_streams += 1
        worker.lose_stream()
        worker.stream = self.leader.num_streams
        self.carry_out(self.leader.leases.connect(worker.stream, worker.leases.hello(), self.leader.now))

    # -- rules

    @rule(num_prompt_tokens=st.integers(1, 100), seconds=st.none() | st.floats(1, 60))
    def submit(self, num_prompt_tokens: int, seconds: float | None) -> None:
        expires_at = None if seconds is None else self.leader.now + seconds
        job = self.leader.job(num_prompt_tokens=num_prompt_tokens, expires_at=expires_at)
        self.logs[job.key] = Log()
        self.unsettled[job.stream_sequence] = job
        self.carry_out(self.leader.leases.add("m", job, self.leader.now))

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.logs:
            key = data.draw(st.sampled_from(sorted(self.logs)))
            self.asked.add(key)
            self.carry_out(self.leader.leases.cancel(key))

    @rule(index=st.integers(0, 2))
    def connect(self, index: int) -> None:
        self.reconnect(self.workers[index])

    @rule(index=st.integers(0, 2))
    def lose_connection(self, index: int) -> None:
        self.cut(self.workers[index])

    @rule(index=st.integers(0, 2))
    def crash(self, index: int) -> None:
        self.cut(self.workers[index])
        self.workers[index] = Worker(f"w{self.num_incarnations}", self.logs)
        self.num_incarnations += 1

    @rule(index=st.integers(0, 2), count=st.integers(1, 4))
    def deliver_to_worker(self, index: int, count: int) -> None:
        worker = self.workers[index]
        for _ in range(min(count, len(worker.inbox))):
            worker.hear(worker.inbox.pop(0))

    @rule(index=st.integers(0, 2), count=st.integers(1, 4), repeat=st.booleans())
    def deliver_to_leader(self, index: int, count: int, repeat: bool) -> None:
        worker = self.workers[index]
        for _ in range(count):
            if worker.outbox and worker.stream is not None:
                message, stream = worker.outbox.pop(0), worker.stream
                self.carry_out(self.leader.receive(stream, message))
                if repeat and not isinstance(message, Demand):
                    self.carry_out(self.leader.receive(stream, message))

    @rule(index=st.integers(0, 2), what=st.sampled_from(["start", "finish", "give_back"]), data=st.data())
    def work(self, index: int, what: str, data: st.DataObject) -> None:
        worker = self.workers[index]
        keys = [key for key in worker.leases.held_keys if what != "start" or key not in worker.running]
        if keys:
            getattr(worker, what)(data.draw(st.sampled_from(keys)))
            worker.say_demand()

    @rule(seconds=st.sampled_from([0.1, 2.0, 16.0]))
    def pass_time(self, seconds: float) -> None:
        self.carry_out(self.leader.tick(seconds))

    @precondition(lambda self: self.to_write)
    @rule()
    def write_an_end(self) -> None:
        action = self.to_write.pop(0)
        ends = self.logs[action.job.key].ends
        if not ends:
            ends.append(action.finish_reason)
        self.carry_out(self.leader.leases.ended_by_leader(action.job.key, ends[0]))

    @rule()
    def take_over(self) -> None:
        """A new leader reads the stream; what the last one knew beside it is gone."""
        last, jobs = self.leader, list(self.unsettled.values())
        for worker in self.workers:
            worker.lose_stream()
        self.to_write.clear()
        self.asked.clear()
        self.leader = self.make_leader(epoch=last.epoch + 1, now=last.now, last_seen=last.leases.last_seen())
        self.leader.num_jobs = last.num_jobs
        for job in jobs:
            fresh = QueuedJob(job.key, job.stream_sequence, job.arrival_seconds, 15, 10, expires_at=job.expires_at)
            self.unsettled[job.stream_sequence] = fresh
            self.carry_out(self.leader.leases.add("m", fresh, self.leader.now))

    # -- what always holds

    @invariant()
    def no_job_is_lost_or_doubled(self) -> None:
        assert all(self.leader.leases.find(job.key) is not None for job in self.unsettled.values())
        ending = len({action.job.key for action in self.to_write})
        assert self.leader.num_waiting + self.leader.num_leased + ending == len(self.unsettled)

    @invariant()
    def every_job_ends_at_most_once(self) -> None:
        assert all(len(log.ends) <= 1 for log in self.logs.values())
        assert all(count == 1 for count in self.num_settled.values())

    def teardown(self) -> None:
        """With everything up again all jobs end, every cancel is answered, and nothing stays in flight."""
        for _ in range(200):
            if not self.unsettled:
                break
            self.pass_time(1.0)
            for index, worker in enumerate(self.workers):
                if worker.stream is None:
                    self.reconnect(worker)
                self.deliver_to_worker(index, 100)
                for key in worker.leases.held_keys:
                    worker.finish(key)
                worker.say_demand()
                self.deliver_to_leader(index, 100, False)
            while self.to_write:
                self.write_an_end()
        assert not self.unsettled
        assert (self.leader.num_waiting, self.leader.num_leased) == (0, 0)
        assert not self.asked
        assert all(len(log.ends) == 1 for log in self.logs.values())


def test_every_job_ends_exactly_once_whatever_happens(make_leader):
    run_state_machine_as_test(
        lambda: LeaseWorld(make_leader), settings=settings(max_examples=150, stateful_step_count=60, deadline=None)
    )


def test_a_held_job_is_said_in_the_next_hello():
    worker = Worker("w", {JobKey("acme", "a"): Log()})
    worker.hear(Welcome(1, 15.0))
    worker.hear(Grant(JobKey("acme", "a"), GrantToken(1, 1), 1, b"", 0.0, 0.0))
    assert worker.leases.hello().held == (HeldJob(JobKey("acme", "a"), GrantToken(1, 1), False),)
