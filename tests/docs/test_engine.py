"""docs/engine.md says what was compiled, what follows from arithmetic, and what a GPU has measured."""

from __future__ import annotations

import copy
import json
import re
import runpy
from importlib.util import find_spec
from itertools import pairwise

import pytest

from loadtest import gpu_check

if find_spec("triton") is None:
    pytest.skip("Triton is for Linux only", allow_module_level=True)

QUICK = ("floors", "measured")
"""Tables that need no compiler."""


@pytest.fixture(scope="module")
def writer(root):
    return runpy.run_path(str(root / "docs" / "engine.py"))


@pytest.fixture(scope="module")
def text(root):
    return (root / "docs" / "engine.md").read_text()


@pytest.fixture(scope="module")
def report(root, writer):
    path = root / "docs" / "gpu.json"
    return json.loads(path.read_text()) if path.exists() else writer["not_measured"]()


def quick_tables(writer, report):
    return {name: writer["tables"](report)[name] for name in QUICK}


def measured(writer, report):
    return "\n".join(writer["measured_table"](report))


def test_the_tables_are_those_of_the_data(writer, report, text):
    assert writer["page"](quick_tables(writer, report), text) == text, (
        "run PYTHONPATH=. .venv/bin/python docs/engine.py"
    )


def test_without_a_measurement_every_cell_is_empty(writer):
    rows = [line for line in measured(writer, writer["not_measured"]()).splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    assert all(row.split("|")[4].strip() == "" for row in rows), rows


def test_a_measurement_fills_its_cell_and_no_other(writer):
    empty = writer["not_measured"]()
    filled = copy.deepcopy(empty)
    filled["machine"] = {"gpu": "A GPU", "torch": "1", "triton": "2"}
    filled["seconds"] = 300.0
    (bandwidth,) = [check for check in filled["checks"] if check["part"] == "bandwidth"]
    bandwidth["figures"] = dict.fromkeys(bandwidth["figures"], 0.5)
    before, after = (measured(writer, each).splitlines() for each in (empty, filled))
    changed = [line for line in after if line not in before]
    assert changed[0].startswith("A GPU")
    assert [re.sub(r"\s+", " ", line).split("|")[3:5] for line in changed[1:]] == [[" ≥ 80.0 % ", " 50.0 % "]]


def test_every_part_of_the_table_can_be_asked_for_by_its_name(writer, report, text, monkeypatch):
    monkeypatch.setattr(gpu_check, "find_obstacle", lambda: "nothing is run here")
    table = text.partition("<!-- measured -->")[2].partition("<!-- end -->")[0]
    names = {row.split("|")[1].strip() for row in table.splitlines() if row.startswith("| ")} - {"part"}
    assert names == set(gpu_check.PART_NAMES)
    for name in names:
        assert gpu_check.main(["--only", name]) == gpu_check.NO_GPU


def test_the_picture_is_shown_and_drawn(writer, text, tmp_path):
    assert "](engine-step.svg)" in text
    writer["draw"](tmp_path / "step.svg")
    drawn = (tmp_path / "step.svg").read_text()
    assert all(word in drawn for word in ("host", "device", "launch", "sample", "tokens"))


def test_a_step_of_the_picture_begins_where_the_one_before_ends(writer):
    device = [bar for step in (0, 1) for bar in writer["bars_of"](step) if bar.lane == "device"]
    for before, after in pairwise(device):
        assert after.start == pytest.approx(before.end)
    host = sorted(
        (bar for step in (0, 1, 2) for bar in writer["bars_of"](step) if bar.lane == "host"), key=lambda b: b.start
    )
    for before, after in pairwise(host):
        assert after.start >= before.end - 1e-9, (before, after)


def test_a_page_without_a_place_for_a_table_is_refused(writer, report, text):
    with pytest.raises(ValueError, match="places for floors"):
        writer["page"](quick_tables(writer, report), text.replace("<!-- floors -->", ""))
