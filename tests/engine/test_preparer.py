from __future__ import annotations

import threading

import pytest

from headway.core.job import FinishReason, JobKey, Message, SamplingParams
from headway.engine.messages import SequenceOutput, Submit
from headway.engine.preparer import ENGINE_ERROR, LONG_TEXT_CHARACTERS, Arrival, Prepared, Preparer, PreparingThread

TIMEOUT_SECONDS = 60.0
LONG_TEXT = "a" * (LONG_TEXT_CHARACTERS + 1)


def make_arrival(name: str, prompt: str | tuple[int, ...] | None = "Hi", **fields: object) -> Arrival:
    command = Submit(JobKey("acme", name), SamplingParams(), prompt, **{"messages": None, **fields})  # type: ignore[arg-type]
    return Arrival(command, 0.0)


class Bench:
    """A thread whose first job takes until it may end; notes the names of the others in their order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.has_begun, self.may_end, self.is_last = threading.Event(), threading.Event(), threading.Event()
        self.thread = PreparingThread(self._prepare, self._done)
        self.thread.put(make_arrival("first"))
        assert self.has_begun.wait(TIMEOUT_SECONDS)

    def run(self, *arrivals: Arrival) -> list[str]:
        for arrival in (*arrivals, make_arrival("last", LONG_TEXT)):
            self.thread.put(arrival)
        self.may_end.set()
        assert self.is_last.wait(TIMEOUT_SECONDS)
        return self.names[1:-1]

    def _prepare(self, arrival: Arrival) -> Prepared:
        self.has_begun.set()
        assert self.may_end.wait(TIMEOUT_SECONDS)
        return Prepared(arrival, arrival.end(FinishReason.REJECTED))

    def _done(self, prepared: Prepared) -> None:
        self.names.append(prepared.arrival.key.id)
        if self.names[-1] == "last":
            self.is_last.set()


def test_jobs_are_prepared_in_their_order_and_long_texts_behind_the_others() -> None:
    arrivals = [
        make_arrival("long-prompt", LONG_TEXT),
        make_arrival("b", "some text"),
        make_arrival("long-chat", None, messages=(Message("user", LONG_TEXT),)),
        make_arrival("a", "x"),
        make_arrival("ids", (5,) * len(LONG_TEXT)),
    ]
    assert Bench().run(*arrivals) == ["b", "a", "ids", "long-prompt", "long-chat"]


def test_a_job_that_was_dropped_is_not_prepared() -> None:
    dropped = make_arrival("dropped")
    dropped.is_dropped = True
    assert Bench().run(dropped, make_arrival("a")) == ["a"]


@pytest.mark.parametrize("error", [RuntimeError("Already borrowed"), MemoryError()])
def test_a_tokenizer_that_fails_ends_that_job_alone(error: Exception) -> None:
    class Broken:
        def encode(self, job: Submit) -> list[int]:
            raise error

    outcome = Preparer(Broken(), frozenset()).prepare(make_arrival("a")).outcome  # type: ignore[arg-type]
    assert isinstance(outcome, SequenceOutput)
    assert outcome.finish_reason is FinishReason.ERROR
    assert outcome.error is not None
    assert outcome.error.code == ENGINE_ERROR
