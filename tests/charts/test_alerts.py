"""The alerts: explained, tried out, and installed with the address of their explanation."""

import re
import shutil
import subprocess

import pytest
import yaml


@pytest.fixture(scope="module")
def rules(chart):
    (group,) = yaml.safe_load((chart / "files" / "alerts.yaml").read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@pytest.fixture(scope="module")
def page(chart):
    return (chart.parents[1] / "docs" / "alerts.md").read_text()


def test_every_alert_has_a_paragraph_and_every_paragraph_an_alert(rules, page):
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == list(rules)


def test_every_paragraph_says_what_it_means_where_to_look_and_what_helps(rules, page):
    paragraphs = re.split(r"^##+ \w.*$", page, flags=re.MULTILINE)
    explained = [paragraph for paragraph in paragraphs if "**Means**" in paragraph]
    assert len(explained) == len(rules)
    assert all("**Look**" in paragraph and "**Helps**" in paragraph for paragraph in explained)


def test_the_panels_that_the_page_names_are_there(page, chart):
    board = (chart / "dashboards" / "headway.json").read_text()
    named = re.findall(r"(?<!\*)\*([A-Z][a-z][^*]+)\*(?!\*)", page)
    assert len(named) > 8
    assert [name for name in named if f'"title": "{name}"' not in board] == ["Pending"], "which is a pod's phase"


def test_every_alert_leads_to_its_paragraph(rules):
    for name, rule in rules.items():
        assert rule["annotations"]["runbook_url"] == f"docs/alerts.md#{name.lower()}"


def test_the_chart_puts_the_address_of_the_docs_before_it(matrix, rules):
    installed = matrix["everything that may be added"].one("PrometheusRule", "headway")["spec"]["groups"][0]["rules"]
    addresses = [rule["annotations"]["runbook_url"] for rule in installed]
    assert addresses == [f"https://git.example/headway/docs/alerts.md#{name.lower()}" for name in rules]


def test_every_alert_is_seen_to_fire_and_to_stay_silent(chart, rules):
    tests = yaml.safe_load((chart.parent / "alerts.test.yaml").read_text())["tests"]
    checks = [check for test in tests for check in test["alert_rule_test"]]
    assert {check["alertname"] for check in checks if check["exp_alerts"]} == rules.keys()
    waits = {name for name, rule in rules.items() if "for" in rule}
    assert waits <= {check["alertname"] for check in checks if not check["exp_alerts"]}, "before its time is over"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is in Debian's package prometheus, in no wheel")
def test_promtool_finds_that_they_do(chart):
    ran = subprocess.run(
        ["promtool", "test", "rules", "alerts.test.yaml"], cwd=chart.parent, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
