"""What the pages about the chart show: values that it takes, files that are there, ports that are opened."""

import re
import textwrap

import pytest
import yaml


@pytest.fixture(scope="module")
def pages(chart):
    root = chart.parents[1]
    return [path.read_text() for path in (root / "docs" / "kubernetes.md", chart / "README.md")]


def blocks(pages, language):
    for page in pages:
        for block in re.findall(rf"^ *```{language}\n(.*?)^ *```", page, re.MULTILINE | re.DOTALL):
            yield textwrap.dedent(block)


def test_every_example_is_values_that_the_chart_takes(pages, render):
    examples = [yaml.safe_load(block) for block in blocks(pages, "yaml")]
    assert len(examples) >= 2
    for example in examples:
        assert len(render(**example).of("Deployment")) == 1 + len(example["models"])


def test_every_file_of_the_commands_is_there(pages, chart):
    commands = "\n".join(blocks(pages, "bash"))
    named = set(re.findall(r"(?:charts|manifests)/[\w./-]+", commands))
    assert len(named) >= 5
    assert [name for name in named if not (chart.parents[1] / name).exists()] == []


def test_the_grace_period_is_told_where_the_drain_is(pages, chart):
    for text in (pages[0], (chart / "values.yaml").read_text()):
        assert re.search(r"grace\s+(#\s+)?period (of the pods )?is 30 seconds longer", text)


def test_every_preset_is_described(pages, chart):
    for path in (chart / "presets").glob("*.yaml"):
        assert f"`{path.stem}`" in pages[0]


def test_the_table_of_ports_is_what_pods_open(pages, matrix):
    rows = re.findall(r"^\| ([0-9]+) \| `([\w-]+)` \|", pages[0], re.MULTILINE)
    opened = {
        (str(port["containerPort"]), port["name"])
        for rendered in matrix.values()
        for item in rendered.of("Deployment")
        for port in item["spec"]["template"]["spec"]["containers"][0]["ports"]
    }
    assert set(rows) == opened
