"""A page taken apart again, as a browser would."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser

import pytest

from loadtest.page.write import render_page
from loadtest.results.documents import Document, decode_document
from tests.loadtest.reports import Report

VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})


@dataclass
class Page(HTMLParser):
    text: str
    titles: list[str] = field(default_factory=list)
    """Of sections, and of plots."""
    plots: dict[str, list[str]] = field(default_factory=dict)
    """The texts in each plot, by its title."""
    rows: dict[str, list[str]] = field(default_factory=dict)
    """The cells of each row of the tables, by its beginning."""
    words: list[str] = field(default_factory=list)
    """All texts."""
    tags: set[str] = field(default_factory=set)
    attributes: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self._row: list[str] | None = None
        self.feed(self.text)
        self.close()
        self.problems += [f"<{tag}> is not closed" for tag in self._open]

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)
        if tag == "tr":
            self._row = []

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag):
        if not self._open or self._open.pop() != tag:
            self.problems.append(f"</{tag}> closes something else at {self.getpos()}")
        if tag == "tr" and self._row:
            self.rows[self._row[0]], self._row = self._row[1:], None

    def handle_data(self, data):
        if not data.strip():
            return
        within = self._open[-1] if self._open else ""
        self.words.append(data)
        if within in ("h1", "h2", "figcaption"):
            self.titles.append(data)
        if within == "figcaption":
            self.plots[data] = []
        if "svg" in self._open and within == "text":
            self.plots[self.titles[-1]].append(data)
        if within in ("th", "td") and self._row is not None:
            self._row.append(data)


def document(content: Report) -> Document:
    return decoded(json.dumps(content))


def decoded(text: str) -> Document:
    return decode_document(text.encode(), "a file")


@cache
def rendered(*files: tuple[str, str]) -> str:
    """The page of these files, by name and content. Plots take seconds, so the same ones are drawn once."""
    return render_page({name: decoded(content) for name, content in files})


@pytest.fixture
def render() -> Callable[..., Page]:
    """Of reports by the names of their files."""

    def of(*contents: Report, **named: Report) -> Page:
        files = {**{f"report-{number}": content for number, content in enumerate(contents)}, **named}
        return Page(rendered(*((name, json.dumps(content)) for name, content in files.items())))

    return of
