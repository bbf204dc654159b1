"""What is shown of what was found."""

from __future__ import annotations

import json

import pytest

from loadtest.gpu.checks import Check, Finding, Item, Verdict
from loadtest.gpu.report import line, shown, summary, to_json, write
from loadtest.row import Aim

ITEM = Item("decode", ("copy_share", "kernel_seconds"), Aim(0.8, is_least=True))
GOOD = Check.of("bandwidth", ITEM, Finding("decode", {"copy_share": 0.85, "kernel_seconds": 0.00025}))
BAD = Check.of("bandwidth", ITEM, Finding("decode", {"copy_share": 0.7, "kernel_seconds": 0.0003}))
NOT_RUN = Check("steps", Item("step", ("step_seconds",)), Verdict.NOT_RUN, {}, "there was no time left")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("copy_share", 0.8512, "85.1 %"),
        ("kernel_seconds", 0.00025, "0.250 ms"),
        ("compile_seconds", 93.04, "93.0 s"),
        ("copy_bytes_per_s", 4.1e12, "4100 GB/s"),
        ("matmul_flops_per_s", 7e14, "700 TFLOP/s"),
        ("headway_tokens_per_s", 12345.6, "12346/s"),
        ("times_transformers_ratio", 3.217, "3.22"),
        ("relative_error", 0.0371, "3.7e-02"),
        ("num_tokens", 12.0, "12"),
        ("copy_share", None, "–"),
        ("copy_share", float("nan"), "–"),
    ],
)
def test_figures_are_shown_in_the_units_that_people_read(name, value, text):
    assert shown(name, value) == text


def test_a_line_has_the_figure_its_aim_and_the_rest():
    assert " ".join(line(GOOD).split()) == "ok bandwidth decode 85.0 % (aim ≥ 80.0 %); kernel 0.250 ms"
    assert line(BAD).startswith("FAIL")
    assert line(NOT_RUN).endswith("there was no time left")


def test_the_summary_names_what_must_be_looked_at():
    assert summary([GOOD, BAD, NOT_RUN]).splitlines() == [
        "1 ok, 1 FAIL, 1 not run",
        "  FAIL: bandwidth: decode",
        "  not run: steps: step",
    ]


@pytest.mark.parametrize(
    ("checks", "passed"), [([GOOD], True), ([GOOD, BAD], False), ([GOOD, NOT_RUN], False), ([], False)]
)
def test_only_what_was_run_and_met_its_aims_has_passed(checks, passed):
    assert to_json({}, checks)["passed"] is passed


def test_the_file_says_what_is_not_known_with_null(tmp_path):
    path = tmp_path / "gpu.json"
    odd = Check.of("bandwidth", ITEM, Finding("decode", {"copy_share": float("nan"), "kernel_seconds": 1.0}))
    write(path, to_json({"gpu": "one"}, [odd, NOT_RUN], seconds=3.0))
    written = json.loads(path.read_text())
    assert [check["figures"] for check in written["checks"]] == [
        {"copy_share": None, "kernel_seconds": 1.0},
        {"step_seconds": None},
    ]
    assert written["checks"][0]["verdict"] == "FAIL"
    assert written["seconds"] == 3.0
    assert [file.name for file in tmp_path.iterdir()] == ["gpu.json"]
