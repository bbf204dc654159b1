"""From files to the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import jinja2

from loadtest.page.facts import settings, what_was_run
from loadtest.page.names import readable
from loadtest.page.plots.catalogue import drawn_plots
from loadtest.page.subjects import subjects_of
from loadtest.page.tables import tables
from loadtest.results.documents import Document
from loadtest.results.files import write_report

TEMPLATE = "report.html.j2"


def write_page(documents: Mapping[str, Document], path: Path) -> None:
    """``documents`` by the names that they shall have on the page. Raises `BenchError` if it cannot be written."""
    write_report(path, render_page(documents))


def render_page(documents: Mapping[str, Document]) -> str:
    # Whatever comes from a file is escaped, names in plots by matplotlib.
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("loadtest.page", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    subjects = subjects_of(documents)
    return environment.get_template(TEMPLATE).render(
        title=_title(documents),
        facts=what_was_run(documents),
        tables=tables(subjects, documents),
        settings=settings(documents),
        plots=drawn_plots(subjects),
    )


def _title(documents: Mapping[str, Document]) -> str:
    names = dict.fromkeys(
        readable(str(document.scenario or document.workload or file)) for file, document in documents.items()
    )
    return "Headway bench: " + ", ".join(names)
