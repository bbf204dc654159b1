"""The background tasks of a role."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import pytest

from headway.roles.supervisor import Supervisor, stop_on_signals

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def fail() -> None:
    raise ValueError("broken")


async def test_the_failure_of_a_task_ends_the_role() -> None:
    supervisor = Supervisor("test")
    supervisor.spawn("broken", fail())
    with pytest.raises(ValueError, match="broken"):
        await supervisor.run_until(asyncio.Event())
    assert supervisor.has_failed
    await supervisor.close()


async def test_closing_ends_the_tasks_that_begin_meanwhile_too() -> None:
    supervisor = Supervisor("test")
    began = asyncio.Event()

    async def begin_another() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            supervisor.spawn("another", asyncio.sleep(3600))

    supervisor.spawn("first", begin_another())
    await supervisor.run_until(began)
    await supervisor.close()
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("test:")] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_asks_the_role_to_stop(number: signal.Signals) -> None:
    stop = asyncio.Event()
    with stop_on_signals(stop):
        os.kill(os.getpid(), number)
        async with asyncio.timeout(10):
            await stop.wait()


async def test_a_second_signal_asks_it_to_hurry() -> None:
    stop, hurry = asyncio.Event(), asyncio.Event()
    with stop_on_signals(stop, hurry):
        os.kill(os.getpid(), signal.SIGINT)
        async with asyncio.timeout(10):
            await stop.wait()
        assert not hurry.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        async with asyncio.timeout(10):
            await hurry.wait()


async def test_a_terminal_that_closes_asks_to_stop_however_often_it_says_so() -> None:
    stop, hurry, all_heard = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, all_heard.set)
    with stop_on_signals(stop, hurry):
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGUSR1):
            signal.raise_signal(number)
        async with asyncio.timeout(10):
            await all_heard.wait()
        assert (stop.is_set(), hurry.is_set()) == (True, False)
    loop.remove_signal_handler(signal.SIGUSR1)


async def test_what_was_started_to_outlive_its_terminal_does() -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals(asyncio.Event()):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)


async def test_closing_ends_a_task_that_missed_its_cancellation() -> None:
    """As `asyncio.wait_for` makes one miss it."""
    supervisor = Supervisor("test")
    waiting = asyncio.Event()

    async def misses_one() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            waiting.set()
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    supervisor.spawn("deaf", misses_one())
    await waiting.wait()
    async with asyncio.timeout(20):
        await supervisor.close()
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("test:")] == []
