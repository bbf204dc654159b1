"""The Grafana dashboard: made from its description, what Grafana's schema asks for, and shipped by the chart."""

import json
from itertools import pairwise

import pytest
from grafana_foundation_sdk.builders import prometheus, stat, timeseries  # noqa: F401  # known to the decoder then
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from charts.dashboards.__main__ import ROWS, build

GRID_COLUMNS = 24


@pytest.fixture(scope="module")
def text(chart):
    return (chart / "dashboards" / "headway.json").read_text()


@pytest.fixture(scope="module")
def panels(text):
    return json.loads(text)["panels"]


def test_the_file_is_what_its_description_makes(text):
    assert text == build(), "run: .venv/bin/python -m charts.dashboards"


def test_it_is_what_grafanas_schema_asks_for(text):
    read = Dashboard.from_json(json.loads(text))
    assert json.loads(json.dumps(read, cls=JSONEncoder)) == json.loads(text), "no field is foreign to it"


def test_every_panel_says_what_it_shows_and_asks_the_variable_data_source(panels):
    for panel in (panel for panel in panels if panel["type"] != "row"):
        assert panel["description"].endswith((".", "first.")), panel["title"]
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references)) > 0


def test_panels_have_ids_of_their_own_and_do_not_overlap(panels):
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= GRID_COLUMNS
        fields = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not fields & taken, panel["title"]
        taken |= fields


def test_rows_follow_each_other_from_the_queue_to_the_process(panels):
    assert [panel["title"] for panel in panels if panel["type"] == "row"] == [row.title for row in ROWS]
    assert all(before["gridPos"]["y"] <= after["gridPos"]["y"] for before, after in pairwise(panels))


def test_every_choice_may_be_all_which_matches_a_missing_label_too(text):
    _, *choices = json.loads(text)["templating"]["list"]
    for variable in choices:
        assert (variable["includeAll"], variable["allValue"], variable["multi"]) == (True, ".*", True)


def test_the_chart_ships_it_under_the_label_that_grafanas_sidecar_looks_for(matrix, text):
    shipped = matrix["monitoring"].one("ConfigMap", "headway-dashboards")
    assert shipped["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(shipped["data"]["headway.json"]) == json.loads(text)


def test_series_carry_the_release_that_the_dashboard_asks_for(matrix):
    for kind in ("PodMonitor", "ServiceMonitor"):
        assert matrix["monitoring"].one(kind, "headway")["spec"]["podTargetLabels"] == ["app.kubernetes.io/instance"]
