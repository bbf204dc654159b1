"""Writes charts/headway/dashboards/headway.json, Grafana's form of the rows beside this file.

    .venv/bin/python -m charts.dashboards

The builders are Grafana's own, so that the JSON is what its schema asks for; the first schema and not the second, which
neither the sidecar nor versions before 12 know. Importing it by hand works as well as the
chart's ConfigMap: the data source is a variable, and where Prometheus has no label ``namespace`` or no release, "All"
matches what has none.
"""

from __future__ import annotations

import json
from pathlib import Path

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    DataSourceRef,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
)

from charts.dashboards.panels import Kind, Panel, Query
from charts.dashboards.queue_rows import AT_A_GLANCE, QUEUE, TENANTS
from charts.dashboards.worker_rows import FAILURES, LATENCIES, PROCESSES, WORKERS

TARGET = Path(__file__).parents[1] / "headway" / "dashboards" / "headway.json"
ROWS = (AT_A_GLANCE, QUEUE, TENANTS, WORKERS, LATENCIES, FAILURES, PROCESSES)
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
EVERYTHING = ".*"
"""Matches a label that is not there, too."""
WIDTH, HEIGHT, NUMBER_WIDTH, NUMBER_HEIGHT = 8, 8, 6, 4
"""Of 24 columns."""
VARIABLES = {
    "namespace": ("Namespace", "label_values(headway_ready, namespace)"),
    "release": (
        "Release",
        'label_values(headway_ready{namespace=~"$namespace"}, app_kubernetes_io_instance)',
    ),
    "model": ("Model", 'label_values({__name__=~"headway_outstanding_jobs|headway_slots_total"}, model)'),
    "tenant": ("Tenant", 'label_values(headway_attempts_total{namespace=~"$namespace",model=~"$model"}, tenant)'),
}
"""Name → label and query."""


def build() -> str:
    board = (
        dashboard.Dashboard("Headway")
        .uid("headway")
        .description("What waits, who is served, what the engines do, and what fails.")
        .tags(["headway"])
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for name, (label, query) in VARIABLES.items():
        board = board.with_variable(_variable(name, label, query))
    for row in ROWS:
        board = board.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            board = board.with_panel(_number(panel) if panel.kind is Kind.NUMBER else _lines(panel))
    built = board.build()
    for number, item in enumerate(built.panels or (), start=1):
        item.id_val = number
    return json.dumps(built, cls=JSONEncoder, indent=1, ensure_ascii=False) + "\n"


def _variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(EVERYTHING)
        .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def _lines(panel: Panel) -> timeseries.Panel:
    built = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.description)
        .datasource(SOURCE)
        .unit(panel.unit)
        .min(0)
        .span(WIDTH)
        .height(HEIGHT)
        .line_width(1)
        .fill_opacity(30 if panel.kind is Kind.STACK else 8)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    )
    if panel.kind is Kind.STACK:
        built = built.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    for query in panel.queries:
        built = built.with_target(_target(panel, query))
    return built


def _number(panel: Panel) -> stat.Panel:
    built = (
        stat.Panel()
        .title(panel.title)
        .description(panel.description)
        .datasource(SOURCE)
        .unit(panel.unit)
        .span(NUMBER_WIDTH)
        .height(NUMBER_HEIGHT)
        .color_mode(BigValueColorMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )
    for query in panel.queries:
        built = built.with_target(_target(panel, query))
    return built


def _target(panel: Panel, query: Query) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery()
        .expr(query.expression)
        .legend_format(query.legend)
        .datasource(SOURCE)
        .ref_id("ABCDEF"[panel.queries.index(query)])
    )


if __name__ == "__main__":
    TARGET.write_text(build())
