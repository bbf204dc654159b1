"""A benchmark that is ended in the middle leaves no process behind: real ones, of a tiny model."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import uuid
from pathlib import Path

import pytest

MARK = "BENCH_TEST_MARK"
START_SECONDS = 120.0


def marked(mark: str) -> list[str]:
    """The commands of all processes that descend from the one that was given this mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue  # it is gone, or another user's
    return found


@pytest.fixture
def hour_long(tmp_path: Path) -> Path:
    """At one request per second, the second one is due in an hour."""
    requests = [{"prompt_ids": [3, 4, 5], "out_len": 2, "gap": gap} for gap in (0.0, 3600.0)]
    path = tmp_path / "hour.json"
    path.write_text(json.dumps({"requests": requests}))
    return path


@pytest.fixture
def seconds_long(tmp_path: Path) -> Path:
    """At one request per second; 30 rounds of it are a minute."""
    requests = [{"prompt_ids": [3, 4, 5], "out_len": 2, "gap": gap} for gap in (0.0, 2.0)]
    path = tmp_path / "seconds.json"
    path.write_text(json.dumps({"requests": requests}))
    return path


async def test_the_rounds_before_the_one_that_was_interrupted_are_reported(seconds_long, tiny_model, tmp_path):
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    arguments = ["--workload", str(seconds_long), "--json", str(out), "--html", str(page), "--runs", "30"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headway", "bench", "--arrivals", "poisson", "--rate", "1", *arguments),
        env={**os.environ, "HEADWAY_MODEL": str(tiny_model), "HEADWAY_KV_MEMORY": "1MiB"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said = b""
    async with asyncio.timeout(START_SECONDS):
        while b"round 2" not in said:
            said += await process.stderr.readline()
    process.send_signal(signal.SIGINT)
    shown, rest = await process.communicate()
    assert process.returncode == 130
    assert b"round 2 does not count: interrupted" in rest
    assert b"Traceback" not in rest
    assert b"2 of 2 requests" in shown
    report = json.loads(out.read_text())
    assert (report["stopped_by"], len(report["runs"])) == ("interrupted", 1)
    assert "stopped by" in page.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_nothing_is_left_of_a_benchmark_that_was_ended(number, hour_long, tiny_model, eventually):
    mark = uuid.uuid4().hex
    arguments = ["--target", "nats", "--peers", "transformers", "--runs", "1", "--workload", str(hour_long)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headway", "bench", "--arrivals", "poisson", "--rate", "1", *arguments),
        env={**os.environ, MARK: mark, "HEADWAY_MODEL": str(tiny_model), "HEADWAY_KV_MEMORY": "1MiB"},
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    said = b""
    async with asyncio.timeout(START_SECONDS):
        while b"round 1" not in said:
            line = await process.stderr.readline()
            assert line, f"it ended by itself: {said.decode()}"
            said += line
    running = " ".join(marked(mark))
    assert all(part in running for part in ("nats-server", "role_child", "engine.main", "transformers_runner"))
    os.killpg(process.pid, number)
    rest = (await process.stderr.read()).decode()
    status = await process.wait()
    assert status == (130 if number != signal.SIGKILL else -signal.SIGKILL)
    if number != signal.SIGKILL:
        assert "ending what was started" in rest
        assert "Traceback" not in rest
    await eventually(lambda: marked(mark) == [], seconds=60.0)
