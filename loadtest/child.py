"""A process of our own that is asked and answers, for what must be measured by itself.

    bench ── what to start, then questions ──▶ standard input    a module of loadtest
          ◀── stages, notes, answers, failed ── standard output

Both ends are this package in the same interpreter, so what passes is pickled, each message behind its length. The child
ends with its input, and the kernel ends it if its parent is killed.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, TextIO

from headway.core.errors import HeadwayError, InputError
from loadtest.errors import BenchError, BenchInputError
from loadtest.peers.protocol import begin

STOP_SECONDS = 20.0
"""From the end of its input to SIGKILL."""
_LENGTH = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class _Stage:
    text: str


@dataclass(frozen=True, slots=True)
class _Note:
    content: object


@dataclass(frozen=True, slots=True)
class _Failed:
    reason: str
    is_input: bool
    """Whether it is what was asked (`InputError`)."""


class Child:
    """The parent's end."""

    def __init__(
        self,
        module: str,
        say: Callable[[str], None],
        environment: Mapping[str, str] | None = None,
        on_note: Callable[[Any], None] = lambda content: None,
    ) -> None:
        """``on_note`` hears what the child tells while it works on an answer."""
        self._module = module
        self._say = say
        self._on_note = on_note
        # Imported and not run with -m: pickle must find its classes where they are for the parent.
        # A session of its own: Ctrl-C is for the parent, which then ends this.
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {module} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, what: object) -> Any:
        """The answer to the first question, which says what to start; else as `ask`. Ctrl-C ends the child at once, for
        it would hear of the end of its input only when it has started."""
        try:
            return self.ask(what)
        except KeyboardInterrupt:
            self._process.kill()
            raise

    def ask(self, question: object) -> Any:
        """The answer to one question. Raises `BenchError`, or `BenchInputError`."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            _write(self._process.stdin, question)
        return self._answer()

    def check(self) -> None:
        """Raises `BenchError` if it has ended, for whoever waits for what it should do."""
        if self._process.poll() is not None:
            self._answer()

    def close(self) -> None:
        """Harmless twice. What interrupts the wait, a second Ctrl-C, ends the child at once."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        while True:
            try:
                answer = _read(self._process.stdout)
            except EOFError as exc:
                raise BenchError(f"{self._module} ended with status {self._process.wait()}") from exc
            if isinstance(answer, _Failed):
                raise (BenchInputError if answer.is_input else BenchError)(answer.reason)
            match answer:
                case _Stage(text):
                    self._say(text)
                case _Note(content):
                    self._on_note(content)
                case _:
                    return answer


class Questions:
    """The child's end, as `asked` gives it."""

    def __init__(self, answers: TextIO) -> None:
        self._answers = answers

    def next(self) -> Any:
        """Waits. Raises ``EOFError`` when the parent has no more."""
        return _read(sys.stdin.buffer)

    async def following(self) -> AsyncIterator[Any]:
        """All that come from now on, in an event loop; `next` must not be called any more."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        with suppress(asyncio.IncompleteReadError):
            while True:
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                yield pickle.loads(await reader.readexactly(length))

    def answer(self, answer: object) -> None:
        _write(self._answers.buffer, answer)

    def stage(self, text: str) -> None:
        """Something that people would like to hear."""
        self.answer(_Stage(text))

    def note(self, content: object) -> None:
        """Something about the answer that is being worked on."""
        self.answer(_Note(content))


@contextmanager
def asked() -> Iterator[Questions]:
    """The process as such a child. Errors become the answer; the end of the questions ends the block."""
    questions = Questions(begin())
    try:
        yield questions
    except (EOFError, BrokenPipeError):
        pass
    except HeadwayError as error:
        questions.answer(_Failed(str(error), isinstance(error, InputError)))


def _write(stream: IO[bytes], message: object) -> None:
    content = pickle.dumps(message)
    stream.write(_LENGTH.pack(len(content)) + content)
    stream.flush()


def _read(stream: IO[bytes]) -> Any:
    """Raises ``EOFError`` at the end of the stream."""
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        raise EOFError
    return pickle.loads(stream.read(*_LENGTH.unpack(length)))
