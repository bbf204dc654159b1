"""Between `bench` and a peer: one JSON object a line, tasks on its standard input, answers on its standard output.

A runner is started with the path of the model as its argument. It says ``{"ready": ...}`` when it could serve, then
answers each `Task` with one `Answer`; it ends with its input. Whatever a library prints to standard output would
spoil this, so a runner's standard output is its standard error from the start, and the answers have a descriptor of
their own.

This file is imported by peers in which Headway is not installed: nothing but the standard library here.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import IO, Any, Protocol, TextIO

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class TaskRequest:
    prompt_token_ids: list[int]
    num_output_tokens: int
    """Exactly: greedy, deaf to EOS."""
    due_at: float
    """Seconds from the start of the task."""


@dataclass(frozen=True)
class Task:
    requests: list[TaskRequest]

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @staticmethod
    def from_line(line: str) -> Task:
        return Task([TaskRequest(**request) for request in json.loads(line)["requests"]])


@dataclass
class Times:
    """Of one request, in seconds from the start of the task."""

    num_tokens: int = 0
    first_token_at: float | None = None
    last_token_at: float | None = None
    ended_at: float | None = None
    gaps: list[float] = field(default_factory=list)
    """Between two deliveries of tokens."""

    def receive(self, num_tokens: int, now: float) -> None:
        if num_tokens:
            if self.last_token_at is not None:
                self.gaps.append(now - self.last_token_at)
            self.num_tokens += num_tokens
            self.last_token_at = now
            self.first_token_at = now if self.first_token_at is None else self.first_token_at


@dataclass
class Answer:
    times: list[Times] = field(default_factory=list)
    """By request, in the task's order."""

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @staticmethod
    def from_line(line: str) -> Answer:
        return Answer([Times(**times) for times in json.loads(line)["times"]])


def serve(run: Callable[[Task], Answer], answers: IO[str], facts: dict[str, Any]) -> None:
    """Say that the runner is ready, and what it is; then answer tasks until there are no more."""
    answers.write(json.dumps({"ready": facts}) + "\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(run(Task.from_line(line)).to_line())
        answers.flush()


def begin() -> TextIO:
    """The stream for answers. What anything else prints goes to standard error from now on, and this process ends when
    its parent does."""
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def die_with_parent() -> None:
    """However it ends, even if this process is stopped then (Linux; elsewhere only the end of the input tells)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Stepped(Protocol):
    """An engine that is driven step by step."""

    def add(self, number: int, request: TaskRequest) -> None: ...

    def step(self) -> Iterator[tuple[int, int, bool]]:
        """One step: which requests got how many tokens, and whether they ended."""

    @property
    def is_busy(self) -> bool: ...


def drive(engine: Stepped, task: Task) -> Answer:
    """Add each request when it is due, step while there is work."""
    times = [Times() for _ in task.requests]
    upcoming = deque(sorted(range(len(times)), key=lambda number: task.requests[number].due_at))
    started = time.monotonic()
    while upcoming or engine.is_busy:
        now = time.monotonic() - started
        while upcoming and task.requests[upcoming[0]].due_at <= now:
            number = upcoming.popleft()
            engine.add(number, task.requests[number])
        if not engine.is_busy:
            time.sleep(max(0.0, task.requests[upcoming[0]].due_at - now))
            continue
        for number, num_tokens, is_finished in engine.step():
            moment = time.monotonic() - started
            times[number].receive(num_tokens, moment)
            if is_finished:
                times[number].ended_at = moment
    return Answer(times)
