from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.workloads.arrivals import Arrivals
from loadtest.workloads.drawing import draw_requests
from loadtest.workloads.requests import WorkloadError
from loadtest.workloads.scenario_files import ScenarioError, list_scenarios, load_scenario

PART = "parts: [{prompt: 4, output: 8}]"


@pytest.fixture
def write(tmp_path: Path):
    def to_file(text: str) -> str:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return str(path)

    return to_file


@pytest.mark.parametrize("name", list_scenarios())
def test_every_scenario_that_comes_with_headway_can_be_drawn_and_says_what_it_is(name):
    named = load_scenario(name)
    requests = draw_requests(named)
    assert named.scenario.description
    assert all(request.prompt_token_ids and request.num_output_tokens for request in requests)
    named.scenario.arrivals.schedule.plan(requests, rate=1.0)


@pytest.mark.parametrize("cap", [32, 128, 512, 1536])
def test_the_well_known_benchmark_is_there_with_its_four_caps(cap):
    requests = draw_requests(load_scenario(f"exponential-{cap}"))
    lengths = [request.num_output_tokens for request in requests]
    assert {len(request.prompt_token_ids) for request in requests} == {512}
    assert len(requests) == 1000
    assert max(lengths) <= cap
    if cap == 1536:
        assert sum(lengths) / len(lengths) == pytest.approx(128, abs=1)


def test_a_scenario_of_ones_own_is_a_file(write):
    named = load_scenario(write(f"num_requests: 3\n{PART}"))
    assert (named.name, len(draw_requests(named))) == ("mine", 3)


@pytest.mark.parametrize(
    ("text", "arrivals"),
    [
        ("burst", Arrivals.BURST),
        ("poisson", Arrivals.POISSON),
        ("{kind: gamma, cv: 3, rate: 2}", Arrivals.GAMMA),
        ("{kind: ramp, load: 0.5, to_load: 2, over_seconds: 9}", Arrivals.RAMP),
        ("{kind: closed, clients: 3, think_seconds: 2}", Arrivals.CLOSED),
    ],
)
def test_arrivals_are_a_name_or_a_name_with_numbers(write, text, arrivals):
    named = load_scenario(write(f"num_requests: 3\narrivals: {text}\n{PART}"))
    assert named.scenario.arrivals.schedule.arrivals is arrivals


def test_a_ramp_between_loads_grows_by_their_ratio(write):
    text = f"num_requests: 3\narrivals: {{kind: ramp, load: 0.5, to_load: 2, over_seconds: 9}}\n{PART}"
    schedule = load_scenario(write(text)).scenario.arrivals.schedule
    assert (schedule.measures_capacity, schedule.load, schedule.growth, schedule.ramp_seconds) == (True, 0.5, 4.0, 9.0)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "valid dictionary"),
        ("parts: [", "while parsing"),
        ("num_requests: 3", "parts: Field required"),
        ("parts: []", "parts: "),
        (f"num_request: 3\n{PART}", "num_request: there is no such field; did you mean num_requests?"),
        ("parts: [{prompt: 4, output: 8}, {prompt: 4, ouput: 8}]", r"parts\[2\].ouput: .*did you mean output?"),
        ("parts: [{prompt: 4, output: {kind: exponential, mean: 0}}]", "output.exponential.mean: .*greater than 0"),
        ("parts: [{prompt: 4, output: {kind: normal}}]", "'exponential'"),
        ("parts: [{prompt: 4}]", "give prompt and output, or a trace"),
        ("parts: [{prompt: 4, output: 8, share: 1, count: 2}]", "not both"),
        ("parts: [{prompt: 4, output: 8, tenant: Big Co}]", "tenant: "),
        ("parts: [{prompt: 4, output: 8, arrivals: poisson}]", "need a rate"),
        ("parts: [{prompt: 4, output: 8, arrivals: {kind: closed, clients: 2}}]", "arrivals: "),
        (f"arrivals: {{kind: poisson, rate: 1, load: 1}}\n{PART}", "not both"),
        (f"arrivals: {{kind: ramp, rate: 1, over_seconds: 5}}\n{PART}", "to_rate"),
        (f"arrivals: trace\n{PART}", "need a trace"),
        (
            "parts: [{weight: 1, prompt: 4, output: 8}, {weight: 2, prompt: 4, output: 8}]",
            "tenant loadtest has two weights",
        ),
        ("parts: [{trace: {file: nowhere.csv}}]", r"nowhere\.csv is no trace"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused_with_the_field_and_what_would_hold(write, text, complaint):
    with pytest.raises(WorkloadError, match=complaint):
        load_scenario(write(text))


def test_the_file_is_named(write):
    with pytest.raises(ScenarioError, match=r"mine\.yaml is no scenario: parts"):
        load_scenario(write("parts: []"))


def test_an_unknown_name_is_refused_with_those_that_are_known():
    with pytest.raises(ScenarioError, match=r"no scenario 'chats'.*bursty, cancellations, chat"):
        load_scenario("chats")
