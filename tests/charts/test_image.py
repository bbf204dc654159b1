"""The Dockerfile, by hadolint, and what the chart relies on in it."""

import re
import subprocess

import pytest
import yaml


@pytest.fixture(scope="module")
def dockerfile(chart):
    return chart.parents[1] / "Dockerfile"


def test_hadolint_has_nothing_to_say(dockerfile, tool_path):
    answer = subprocess.run([tool_path("hadolint"), dockerfile], capture_output=True, text=True)
    assert answer.stdout + answer.stderr == ""


def test_the_user_is_a_number_that_is_not_root(dockerfile):
    assert re.findall(r"^USER (\S+)", dockerfile.read_text(), re.MULTILINE) == ["65532:0"]


def test_the_image_says_what_it_is(dockerfile):
    labels = set(re.findall(r"org\.opencontainers\.image\.(\w+)=", dockerfile.read_text()))
    assert labels == {"title", "description", "licenses", "version", "revision", "created"}


def test_the_image_sets_nothing_that_would_win_over_the_settings_file(dockerfile):
    assert not re.findall(r"HEADWAY_[A-Z_]+=", dockerfile.read_text())


def test_only_what_is_copied_is_sent_to_the_builder(dockerfile):
    ignore = (dockerfile.parent / ".dockerignore").read_text().splitlines()
    sent = {line[1:] for line in ignore if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile.read_text(), re.MULTILINE)
    assert ignore[0] == "*"
    assert sent == {name for line in copied for name in line.split()}


def test_the_chart_and_the_image_have_one_version(dockerfile, chart_file):
    assert f"ARG VERSION={chart_file['appVersion']}\n" in dockerfile.read_text()


def test_the_alerts_are_rules_with_all_that_a_person_needs(chart):
    (group,) = yaml.safe_load((chart / "files" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]:
        assert rule["alert"].startswith("Headway")
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
