"""Reports of different things are not comparable, and it is said why."""

from __future__ import annotations

import json

import pytest

from loadtest.results.differences import differences
from loadtest.results.documents import Document, decode_document
from tests.loadtest.reports import MACHINE, Report, peer, report, run


def document(content: Report) -> Document:
    return decode_document(json.dumps(content).encode(), "a file")


def found(before: Report, after: Report) -> list[str]:
    return [str(difference) for difference in differences(document(before), document(after))]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"target": "nats"}, "target: engine before, nats after"),
        ({"workload": "other.json"}, "workload: made-up.json before, other.json after"),
        ({"scenario": "chat"}, "scenario: unknown before, chat after"),
        ({"seed": 8}, "seed: unknown before, 8 after"),
        ({"arrivals": "poisson"}, "arrivals: burst before, poisson after"),
        ({"model": "large"}, "model: tiny before, large after"),
        ({"batching": "static"}, "batching: continuous before, static after"),
        ({"num_requests": 9}, "num_requests: 8 before, 9 after"),
        ({"rate": 2.5}, "rate: unknown before, 2.5 after"),
        ({"settings": {"max_num_seqs": 64}}, "settings, max_num_seqs: unknown before, 64 after"),
        ({"machine": {**MACHINE, "num_cores": 4}}, "machine, num_cores: 2 before, 4 after"),
        ({"machine": {**MACHINE, "torch": "2.14.0"}}, "machine, torch: 2.13.0 before, 2.14.0 after"),
        ({"machine": {**MACHINE, "cpu_flags": []}}, "machine, cpu_flags: avx2 before, none after"),
    ],
)
def test_each_difference_is_named_with_both_sides(fields, told):
    assert found(report(), report(**fields)) == [told]


def test_the_same_twice_has_none():
    assert found(report(run(1)), report(run(2), run(3))) == []


@pytest.mark.parametrize("fact", [{"headway": "0.2.0"}, {"load_average": 1.9}])
def test_a_new_version_of_headway_is_what_one_compares(fact):
    assert found(report(), report(machine={**MACHINE, **fact})) == []


def test_a_rate_that_the_capacity_decided_is_a_result():
    at = {"arrivals": "poisson", "load": 0.6}
    assert found(report(rate=2.0, **at), report(rate=3.0, **at)) == []


def test_another_version_of_a_common_peer_is_a_difference():
    newer = peer(run(), facts={"version": "2"})
    before, after = report(peers={"vllm": peer(run()), "a": peer(run())}), report(peers={"vllm": newer})
    assert found(before, after) == ["peer vllm, version: 1 before, 2 after"]
