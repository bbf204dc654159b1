from __future__ import annotations

from loadtest.workloads.scenario_files import load_scenario
from loadtest.workloads.workload import workload_of_scenario


def test_the_longest_request_counts_with_its_prompt_and_its_output():
    workload = workload_of_scenario(load_scenario("long-prompt"), None, None, vocab_size=1000)
    assert workload.longest == 4096 + 8
