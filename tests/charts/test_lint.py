"""Real Helm, both of its versions, over the chart as it stands and with every set of values."""

import itertools
import re
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
    "values", ["preset cpu-trial", "metrics API", "KEDA", "names that YAML takes for something else"]
)
def test_both_versions_of_helm_make_the_same(values, all_values, render, without_keys):
    assert without_keys(render(**all_values[values])) == without_keys(render(helm="helm3", **all_values[values]))


def test_with_keys_of_ones_own_two_renderings_are_the_same(tool_path, chart):
    """What GitOps compares: nothing may be drawn anew."""
    given = ["nats.enabled=true,nats.bundled.existingSecret=n", "tls.mode=secret,tls.queueSecret=q,tls.workerSecret=w"]
    flags = [flag for values in given for flag in ("--set", values)]
    texts = [subprocess.run([tool_path("helm"), "template", "x", chart, *flags], capture_output=True) for _ in range(2)]
    assert texts[0].stdout == texts[1].stdout != b""


def test_a_preset_of_a_cluster_and_one_of_a_load_go_together(tool_path, chart):
    loads = {"long-prompts", "long-answers", "low-latency"}
    clusters = {path.stem for path in (chart / "presets").glob("*.yaml")} - loads - {"cpu-trial"}
    for cluster, load in itertools.product(sorted(clusters), sorted(loads)):
        files = [item for name in (cluster, load) for item in ("-f", chart / "presets" / f"{name}.yaml")]
        command = [tool_path("helm"), "template", "x", chart, "--set", "nats.url=nats://a:1", *files]
        answer = subprocess.run(command, capture_output=True, text=True)
        assert answer.returncode == 0, answer.stderr
        assert {"nvidia.com/gpu", "max_num_batched_tokens"} <= set(
            re.findall(r"nvidia.com/gpu|max_num_b\w+", answer.stdout)
        )


def test_the_chart_installs_its_own_version_of_headway(chart_file):
    assert chart_file["appVersion"] == PROJECT["version"]
