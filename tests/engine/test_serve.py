"""The loop of the engine child, at the other end of its socket. Only the time that tokenizing takes is made here."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from headway.core.job import FinishReason, JobKey, SamplingParams
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.build import assemble
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.engine.frames import decode_event, encode_frame, read_frame
from headway.engine.load import LoadedModel
from headway.engine.messages import Cancel, Command, SequenceOutput, StepReport, Submit, Withdraw
from headway.engine.serve import EngineLoop
from headway.engine.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("both_loops")

TIMEOUT_SECONDS = 60.0
SLOW = JobKey("acme", "slow")


class SlowTokenizer:
    """The real one, but the prompt of the job "slow" takes until it may end."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.decode = tokenizer.decode
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def encode(self, job: Submit) -> list[int]:
        if job.key == SLOW:
            self.has_begun.set()
            assert self.may_end.wait(TIMEOUT_SECONDS)
        return self._tokenizer.encode(job)


@dataclass
class Parent:
    connection: socket.socket
    tokenizer: SlowTokenizer
    outputs: dict[str, list[SequenceOutput]] = field(default_factory=dict)

    def send(self, *commands: Command) -> None:
        for command in commands:
            self.connection.sendall(encode_frame(command))

    def receive(self) -> None:
        """One report."""
        frame = read_frame(self.connection)
        assert frame is not None
        report = decode_event(frame)
        assert isinstance(report, StepReport)
        for output in report.outputs:
            self.outputs.setdefault(output.key.id, []).append(output)

    def receive_first(self, name: str) -> None:
        while name not in self.outputs:
            self.receive()

    def receive_all(self, *names: str) -> None:
        while not all(name in self.outputs and self.is_over(name) for name in names):
            self.receive()

    def is_over(self, name: str) -> bool:
        last = self.outputs[name][-1]
        return last.withdrawn or last.finish_reason is not None

    def tokens(self, name: str) -> tuple[int, ...]:
        return tuple(token for output in self.outputs[name] for token in output.token_ids)


def make_engine(tiny: LoadedModel) -> Engine:
    return assemble(tiny, EngineConfig(kv_memory="4MiB"), SchedulerConfig(), print)


@contextmanager
def serving(tiny: LoadedModel) -> Iterator[Parent]:
    engine = make_engine(tiny)
    tokenizer = SlowTokenizer(engine._preparer._tokenizer)
    engine._preparer._tokenizer = tokenizer  # type: ignore[assignment]
    ours, theirs = socket.socketpair()
    ours.settimeout(TIMEOUT_SECONDS)
    with ours, theirs:
        loop = threading.Thread(target=EngineLoop(engine, theirs).run)
        loop.start()
        try:
            yield Parent(ours, tokenizer)
        finally:
            tokenizer.may_end.set()
            ours.shutdown(socket.SHUT_WR)
            loop.join(TIMEOUT_SECONDS)
            assert not loop.is_alive()


def make_submit(name: str, max_tokens: int = 8, prompt: str = "Once upon a time", **fields: object) -> Submit:
    sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True, seed=1)
    return Submit(JobKey("acme", name), sampling, prompt, None, **fields)  # type: ignore[arg-type]


def tokens_alone(tiny: LoadedModel, job: Submit) -> tuple[int, ...]:
    engine = make_engine(tiny)
    engine.submit(job, 0.0)
    tokens: list[int] = []
    while engine.has_work:
        tokens += [token for output in engine.step(0.0).outputs for token in output.token_ids]
    return tuple(tokens)


def test_other_jobs_go_on_while_a_prompt_is_tokenized(tiny: LoadedModel) -> None:
    neighbour = make_submit("neighbour", max_tokens=60)
    with serving(tiny) as parent:
        parent.send(neighbour)
        parent.receive_first("neighbour")
        parent.send(make_submit("slow"))
        assert parent.tokenizer.has_begun.wait(TIMEOUT_SECONDS)
        parent.receive_all("neighbour")
        assert "slow" not in parent.outputs
        parent.tokenizer.may_end.set()
        parent.receive_all("slow")
        assert parent.tokens("neighbour") == tokens_alone(tiny, neighbour)
        assert parent.tokens("slow") == tokens_alone(tiny, make_submit("slow"))


@pytest.mark.parametrize("order", [Cancel(SLOW), Withdraw(SLOW), Withdraw(SLOW, only_if_waiting=True)])
def test_a_job_leaves_at_once_while_its_prompt_is_tokenized(tiny: LoadedModel, order: Cancel | Withdraw) -> None:
    with serving(tiny) as parent:
        parent.send(make_submit("slow"))
        assert parent.tokenizer.has_begun.wait(TIMEOUT_SECONDS)
        parent.send(order)
        parent.receive_all("slow")
        parent.tokenizer.may_end.set()
        parent.send(make_submit("next"))
        parent.receive_all("next")
        (only,) = parent.outputs["slow"]
        assert only.finish_reason is (FinishReason.CANCELLED if isinstance(order, Cancel) else None)


def test_orders_about_one_job_take_effect_in_their_order(tiny: LoadedModel) -> None:
    again = make_submit("slow", prompt="One two three")
    with serving(tiny) as parent:
        parent.send(make_submit("slow"), Cancel(SLOW), again)
        parent.tokenizer.may_end.set()
        parent.receive_all("slow")
        assert parent.outputs.pop("slow")[-1].finish_reason is FinishReason.CANCELLED
        parent.receive_all("slow")
        assert parent.tokens("slow") == tokens_alone(tiny, again)


def test_jobs_that_cannot_be_taken_change_nothing_for_their_neighbour(tiny: LoadedModel) -> None:
    neighbour = make_submit("neighbour", max_tokens=60)
    with serving(tiny) as parent:
        parent.send(neighbour)
        parent.receive_first("neighbour")
        parent.send(*(make_submit(f"large-{i}", prompt="a" * 1_000_000) for i in range(3)))
        parent.send(*(make_submit(f"long-{i}", prompt="a " * 10_000) for i in range(3)))
        names = [f"{kind}-{i}" for kind in ("large", "long") for i in range(3)]
        parent.receive_all("neighbour", *names)
        for name in names:
            (only,) = parent.outputs[name]
            assert only.finish_reason is FinishReason.REJECTED
            assert only.error is not None
            assert (only.error.code, only.error.field) == ("too_long", "prompt")
        assert parent.tokens("neighbour") == tokens_alone(tiny, neighbour)
