"""`headway bench --html` and `headway bench report`, from real runs of a tiny model to the page."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from headway.commands.bench import command
from tests.loadtest.page.conftest import Page
from tests.loadtest.reports import queue_report, report, run, write

SMALL = ("--scenario", "smoke", "--num-requests", "6")


def bench(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], prog_name="headway bench")


@pytest.mark.usefixtures("small_engine")
def test_a_run_becomes_a_page_beside_its_json(tmp_path):
    out = {kind: tmp_path / f"out.{kind}" for kind in ("json", "html")}
    result = bench(*SMALL, "--json", out["json"], "--html", out["html"], "--peers", "static", "--runs", 2)
    assert result.exit_code == 0, result.output
    page = Page(out["html"].read_text())
    assert page.problems == []
    assert {"Time to first token", "End to end", "Slots used", "Step time by batch size"} <= set(page.plots)
    assert {"headway", "static"} <= set(page.plots["End to end"])
    assert {"Batch composition, headway", "Service of tenants, headway"} <= set(page.plots)
    assert page.rows["headway"][0] == page.rows["static"][0] == "6 of 6"
    assert "output tokens/s ÷ static" in page.rows
    again = tmp_path / "again.html"
    assert bench("report", out["json"], "--html", again).exit_code == 0
    assert Page(again.read_text()).plots.keys() == page.plots.keys()


@pytest.mark.usefixtures("small_engine")
def test_the_report_says_how_it_was_asked_and_which_settings_are_no_defaults(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWAY_NATS_USER", "me")
    monkeypatch.setenv("HEADWAY_NATS_PASSWORD", "secret")
    out = tmp_path / "out.json"
    url = ("--target", "nats", "--nats-url", "nats://me:hush@nowhere")
    result = bench(*SMALL, "--json", out, "--max-num-seqs", 3, *url)
    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text())
    assert report["command"].startswith("headway bench --target nats --scenario smoke --num-requests 6 --json ")
    assert "--max-num-seqs 3" in report["command"]
    assert report["settings"]["max_num_seqs"] == 3
    assert "secret" not in out.read_text()
    assert "hush" not in out.read_text()


def test_reports_of_several_rates_stand_in_one_page(tmp_path):
    files = [
        write(tmp_path, f"at-{rate}.json", report(run(50 * rate, rate=rate), arrivals="poisson", rate=rate))
        for rate in (1, 2)
    ]
    result = bench("report", *files, "--html", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    page = Page((tmp_path / "page.html").read_text())
    assert "Throughput against load" in page.plots
    assert {"headway [at-1]", "headway [at-2]"} <= page.rows.keys()


def test_two_files_of_one_name_are_told_apart(tmp_path):
    files = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        files.append(write(folder, "out.json", report()))
    assert bench("report", *files, "--html", tmp_path / "page.html").exit_code == 0
    page = Page((tmp_path / "page.html").read_text())
    assert len([row for row in page.rows if row.startswith("headway [")]) == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["report", "{bad}", "--html", "{folder}/page.html"], "bad.json is no report of `headway bench --json`"),
        (["report", "{queue}", "--html", "{folder}/page.html"], "queue.json is of `headway bench --target queue`"),
        (["report", "{tuned}", "--html", "{folder}/page.html"], "tuned.json is of `headway tune`"),
        (["report", "{good}", "--html", "{folder}/nowhere/page.html"], "nowhere/page.html"),
        (["report", "--html", "{folder}/page.html"], "REPORT.json"),
        (["report", "{good}"], "--html"),
        (["report", "{folder}/missing.json", "--html", "{folder}/page.html"], "missing.json"),
        (["--rate", "2", "report", "{good}", "--html", "{folder}/page.html"], "--rate is not for 'report'"),
        (["reprot"], "No such command 'reprot'"),
    ],
)
def test_what_cannot_be_shown_is_said_and_nothing_is_written(arguments, complaint, tmp_path):
    contents = {"good": report(), "bad": {"runs": []}, "queue": queue_report(), "tuned": {"goal": {}, "best": None}}
    files = {name: write(tmp_path, f"{name}.json", content) for name, content in contents.items()}
    result = bench(*(argument.format(**files, folder=tmp_path) for argument in arguments))
    assert result.exit_code != 0
    assert complaint in result.output + str(result.exception)
    assert not list(tmp_path.glob("**/*.html"))


def test_a_page_that_cannot_be_written_is_known_before_the_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("loadtest.bench.measure_floor", lambda config: pytest.fail("something was started"))
    result = bench(*SMALL, "--html", tmp_path / "nowhere" / "page.html")
    assert "nowhere/page.html" in str(result.exception)


def test_the_help_names_the_subcommands_after_the_options():
    options, _, commands = bench("--help").output.partition("\nCommands:\n")
    assert "The engine:" in options
    assert {"compare", "report"} <= set(commands.split())
