"""Engine children that start at once, by forking a process that has loaded torch already.

    worker ──spawns──▶ stand-in ──its socket──▶ template ──fork──▶ engine child: `headway.engine.main`

Loading torch and transformers takes some seconds of a core. A test that kills sixty workers would wait for little
else. So the workers here are told that their Python interpreter is a small stand-in: it hands its socket to
the template, lives as long as the child, and ends as the child does; if it is killed, the template kills the child. All
that runs is the code of the product. What differs is only where its modules come from; the long soak does without.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.faults.process import Process, until

START_SECONDS = 120.0
REAP_SECONDS = 0.01
MAX_REQUEST_BYTES = 1 << 20
STDERR = 2

STAND_IN = """#!{python} -IS
import ctypes, json, os, signal, socket, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
argv = sys.argv[1:]
fd = int(argv[argv.index("--fd") + 1])
if os.getppid() != int(argv[argv.index("--parent") + 1]):
    sys.exit(0)
template = socket.socket(socket.AF_UNIX)
template.connect({address!r})
socket.send_fds(template, [json.dumps({{"environ": dict(os.environ), "fd": fd}}).encode()], [fd, 2])
os.close(fd)
pid = int(template.recv(64))
with open(sys.argv[0] + "." + str(os.getpid()), "w") as file:
    file.write(str(pid))
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
while True:
    status = int(template.recv(64) or 1)
    if status >= 0:
        sys.exit(status)
    signal.signal(-status, signal.SIG_DFL) if status != -9 else None
    os.kill(os.getpid(), -status)
"""


@dataclass(frozen=True)
class Template:
    """A running template."""

    interpreter: Path
    """What a worker takes for its Python."""

    def engine_of(self, stand_in: int) -> int | None:
        """The process id of the engine behind that stand-in; None before there is one."""
        with suppress(OSError, ValueError):
            return int(self.interpreter.with_name(f"{self.interpreter.name}.{stand_in}").read_text())
        return None

    def worker_command(self, *arguments: str) -> list[str]:
        """``headway worker`` with such engine children."""
        program = f"import sys; sys.executable = {str(self.interpreter)!r}; from headway.cli import main; main()"
        return [sys.executable, "-c", program, "worker", *arguments]


@asynccontextmanager
async def engine_template(folder: Path) -> AsyncIterator[Template]:
    """One serves any number of workers."""
    address = folder / "template.sock"
    interpreter = folder / "python"
    interpreter.write_text(STAND_IN.format(python=sys.executable, address=str(address)))
    interpreter.chmod(interpreter.stat().st_mode | stat.S_IXUSR)
    process = Process([sys.executable, "-m", "loadtest.faults.template", str(address)], folder / "template.log")
    try:
        await until(lambda: address.exists() or not process.is_running, START_SECONDS, "the template")
        assert process.is_running, process.said
        yield Template(interpreter)
    finally:
        await process.close()


@dataclass(frozen=True)
class _Child:
    pid: int
    stand_in: socket.socket


class _Server:
    """The loop of the template: one thread, so that forking is safe."""

    def __init__(self, address: str) -> None:
        self._children: dict[int, _Child] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address + ".new")
        self._listener.listen(64)
        os.rename(address + ".new", address)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select(REAP_SECONDS if self._children else None):
                if key.data is None:
                    self._start(self._listener.accept()[0])
                else:
                    self._forsake(key.data)
            self._reap()

    def _start(self, stand_in: socket.socket) -> None:
        message, fds, _, _ = socket.recv_fds(stand_in, MAX_REQUEST_BYTES, 2)
        if len(fds) < 2:  # it was killed before it had asked
            return stand_in.close()
        if (pid := os.fork()) == 0:
            self._become_engine(json.loads(message), fds)
        for fd in fds:
            os.close(fd)
        child = self._children[pid] = _Child(pid, stand_in)
        stand_in.send(b"%d" % pid)
        self._selector.register(stand_in, selectors.EVENT_READ, child)

    def _become_engine(self, request: dict[str, Any], fds: list[int]) -> None:
        """Never returns."""
        connection, stderr = fds
        self._listener.close()
        self._selector.close()
        for child in self._children.values():
            child.stand_in.close()
        os.dup2(stderr, STDERR)
        os.environ.clear()
        os.environ.update(request["environ"])
        sys.argv = ["engine", "--fd", str(connection), "--parent", str(os.getppid())]
        status = 1
        try:
            from headway.engine.main import main

            main()
            status = 0
        except SystemExit as exc:
            status = exc.code if isinstance(exc.code, int) else 0
        finally:
            os._exit(status)

    def _forsake(self, child: _Child) -> None:
        """The stand-in is gone, and so is whoever it stood for."""
        self._selector.unregister(child.stand_in)
        child.stand_in.close()
        if child.pid in self._children:
            os.kill(child.pid, signal.SIGKILL)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            child = self._children.pop(pid)
            with suppress(OSError):
                child.stand_in.send(b"%d" % os.waitstatus_to_exitcode(status))


def _serve(address: str) -> None:
    import gc

    import torch
    import transformers.models.llama.modeling_llama  # noqa: F401 (loaded for the children)

    import headway.engine.build
    import headway.engine.serve  # noqa: F401 (loaded for the children)

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    _Server(address).run()


if __name__ == "__main__":
    _serve(sys.argv[1])
