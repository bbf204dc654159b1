"""docs/tuning.md says what was measured."""

import json
import re
import runpy

import pytest


@pytest.fixture(scope="module")
def writer(root):
    return runpy.run_path(str(root / "docs" / "tuning.py"))


@pytest.fixture(scope="module")
def report(root):
    return json.loads((root / "docs" / "tuning.json").read_text())


@pytest.fixture(scope="module")
def text(root):
    return (root / "docs" / "tuning.md").read_text()


def test_the_tables_are_those_of_the_data(writer, report, text):
    assert writer["page"](report, text) == text, "run .venv/bin/python docs/tuning.py"


def test_another_measurement_would_change_them(writer, report, text):
    first = report["sweeps"]["batch"]["points"][0]["runs"][0]
    changed = json.loads(json.dumps(report).replace(str(first["tpot_seconds"]), "77.0", 1))
    assert writer["page"](changed, text) != text


def test_every_plot_is_shown_and_drawn(writer, report, text, tmp_path):
    shown = re.findall(r"\]\((tuning-\w+\.svg)\)", text)
    assert sorted(shown) == sorted(writer["PLOTS"])
    for name, draw in writer["PLOTS"].items():
        draw(report, tmp_path / name)
        assert "</svg>" in (tmp_path / name).read_text()


def test_a_page_without_a_place_for_a_table_is_refused(writer, report, text):
    with pytest.raises(ValueError, match="places for batch"):
        writer["page"](report, text.replace("<!-- batch -->", ""))
