"""The command."""

from __future__ import annotations

import json
import logging

import pytest
import torch

from loadtest import gpu_check
from loadtest.gpu import bench as bench_module
from loadtest.gpu.checks import Finding, Item, Part
from loadtest.gpu.parts import PARTS
from loadtest.gpu_check import find_obstacle, main
from loadtest.row import Aim


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_passes_nothing(capsys, tmp_path):
    assert main(["--json", str(tmp_path / "check.json")]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "no CUDA GPU" in err
    assert "nothing was checked" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [["--only", "speed"], ["--repeats", "0"], ["--repeats", "x"], ["--minutes", "0"], ["--minutes", "nan"], ["now"]],
    ids=" ".join,
)
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2


@pytest.fixture
def any_gpu(monkeypatch):
    monkeypatch.setattr(gpu_check, "find_obstacle", lambda: None)
    monkeypatch.setattr(gpu_check, "describe", lambda device: {"gpu": "none"})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(bench_module.Bench, "release", lambda self: None)
    logger = logging.getLogger("headway")
    before = list(logger.handlers)
    yield
    logger.handlers = before


def put_part(monkeypatch, name, findings, min_seconds=0.0):
    items = [Item("thing", ("error",), Aim(1.0, is_least=False))]
    monkeypatch.setitem(PARTS, name, Part(name, lambda bench: items, lambda bench: iter(findings), min_seconds))


@pytest.mark.parametrize(("error", "status"), [(0.5, 0), (1.5, 1)])
def test_the_exit_status_and_the_file_say_whether_all_passed(any_gpu, monkeypatch, tmp_path, capsys, error, status):
    put_part(monkeypatch, "bandwidth", [Finding("thing", {"error": 0.0})])
    put_part(monkeypatch, "prefill", [Finding("thing", {"error": error})])
    assert main(["--only", "bandwidth", "prefill", "--json", str(tmp_path / "check.json")]) == status
    written = json.loads((tmp_path / "check.json").read_text())
    assert written["passed"] is (status == 0)
    assert [(check["part"], check["figures"]) for check in written["checks"]] == [
        ("bandwidth", {"error": 0.0}),
        ("prefill", {"error": error}),
    ]
    assert ("FAIL: prefill: thing" in capsys.readouterr().out) == (status == 1)


def test_what_does_not_fit_into_the_time_is_reported_as_not_run(any_gpu, monkeypatch, tmp_path, capsys):
    put_part(monkeypatch, "bandwidth", [Finding("thing", {"error": 0.0})])
    put_part(monkeypatch, "steps", [Finding("thing", {"error": 0.0})], min_seconds=60.0)
    assert main(["--only", "bandwidth", "steps", "--minutes", "0.5", "--json", str(tmp_path / "check.json")]) == 1
    checks = json.loads((tmp_path / "check.json").read_text())["checks"]
    assert [check["verdict"] for check in checks] == ["ok", "not run"]
    assert checks[1]["figures"] == {"error": None}
    assert "not run: steps: thing" in capsys.readouterr().out


def test_the_file_of_a_run_that_is_killed_names_what_was_still_to_come(any_gpu, monkeypatch, tmp_path):
    def kill(bench):
        raise KeyboardInterrupt
        yield

    put_part(monkeypatch, "bandwidth", [Finding("thing", {"error": 0.0})])
    monkeypatch.setitem(PARTS, "steps", Part("steps", PARTS["bandwidth"].items, kill, 0.0))
    with pytest.raises(KeyboardInterrupt):
        main(["--only", "bandwidth", "steps", "--json", str(tmp_path / "check.json")])
    written = json.loads((tmp_path / "check.json").read_text())
    assert [check["verdict"] for check in written["checks"]] == ["ok", "not run"]
    assert written["passed"] is False


def test_a_check_that_hangs_beyond_its_time_would_end_itself(any_gpu, monkeypatch):
    """A kernel that never ends leaves nothing to break off, and a killed process says nothing."""
    told = []
    monkeypatch.setattr(gpu_check.faulthandler, "dump_traceback_later", lambda seconds, **how: told.append(seconds))
    monkeypatch.setattr(gpu_check.faulthandler, "cancel_dump_traceback_later", lambda: told.append(None))
    put_part(monkeypatch, "bandwidth", [Finding("thing", {"error": 0.0})])
    assert main(["--only", "bandwidth", "--minutes", "2"]) == 0
    assert told == [pytest.approx(120 + gpu_check.HANG_SECONDS, abs=30), None]


def test_an_old_gpu_is_an_obstacle(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 0))
    assert "7.0" in find_obstacle()


def test_the_file_says_how_the_engine_was_started_and_what_it_warned_of(any_gpu, monkeypatch, tmp_path, capsys):
    def start(bench):
        bench._say("captured 3 of 3 decodes")
        try:
            raise TypeError("deep in the compiler")
        except TypeError:
            logging.getLogger("headway.engine").warning("the model runs %s", "op by op", exc_info=True)
        yield Finding("thing", {"error": 0.0})

    put_part(monkeypatch, "steps", [])
    monkeypatch.setitem(PARTS, "steps", Part("steps", PARTS["steps"].items, start, 0.0))
    assert main(["--only", "steps", "--json", str(tmp_path / "check.json")]) == 0
    machine = json.loads((tmp_path / "check.json").read_text())["machine"]
    assert machine["engine"] == ["captured 3 of 3 decodes", "warning: the model runs op by op"]
    assert 'raise TypeError("deep in the compiler")' in capsys.readouterr().err
