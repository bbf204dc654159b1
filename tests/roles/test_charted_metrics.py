"""Every metric and label that the chart names, in dashboards, alerts and pages, is one that processes export."""

import asyncio
import json
import re
import urllib.request
from collections import defaultdict
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "headway"
NAME = re.compile(r"\b(?:headway|gen_ai)_[a-z_]+\b")
SELECTOR = re.compile(r"((?:headway|gen_ai)_[a-z_]+)(?:\{([^}]*)\})?")
OF_THE_SCRAPE = {"namespace", "le"}
"""Labels that Prometheus adds, and the bound of a bucket."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def exported(local, open_wire, open_parts, eventually):
    """Name of a series → its labels, after jobs that ended well and badly, and while one waits for a worker."""
    found = defaultdict(set)

    async def has(address, *names):
        samples = await asyncio.to_thread(scrape, address)
        for sample in samples:
            found[sample.name] |= sample.labels.keys()
        return set(names) <= {sample.name for sample in samples}

    wire = await open_wire(local.nats.url)
    await wire.run("charted", "good")
    await wire.run("charted", "bad", max_tokens=-1)
    await wire.client.close()
    await eventually(lambda: has(local.worker.telemetry.metrics.address, "headway_ended_jobs_total"))
    await eventually(
        lambda: has(local.queue.telemetry.metrics.address, "headway_ended_jobs_total", "headway_workers_needed")
    )
    async with open_parts() as parts:
        queue = await parts.queue()
        await parts.wire.publish("charted", {"id": "waits", "prompt": "Hello"})
        await eventually(lambda: has(queue.telemetry.metrics.address, "headway_tenant_waiting_jobs"))
    return dict(found)


def scrape(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return [sample for family in families for sample in family.samples]


def dashboard_targets():
    for path in (CHART / "dashboards").glob("*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                yield f"{path.stem}: {panel['title']}", target["expr"], target["legendFormat"]


def alert_rules():
    groups = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        yield rule["alert"], rule["expr"], " ".join(re.findall(r"\$labels\.[a-z_]+", json.dumps(rule)))


EXPRESSIONS = [*dashboard_targets(), *alert_rules()]


def grouped(expression):
    return [set(re.split(r",\s*", group)) for group in re.findall(r"by \(([^)]*)\)", expression)]


async def test_every_expression_asks_for_series_that_there_are(exported):
    assert len(EXPRESSIONS) > 30, "the patterns find them"
    for where, expression, _ in EXPRESSIONS:
        names = NAME.findall(expression)
        assert names, where
        assert set(names) <= exported.keys(), where


async def test_every_expression_selects_and_groups_by_labels_that_its_series_have(exported):
    for where, expression, _ in EXPRESSIONS:
        for name, matchers in SELECTOR.findall(expression):
            selected = set(re.findall(r"([a-z_]+)(?:=~|!~|!=|=)\"", matchers))
            assert selected <= exported[name] | OF_THE_SCRAPE, where
            assert all(labels <= exported[name] | OF_THE_SCRAPE for labels in grouped(expression)), where


async def test_legends_and_texts_name_labels_that_are_left(exported):
    for where, expression, text in EXPRESSIONS:
        named = set(re.findall(r"{{([a-z_]+)}}|\$labels\.([a-z_]+)", text))
        kept = set.intersection(*grouped(expression)) if grouped(expression) else set()
        assert {first or second for first, second in named} <= kept, where


async def test_the_values_of_matchers_are_values_that_there_are():
    from headway.core.job import FinishReason

    values = {
        value for _, expression, _ in EXPRESSIONS for value in re.findall(r'finish_reason="([a-z]+)"', expression)
    }
    assert values == {FinishReason.ERROR.value}


@pytest.mark.parametrize(
    "path",
    ["values.yaml", "values.schema.json", "README.md", "templates/NOTES.txt", "../../docs/kubernetes.md"],
)
async def test_every_page_of_the_chart_names_metrics_that_there_are(path, exported):
    assert set(NAME.findall((CHART / path).read_text())) <= exported.keys()


async def test_the_rules_of_prometheus_adapter_find_series_that_there_are(exported):
    (rule,) = yaml.safe_load((CHART / "files" / "prometheus-adapter-rules.yaml").read_text())
    pattern = re.search(r'__name__=~"([^"]+)"', rule["seriesQuery"])[1]
    found = {name for name in exported if re.fullmatch(pattern, name)}
    assert len(found) == 4
    assert all("model" in exported[name] for name in found)
    metrics = json.loads((CHART / "values.schema.json").read_text())["definitions"]["metric"]["enum"]
    assert set(metrics) == found
