"""Real servers and clients on free ports, and a handler that keeps a record."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.core.lease_messages import Hello, LeaderMessage, Welcome, WorkerMessage
from headway.lease.client import LeaseClient
from headway.lease.config import LeaseConfig
from headway.lease.server import LeaseServer


class Recorder:
    """A handler that welcomes everybody and writes down what comes."""

    def __init__(self) -> None:
        self.server: LeaseServer
        self.hellos: dict[int, Hello] = {}
        self.messages: list[WorkerMessage] = []
        self.gone: list[int] = []
        self.on_hello: Callable[[int], None] = lambda stream: self.server.send(stream, Welcome(1, 15.0))

    def connected(self, stream: int, hello: Hello) -> None:
        self.hellos[stream] = hello
        self.on_hello(stream)

    def received(self, stream: int, message: WorkerMessage) -> None:
        self.messages.append(message)

    def disconnected(self, stream: int) -> None:
        self.gone.append(stream)

    @property
    def streams(self) -> list[int]:
        """Open now."""
        return [stream for stream in self.hellos if stream not in self.gone]


class RunningClient:
    """A client whose messages are collected by a task."""

    def __init__(self, client: LeaseClient) -> None:
        self.client = client
        self.received: list[LeaderMessage] = []
        self.task = asyncio.create_task(self._collect(), name="collect")

    async def _collect(self) -> None:
        async for message in self.client.messages():
            self.received.append(message)

    async def stop(self) -> None:
        await self.client.close()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Stage:
    """Starts servers and clients; everything ends with the test."""

    def __init__(self, parts: AsyncExitStack) -> None:
        self._parts = parts
        self.config = LeaseConfig(lease_listen="127.0.0.1:0", lease_max_backoff_seconds=0.2)

    async def server(self, follows: str | bool = False, **changes: Any) -> Recorder:
        """``follows``: the leader's address, or True if it is not known."""
        recorder = Recorder()
        recorder.server = LeaseServer(replace(self.config, **changes), recorder)
        if follows:
            recorder.server.follow(follows if isinstance(follows, str) else None)
        await self._parts.enter_async_context(recorder.server)
        return recorder

    def client(self, address: str, hello: Callable[[], Hello] | None = None, **changes: Any) -> RunningClient:
        config = replace(self.config, lease_address=address, **changes)
        running = RunningClient(LeaseClient(config, hello or make_hello))
        self._parts.push_async_callback(running.stop)
        return running


def make_hello(incarnation: str = "inc") -> Hello:
    return Hello(incarnation, "pod-0", "m", page_size=16, num_pages=100, max_num_seqs=4)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as parts:
        yield Stage(parts)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, str]]:
    """The TLS settings of a certificate for 127.0.0.1, by a certificate authority that is named.

    Authorities of one name are the same only within one ``folder``; ``num_days`` may be negative: it has expired.
    """

    def make(authority: str, folder: Path | None = None, name: str = "own", num_days: int = 2) -> dict[str, str]:
        return _certificate(folder or tmp_path_factory.mktemp(authority), authority, name, num_days)

    return make


def _certificate(folder: Path, authority: str, name: str, num_days: int) -> dict[str, str]:
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    if not (folder / "ca.pem").exists():
        ca = ["-keyout", "ca.key", "-out", "ca.pem"]
        _openssl(folder, "req", "-x509", *key, "-days", "2", "-subj", f"/CN={authority}", *ca)
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1")
    _openssl(folder, "req", *key, "-subj", "/CN=own", "-keyout", f"{name}.key", "-out", f"{name}.csr")
    signer = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "san"]
    request = ["-req", "-in", f"{name}.csr", "-days", str(num_days)]
    _openssl(folder, "x509", *request, *signer, "-out", f"{name}.pem")
    names = {"lease_ca_file": "ca.pem", "lease_cert_file": f"{name}.pem", "lease_key_file": f"{name}.key"}
    return {setting: str(folder / file) for setting, file in names.items()}


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
