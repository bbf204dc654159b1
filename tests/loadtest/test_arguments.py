"""What goes together on the command line of `headway bench`, and what does not: nothing is started here."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headway.commands.bench import command
from loadtest.arguments import Arguments, options_of
from loadtest.slo import Slo
from loadtest.targets.server import Server
from loadtest.targets.target import Target
from loadtest.workloads.arrivals import Arrivals, Schedule
from loadtest.workloads.scenario_files import list_scenarios

URL = "http://127.0.0.1:9/v1"


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--arrivals", "closed"], "--concurrency"),
        (["--concurrency", "2"], "--arrivals closed"),
        (["--arrivals", "poisson", "--concurrency", "2"], "--arrivals closed"),
        (["--arrivals", "closed", "--concurrency", "2", "--rate", "3"], "--arrivals poisson"),
        (["--num-requests", "3"], "--scenario"),
        (["--seed", "0"], "--scenario"),
        (["--scenario", "smoke", "--workload", __file__], "exclude"),
        (["--scenario", "nothing"], "no scenario 'nothing'"),
        (["--scenario", "smoke", "--rate", "2"], "--arrivals poisson"),
        (["--scenario", "chat", "--concurrency", "2"], "--arrivals closed"),
        (["--scenario", "tenants", "--num-requests", "0"], "--num-requests"),
        (["--scenario", "trace", "--num-requests", "25"], "24 rows, and 25 requests"),
        (["--slo", "fast"], "is no promise"),
        (["--timeout", "0"], "--timeout"),
        (["--target", "openai"], "--url"),
        (["--url", URL], "--target openai"),
        (["--target", "openai", "--url", "localhost"], "no address of a server"),
        (["--served-model", "llama"], "--target openai"),
        (["--peers", "static", "--target", "static"], "with itself"),
        (["--scenario", "closed", "--peers", "transformers"], "takes no closed loop"),
        (["--scenario", "cancellations", "--peers", "transformers"], "takes no cancels"),
    ],
)
def test_what_does_not_go_together_is_said_before_anything_starts(arguments, complaint, monkeypatch):
    monkeypatch.setattr("loadtest.bench.measure_floor", lambda config: pytest.fail("something was started"))
    result = bench(*arguments)
    assert result.exit_code != 0
    assert complaint in result.output + str(result.exception)


def test_the_scenarios_can_be_listed():
    result = bench("--list-scenarios")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == list(list_scenarios())


def test_without_arguments_the_workload_of_all_figures_comes_at_once_to_the_engine():
    options = options_of(Arguments())
    assert (options.target, options.scenario, options.schedule) == (Target.ENGINE, None, Schedule())
    assert options.workload.name == "workload.json"


def test_a_scenario_brings_its_arrivals_and_its_promise_unless_others_are_given():
    own = options_of(Arguments(scenario="bursty")).draw_workload(1000)
    assert (own.schedule, own.slo) == (Schedule(Arrivals.GAMMA, None, 0.6), Slo(2.0, 0.2))
    given = options_of(Arguments(scenario="bursty", rate=3.0, slo="e2e=9", num_requests=5, seed=7)).draw_workload(1000)
    assert (given.schedule.rate, given.slo, len(given.requests), given.seed) == (3.0, Slo(e2e_seconds=9.0), 5, 7)


def test_servers_are_reported_under_their_names():
    options = options_of(
        Arguments(target="openai", url=f"{URL}/", served_model="m", peers=(f"sglang={URL}#n", "engine"))
    )
    assert options.server == Server(URL, "m")
    assert options.opponents == {"sglang": Server(URL, "n", "sglang"), "engine": Target.ENGINE}
    assert options.needs_model
    assert options.title == "openai"


def test_a_scenario_file_may_lie_anywhere(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("num_requests: 2\nparts: [{prompt: 4, output: 8}]\n")
    workload = options_of(Arguments(scenario=str(path))).draw_workload(1000)
    assert (workload.scenario, workload.seed, len(workload.requests)) == ("mine", 0, 2)
