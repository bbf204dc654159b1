"""How a command runs, mostly in an event loop, and how it ends: by itself, or by Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

import click

from headway.commands.statuses import INTERRUPTED
from headway.roles.supervisor import stop_on_signals

T = TypeVar("T")


class Runnable(Protocol):
    async def run(self, stop: asyncio.Event) -> None: ...

    def hurry(self) -> None: ...


class Role(Runnable, Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...


R = TypeVar("R", bound=Runnable)


def run_interruptibly(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``. On a signal it is cancelled, cleans up after itself, and the exit status is 130.

    Of several errors at once (a task group's) the first is raised, since a person needs one.
    """
    try:
        return asyncio.run(_interruptible(work))
    except ExceptionGroup as group:
        raise _first_of(group) from group


async def serve(entering: AbstractAsyncContextManager[R], on_started: Callable[[R], None]) -> None:
    """Enter, run until a signal, leave; faster after a second one.

    A signal while it enters ends it too: NATS may never be there.
    """
    stop, hurry = asyncio.Event(), asyncio.Event()
    with stop_on_signals(stop, hurry):
        entered = await _unless_stopped(entering.__aenter__(), stop)
        if entered is None:
            return
        hurrying = asyncio.create_task(_hurry(entered, hurry), name="hurry")
        try:
            on_started(entered)
            await entered.run(stop)
        finally:
            await entering.__aexit__(None, None, None)
            hurrying.cancel()


@contextlib.contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Without an event loop: SIGTERM raises ``KeyboardInterrupt``, too, so that what was started is ended first."""

    def interrupt(*_: object) -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a script
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)  # whose handler may be that of an event loop, which ends its tasks first

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def _hurry(entered: Runnable, hurry: asyncio.Event) -> None:
    await hurry.wait()
    entered.hurry()


@contextlib.asynccontextmanager
async def started(role: Role) -> AsyncIterator[Role]:
    """A role that has started, and that is closed whatever happens."""
    try:
        await role.start()
        yield role
    finally:
        await role.close()


def _first_of(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def _interruptible(work: Coroutine[Any, Any, T]) -> T:
    stop = asyncio.Event()
    with stop_on_signals(stop):
        result = await _unless_stopped(work, stop)
    if stop.is_set():
        raise click.exceptions.Exit(INTERRUPTED)
    return result  # type: ignore[return-value]  # None only after a stop, which was raised above


async def _unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """The result, or None once ``stop`` is set and ``work`` has been cancelled (unless it ended all the same)."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    if working.done():
        return working.result()
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return await working
    return None
