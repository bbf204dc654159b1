"""The whole of `headway tune` with a tiny model: the command, its engine in a process of its own, what it writes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from headway.core.scheduler_config import Batching, PrefixSharing, SchedulerConfig
from headway.settings import Settings
from loadtest.targets.engine_child import open_engine
from loadtest.tuning.knobs import Goal
from loadtest.tuning.search import Limits
from loadtest.tuning.tune import TuneOptions, comparable, tune
from loadtest.workloads.requests import Request

REQUESTS = tuple(Request(tuple(3 + i % 50 for i in range(n)), num_output_tokens=n, gap=1.0) for n in (8, 16, 24))


def settings(model: Path) -> Settings:
    return Settings.load({"model": str(model), "kv_memory": "4MiB", "num_threads": "1"})


def options(tpot: float, minutes: float = 5.0) -> TuneOptions:
    return TuneOptions("tiny", lambda _: REQUESTS, Goal(tpot), minutes, run_seconds=0.05, limits=Limits(16))


def command(model: Path, workload: Path, *arguments: str) -> list[str]:
    common = ["--model", str(model), "--kv-memory", "4MiB", "--num-threads", "1", "--workload", str(workload)]
    return [sys.executable, "-m", "headway", "tune", *common, "--run-seconds", "0.05", *arguments]


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    file = tmp_path / "workload.json"
    requests = [{"prompt_ids": list(r.prompt_token_ids), "out_len": r.num_output_tokens} for r in REQUESTS]
    file.write_text(json.dumps({"requests": requests}))
    return file


def test_a_goal_that_everything_keeps_is_searched_to_its_end(tiny_model):
    said: list[str] = []
    with tune(options(tpot=1000.0), settings(tiny_model), said.append, lambda candidate: None) as tuned:
        assert tuned.is_complete
    assert tuned.best is not None
    assert tuned.best.keeps
    sizes = {candidate.knobs.max_num_seqs for candidate in tuned.candidates}
    assert {8, 16} <= sizes
    assert max(sizes) == 16
    assert any(candidate.knobs.tpot_target == 1000.0 for candidate in tuned.candidates)


def test_no_run_begins_when_the_time_is_up(tiny_model):
    with tune(options(tpot=1000.0, minutes=1e-9), settings(tiny_model), print, lambda candidate: None) as tuned:
        assert not tuned.is_complete
        assert tuned.best is None


def test_requests_that_come_again_cost_the_same_again():
    given = SchedulerConfig(prefix_sharing=PrefixSharing.ALL, batching=Batching.STATIC, max_num_seqs=3)
    measured = comparable(given)
    assert (measured.prefix_sharing, measured.batching) == (PrefixSharing.OFF, Batching.CONTINUOUS)
    assert measured.max_num_seqs == 3


def test_one_engine_serves_all_candidates(tiny_model):
    chosen = settings(tiny_model)
    with open_engine(chosen.engine, chosen.scheduler, print) as engine:
        assert engine.ready.max_num_seqs == chosen.scheduler.max_num_seqs
        pid = engine.call(_pid)
        engine.reschedule(chosen.scheduler)
        assert engine.call(_pid) == pid


def _pid(engine: object) -> int:
    return os.getpid()


def test_the_command_writes_what_it_found(tiny_model, workload, tmp_path):
    files = [tmp_path / name for name in ("values.yaml", "out.json", "front.svg")]
    flags = ["--tpot", "1000", "--most-seqs", "8", "--values", str(files[0]), "--json", str(files[1]), "--plot"]
    ran = subprocess.run(command(tiny_model, workload, *flags, str(files[2])), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "headway worker --max-num-seqs" in ran.stdout
    best = json.loads(files[1].read_text())["best"]["settings"]
    assert yaml.safe_load(files[0].read_text())["workerDefaults"]["settings"]["scheduler"] == best
    assert "</svg>" in files[2].read_text()


def test_a_goal_that_nothing_keeps_is_a_failure(tiny_model, workload):
    ran = subprocess.run(
        command(tiny_model, workload, "--tpot", "1e-9", "--most-seqs", "8"), capture_output=True, text=True
    )
    assert ran.returncode == 1
    assert "nothing keeps" in ran.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_found_before_an_interrupt_is_kept(number, tiny_model, workload, tmp_path):
    out = tmp_path / "out.json"
    arguments = command(tiny_model, workload, "--tpot", "1000", "--json", str(out), "--run-seconds", "1")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        next(line for line in running.stderr if "tokens/s" in line)
        running.send_signal(number)
        text, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert "not at its end" in text
    assert json.loads(out.read_text())["candidates"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_who_does_not_wait_for_the_engine_to_end_has_what_was_found(tiny_model, workload, tmp_path, eventually):
    files = [tmp_path / name for name in ("out.json", "values.yaml")]
    flags = ["--tpot", "1000", "--run-seconds", "1", "--json", str(files[0]), "--values", str(files[1])]
    running = await asyncio.create_subprocess_exec(
        *command(tiny_model, workload, *flags), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    assert running.stderr is not None
    while b"tokens/s" not in (line := await running.stderr.readline()):
        assert line, "it ended by itself"
    engine = only_child(running.pid)
    os.kill(engine, signal.SIGSTOP)  # so that it would take long
    running.send_signal(signal.SIGINT)
    await eventually(files[1].exists)
    running.send_signal(signal.SIGINT)
    rest = await running.stderr.read()
    assert await running.wait() == 130
    assert b"Traceback" not in rest
    assert json.loads(files[0].read_text())["candidates"]
    assert not is_running(engine)


def only_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
