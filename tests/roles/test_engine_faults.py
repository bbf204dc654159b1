"""Faults inside the engine child, through seams that real faults come through; neighbours and process live on."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from safetensors.torch import load_file, save_file

from headway.engine import process
from headway.lease.health import Probe
from headway.roles import engine_host
from headway.roles import worker as worker_role

pytestmark = pytest.mark.asyncio(loop_scope="session")
Job = Callable[..., dict[str, Any]]

TENANT = "acme"
MARK = 3 + ord("~") - 32
"""The token of "~", whose embedding is NaN."""
LONG = 600

PLUGIN = """
import sys
if "headway.engine.main" in getattr(sys, "orig_argv", []):
    {code}
"""
"""Python runs `sitecustomize` before the child's main module."""
DIES = """
    import os, pathlib, signal
    starts = pathlib.Path({counter!r})
    count = len(starts.read_bytes()) if starts.exists() else 0
    starts.write_bytes(b"x" * (count + 1))
    if count < {times}:
        os.kill(os.getpid(), signal.SIGKILL)
"""
RAISES = """
    import headway.engine.build
    from headway.engine.attention import register_kernel
    from headway.engine.paged_reference import paged_attention_reference
    def kernel(query, key, *rest):
        if key.isnan().any():
            raise RuntimeError("illegal instruction")
        return paged_attention_reference(query, key, *rest)
    headway.engine.build.use_native_kernels = lambda *_: False
    register_kernel("cpu", kernel)
"""


@pytest.fixture(scope="session")
def marked_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with one broken row in its weights file."""
    folder = tmp_path_factory.mktemp("marked") / "model"
    shutil.copytree(tiny_model, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][MARK] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let every engine child run this code first, in an interpreter of its own."""

    def plug(code: str) -> None:
        monkeypatch.setattr(process, "INTERPRETER", sys.executable)
        (tmp_path / "sitecustomize.py").write_text(PLUGIN.format(code=code.strip()))
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    return plug


@pytest_asyncio.fixture(loop_scope="session", params=["logits are NaN", "kernel raises"])
async def faulty(
    request: pytest.FixtureRequest, parts: Any, marked_model: Path, plug_in: Callable[[str], None]
) -> AsyncIterator[Any]:
    if request.param == "kernel raises":
        plug_in(RAISES)
    await parts.queue()
    await parts.worker(engine={"model": str(marked_model)})
    yield parts


async def test_a_job_at_fault_ends_alone_in_the_same_engine(faulty: Any, job: Job) -> None:
    wire = faulty.wire
    for name in ("first", "second"):
        await wire.publish(TENANT, job(id=name, max_tokens=LONG, logit_bias={str(MARK): -100}))
    await wire.has_tokens(TENANT, "second")
    logs = {
        "prompt": await wire.run(TENANT, "prompt", prompt="so ~ then"),
        "output": await wire.run(TENANT, "output", max_tokens=LONG, logit_bias={str(MARK): 100}),
    }
    logs |= {name: await wire.ended(TENANT, name) for name in ("first", "second")}
    for name in ("prompt", "output"):
        assert logs[name].error == ("engine_error", None)
        assert logs[name].end["finish_reason"] == "error"
        assert logs[name].kinds[0] == "attempt"
        assert len(logs[name].of_kind("attempt")) == 1
    assert logs["output"].token_ids == [MARK]
    for name in ("first", "second"):
        assert logs[name].kinds == ["attempt", "tokens", "end"]
        assert len(logs[name].token_ids) == LONG


async def test_an_engine_that_dies_at_its_start_is_started_until_it_serves(
    parts: Any,
    job: Job,
    plug_in: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., Awaitable[None]],
) -> None:
    """Liveness fails after so many starts in a row, and holds again once one has worked."""
    monkeypatch.setattr(engine_host, "FIRST_PAUSE_SECONDS", 0.01)
    num_starts = engine_host.MAX_FAILED_STARTS + 1
    plug_in(DIES.format(counter=str(tmp_path / "starts"), times=num_starts))
    await parts.queue()
    liveness: list[bool] = []
    health: list[Any] = []
    starting = asyncio.create_task(parts.worker(on_probes=health.append))
    await eventually(lambda: bool(health), seconds=60)
    while not starting.done():
        liveness.append(health[0].is_ok(Probe.LIVENESS))
        await asyncio.sleep(0.01)
    worker = await starting
    assert liveness[0]
    assert not all(liveness)
    assert worker.health.is_ok(Probe.LIVENESS)
    assert len((tmp_path / "starts").read_bytes()) == num_starts + 1
    log = await parts.wire.run(TENANT, "after")
    assert log.end["finish_reason"] == "length"


async def test_an_engine_that_is_killed_again_and_again_while_idle_is_no_reason_to_end_the_process(
    parts: Any, eventually: Callable[..., Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_host, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(worker_role, "MAX_FAILED_STARTS", 2)
    await parts.queue()
    worker = await parts.worker()
    for _ in range(3):
        former = worker.engine.pid
        os.kill(former, signal.SIGKILL)
        await eventually(lambda former=former: worker.engine.pid not in (None, former), seconds=60)
        await eventually(lambda: worker.stats is not None, seconds=60)
        assert worker.health.is_ok(Probe.LIVENESS)
