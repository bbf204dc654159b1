"""docs/benchmarks.md describes every scenario and every field of one."""

import pytest
import yaml

from loadtest.targets.target import Target
from loadtest.workloads.scenario import RequestPart, Scenario
from loadtest.workloads.scenario_arrivals import AnyArrivals
from loadtest.workloads.scenario_files import list_scenarios


@pytest.fixture(scope="module")
def page(root, read_page):
    return read_page.read(root / "docs" / "benchmarks.md").section("Scenarios")


def test_every_scenario_is_described(page):
    assert sorted(page.first_codes("name")) == sorted(list_scenarios())


def test_every_field_is_described(page):
    fields = [row[0].strip("`").split("`, `") for row in page.rows("field")]
    assert sorted(name for names in fields for name in names) == sorted(Scenario.model_fields)
    part = page.text[page.text.index("Each part says") :]
    codes = type(page)(page.path, part).first_codes("field")
    assert sorted(codes) == sorted(RequestPart.model_fields)


@pytest.mark.parametrize("table", ["distribution", "arrivals"])
def test_every_example_can_be_read(page, table):
    part = {"prompt": 4, "output": 8, "trace": None}
    examples = page.first_codes(table)
    for example in map(yaml.safe_load, examples):
        if table == "distribution":
            Scenario.model_validate({"parts": [{**part, "output": example}]})
        elif example != "trace":
            Scenario.model_validate({"parts": [part], "arrivals": example})
    if table == "arrivals":
        kinds = {example if isinstance(example, str) else example["kind"] for example in map(yaml.safe_load, examples)}
        assert kinds == {kind.model_fields["kind"].annotation.__args__[0] for kind in AnyArrivals.__args__}


def test_every_target_is_described(root, read_page):
    page = read_page.read(root / "docs" / "benchmarks.md").section("Targets")
    described = page.first_codes("`--target`")
    assert {target.value for target in Target} <= set(described)
