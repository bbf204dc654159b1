"""Real Helm, both of its versions, over the chart as it stands and with every set of values."""

import subprocess
import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def lint(helm_path, chart, *files):
    arguments = [item for file in files for item in ("-f", str(file))]
    return subprocess.run([helm_path, "lint", "--strict", str(chart), *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("helm", ["helm", "helm3"])
def test_the_chart_has_nothing_to_complain_about(helm, tool_path, chart):
    answer = lint(tool_path(helm), chart)
    assert answer.returncode == 0, answer.stdout


def test_no_preset_has(tool_path, chart):
    for preset in (chart / "presets").glob("*.yaml"):
        answer = lint(tool_path("helm"), chart, preset)
        assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize(
    "values", [{}, {"preset": "cpu-trial", "nats": {}}, {"autoscaling": {"enabled": True}}], ids=str
)
def test_both_versions_of_helm_make_the_same(values, render, without_keys):
    assert without_keys(render(**values)) == without_keys(render(helm="helm3", **values))


def test_the_chart_installs_its_own_version_of_headway(chart_file):
    assert chart_file["appVersion"] == PROJECT["version"]
