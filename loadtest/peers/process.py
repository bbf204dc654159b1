"""A peer's process, as a system that `bench` can measure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import loadtest
from headway.core.job import FinishReason
from headway.engine.builtin_models import BUILTIN_MODELS, builtin_gguf
from headway.engine.config import EngineConfig
from loadtest.peers.install import peer_python
from loadtest.peers.protocol import Answer, Task, TaskRequest, Times
from loadtest.recording import Recording, StepLog, Timeline
from loadtest.requests import Request
from loadtest.systems import BenchError

STOP_SECONDS = 20.0


class Peer(StrEnum):
    VLLM = "vllm"
    LLAMACPP = "llamacpp"
    """Its bf16 weights."""
    LLAMACPP_Q8 = "llamacpp-q8"
    """Eight-bit weights."""
    TRANSFORMERS = "transformers"

    @property
    def environment(self) -> Path:
        """The interpreter that it runs in."""
        if self is Peer.TRANSFORMERS:
            return Path(sys.executable)
        return peer_python("llamacpp" if self is Peer.LLAMACPP_Q8 else self)


@contextmanager
def open_peer(peer: Peer, model_source: str, config: EngineConfig) -> Iterator[PeerProcess]:
    """Ready when this returns. Raises `BenchError` if it is not installed or does not start."""
    python = peer.environment
    if not python.is_file():
        raise BenchError(f"{peer} is not installed; run: python -m loadtest.peers.install {python.parent.parent.name}")
    with tempfile.TemporaryDirectory(prefix="headway-peer-") as path:
        # A folder with this package and nothing else: a peer must find its own libraries, not ours.
        (Path(path) / "loadtest").symlink_to(Path(loadtest.__file__).parent)
        process = PeerProcess(peer, [str(python), "-m", *_runner(peer, model_source, config)], Path(path))
        try:
            process.wait_until_ready()
            yield process
        finally:
            process.close()


def _runner(peer: Peer, model_source: str, config: EngineConfig) -> list[str]:
    """The runner's module and its arguments."""
    match peer:
        case Peer.LLAMACPP:
            return ["loadtest.peers.llamacpp_runner", _gguf(config), "--data-type", "bf16"]
        case Peer.LLAMACPP_Q8:
            return ["loadtest.peers.llamacpp_runner", _gguf(config), "--data-type", "q8_0"]
        case Peer.VLLM | Peer.TRANSFORMERS:
            return [f"loadtest.peers.{peer}_runner", model_source]


def _gguf(config: EngineConfig) -> str:
    if config.model in BUILTIN_MODELS:
        return str(builtin_gguf(config.model))
    if not config.model.endswith(".gguf"):
        raise BenchError(f"llama.cpp needs a GGUF file, and model is {config.model}")
    return config.model


class PeerProcess:
    """Its standard error goes to a file in ``folder``, whose end is shown if it dies."""

    def __init__(self, peer: Peer, command: Sequence[str], folder: Path) -> None:
        self.peer = peer
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
                env={**os.environ, "PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1"} | preloads(peer),
            )

    def wait_until_ready(self) -> None:
        self.facts = json.loads(self._read())["ready"]

    def run(self, requests: Sequence[Request], due_at: Sequence[float]) -> Recording:
        task = Task(
            [
                TaskRequest(list(request.prompt_token_ids), request.num_output_tokens, due)
                for request, due in zip(requests, due_at, strict=True)
            ]
        )
        assert self._process.stdin is not None
        self._process.stdin.write(task.to_line())
        self._process.stdin.flush()
        times = Answer.from_line(self._read()).times
        return Recording(
            [_timeline(request, times) for request, times in zip(task.requests, times, strict=True)], StepLog(), {}
        )

    def close(self) -> None:
        """It ends with its input; killed if it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            last = self._log.read_text(errors="replace").splitlines()[-20:]
            raise BenchError(f"{self.peer} ended: " + "\n".join(last))
        return line


def preloads(peer: Peer) -> dict[str, str]:
    """What vLLM's documentation has its users preload on a CPU, as far as it is installed."""
    if peer is not Peer.VLLM:
        return {}
    libraries = [*peer_python(peer).parent.parent.glob("lib/libiomp5.so"), *_tcmalloc()]
    return {"LD_PRELOAD": ":".join(map(str, libraries))} if libraries else {}


def _tcmalloc() -> list[Path]:
    """Debian's libtcmalloc-minimal4."""
    found = sorted(Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4"))
    return found[:1]


def _timeline(request: TaskRequest, times: Times) -> Timeline:
    timeline = Timeline(request.due_at, request.num_output_tokens, times.num_tokens)
    timeline.first_token_at, timeline.last_token_at = times.first_token_at, times.last_token_at
    if times.ended_at is not None:
        timeline.end(FinishReason.LENGTH, times.ended_at)
    return timeline
