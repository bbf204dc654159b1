"""Every metric and label that the chart names, in dashboard, alerts and pages, is one that processes export."""

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

from headway.core.job import FinishReason
from tests.roles.promql import OF_THE_SCRAPE, Wrong, check, names_in

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "headway"
NAME = re.compile(r"\b(?:headway|gen_ai)_[a-z_]+\b")
VARIABLES = {"datasource", "namespace", "release", "model", "tenant"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def exported(local, open_wire, open_parts, eventually):
    """Series → its labels → their values, after jobs that ended well and badly, and while one waits for a worker."""
    found = defaultdict(lambda: defaultdict(set))

    async def has(address, *names):
        samples = await asyncio.to_thread(scrape, address)
        for sample in samples:
            for label, value in sample.labels.items():
                found[sample.name][label].add(value)
            found[sample.name]  # one without labels is there too
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
    for labels in found.values():
        if "le" in labels:
            labels["le"] |= {str(float(bound)) for bound in labels["le"]}  # as Prometheus 3 stores them
    found["headway_ended_jobs_total"]["finish_reason"] |= {reason.value for reason in FinishReason}
    found["up"] = {}
    return {name: dict(labels) for name, labels in found.items()}


def scrape(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return [sample for family in families for sample in family.samples]


def board():
    return json.loads((CHART / "dashboards" / "headway.json").read_text())


def dashboard_targets():
    for panel in board()["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], target["legendFormat"]


def alert_rules():
    groups = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        yield rule["alert"], rule["expr"], " ".join(re.findall(r"\$labels\.[a-z_]+", json.dumps(rule)))


EXPRESSIONS = [*dashboard_targets(), *alert_rules()]


@pytest.mark.parametrize(("where", "expression", "text"), EXPRESSIONS, ids=lambda value: "")
async def test_an_expression_asks_for_series_labels_and_values_that_there_are(where, expression, text, exported):
    left = check(expression, exported)
    named = set(re.findall(r"{{([a-z_]+)}}|\$labels\.([a-z_]+)", text))
    assert {first or second for first, second in named} <= left, f"{where}: the legend or text names what is gone"


async def test_the_alerts_and_the_dashboard_are_really_looked_at():
    names = {name for _, expression, _ in EXPRESSIONS for name in names_in(expression)}
    assert {"headway_ready", "headway_queue_seconds_bucket", "process_resident_memory_bytes"} <= names
    assert len(names) > 40


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("headway_no_such_thing", "no series"),
        ('headway_waiting_jobs{tenant="a"}', "no label tenant"),
        ("sum by (tenant) (headway_waiting_jobs)", "no label tenant"),
        ('headway_pages{state="lost"}', "never has state=lost"),
        ('rate(headway_queue_seconds_bucket{le="61.0"}[5m])', "never has le=61.0"),
        ("histogram_quantile(0.5, sum by (model) (rate(headway_queue_seconds_bucket[5m])))", "no label le"),
        ("headway_pages / on (tenant) headway_waiting_jobs", "no label tenant"),
        ("headway_pages * on (model) group_left (tenant) headway_waiting_jobs", "no label tenant"),
    ],
)
async def test_what_is_not_there_would_be_found(expression, reason, exported):
    with pytest.raises(Wrong, match=reason):
        check(expression, exported)


async def test_every_variable_of_the_dashboard_asks_for_labels_that_there_are(exported):
    variables = {variable["name"]: variable["query"] for variable in board()["templating"]["list"]}
    assert variables.keys() == VARIABLES
    for name in VARIABLES - {"datasource"}:
        selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variables[name]).groups()
        for series in names_of(selector):
            assert label in exported[series].keys() | OF_THE_SCRAPE, name


def names_of(selector):
    by_name = re.search(r'__name__=~"([^"]+)"', selector)
    return by_name[1].split("|") if by_name else [re.match(r"\w+", selector)[0]]


async def test_every_panel_follows_the_variables_that_its_series_have(exported):
    for where, expression, _ in dashboard_targets():
        for selector in re.findall(r"(?:headway|gen_ai)_\w+\{[^}]*\}", expression):
            labels = exported[selector.split("{")[0]].keys()
            assert "$namespace" in selector, where
            assert "$release" in selector, where
            assert ("$model" in selector) == ("model" in labels), where


@pytest.mark.parametrize(
    "path",
    [
        "values.yaml",
        "values.schema.json",
        "README.md",
        "templates/NOTES.txt",
        "../../docs/kubernetes.md",
        "../../docs/alerts.md",
    ],
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
