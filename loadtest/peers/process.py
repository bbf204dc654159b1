"""A peer's process, as a system that `bench` can measure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import loadtest
from headway.core.job import FinishReason
from headway.engine.builtin_models import BUILTIN_MODELS, builtin_gguf
from headway.engine.config import EngineConfig
from loadtest.errors import BenchError, BenchInputError
from loadtest.machine import session_cpu_seconds
from loadtest.peers.catalogue import Peer, Weights
from loadtest.peers.install import peer_python
from loadtest.peers.protocol import Answer, Task, TaskRequest, Times
from loadtest.recording import Recording, StepLog, Timeline
from loadtest.workloads.plan import ClosedLoop, Plan
from loadtest.workloads.requests import Request

STOP_SECONDS = 5.0
"""From the end of its input to SIGKILL."""
NUM_LOG_LINES = 20


@contextmanager
def open_peer(peer: Peer, model_source: str, config: EngineConfig, longest: int) -> Iterator[PeerProcess]:
    """Ready when this returns; ``longest``: tokens of the longest request.

    Raises `BenchError` if it is not installed or does not start.
    """
    peer.check()
    model = _gguf(config) if peer.weights is Weights.GGUF else model_source
    with tempfile.TemporaryDirectory(prefix="headway-peer-") as path:
        # A folder with this package and nothing else: a peer must find its own libraries, not ours.
        (Path(path) / "loadtest").symlink_to(Path(loadtest.__file__).parent)
        process = PeerProcess(peer.name, peer.command(model, longest), Path(path), preloads(peer))
        try:
            process.wait_until_ready()
            yield process
        finally:
            process.close()


def _gguf(config: EngineConfig) -> str:
    if config.model in BUILTIN_MODELS:
        return str(builtin_gguf(config.model))
    if not config.model.endswith(".gguf"):
        raise BenchInputError(f"llama.cpp needs a GGUF file, and model is {config.model}")
    return config.model


class PeerProcess:
    """Its standard error goes to a file in ``folder``, whose end is shown if it dies.

    It and its children are a session of their own, which only gets the CPU while it is measured: some libraries look
    for work all the time, and others' turns must not pay for that.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.facts: dict[str, Any] = {}
        """What it said of itself when it was ready."""
        self._log = folder / "stderr"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1", **environment},
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        self.facts = json.loads(self._read())["ready"]
        self._signal(signal.SIGSTOP)

    def run(self, requests: Sequence[Request], plan: Plan) -> Recording:
        """Open loops only: a peer gets its whole task at once. It knows no cancels either."""
        assert not isinstance(plan, ClosedLoop)
        task = Task(
            [
                TaskRequest(list(request.prompt_token_ids), request.num_output_tokens, due_at)
                for request, due_at in zip(requests, plan, strict=True)
            ]
        )
        spent = session_cpu_seconds(self._process.pid)
        self._signal(signal.SIGCONT)
        times = self._ask(task).times
        self._signal(signal.SIGSTOP)
        timelines = [_timeline(*of_one) for of_one in zip(requests, plan, times, strict=True)]
        return Recording(timelines, StepLog(), {self.name: session_cpu_seconds(self._process.pid) - spent})

    def close(self) -> None:
        """It ends with its input; killed with all its children if it does not."""
        self._signal(signal.SIGCONT)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _ask(self, task: Task) -> Answer:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(task.to_line())
            self._process.stdin.flush()
        return Answer.from_line(self._read())

    def _signal(self, number: signal.Signals) -> None:
        """To all of its session that still live."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            last = self._log.read_text(errors="replace").splitlines()[-NUM_LOG_LINES:]
            raise BenchError(f"{self.name} ended: " + "\n".join(last))
        return line


def preloads(peer: Peer) -> dict[str, str]:
    """What vLLM's documentation has its users preload on a CPU, as far as it is installed."""
    if peer.environment != "vllm":
        return {}
    libraries = [*peer_python(peer.environment).parent.parent.glob("lib/libiomp5.so"), *_tcmalloc()]
    return {"LD_PRELOAD": ":".join(map(str, libraries))} if libraries else {}


def _tcmalloc() -> list[Path]:
    """Debian's libtcmalloc-minimal4."""
    found = sorted(Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4"))
    return found[:1]


def _timeline(request: Request, due_at: float, times: Times) -> Timeline:
    timeline = Timeline.of(request)
    timeline.send(due_at, due_at)
    timeline.num_tokens, timeline.gaps = times.num_tokens, times.gaps
    timeline.first_token_at, timeline.last_token_at = times.first_token_at, times.last_token_at
    if times.ended_at is not None:
        timeline.end(FinishReason.LENGTH, times.ended_at)
    return timeline
