"""The pages of the documentation, as the tests read them: code blocks, tables, sections, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Page:
    """Markdown, or a part of it."""

    path: Path
    text: str

    @classmethod
    def read(cls, path: Path) -> Page:
        return cls(path, path.read_text(encoding="utf-8"))

    @property
    def prose(self) -> str:
        """Without code blocks."""
        return FENCE.sub("", self.text)

    @property
    def links(self) -> list[str]:
        return LINK.findall(self.prose)

    @property
    def anchors(self) -> set[str]:
        """As GitHub makes them of headings."""
        headings = re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}

    def blocks(self, language: str) -> list[str]:
        """Code blocks with exactly this behind the fence: ``sh``, ``json record``."""
        return [text for info, text in FENCE.findall(self.text) if info.strip() == language]

    def section(self, heading: str) -> Page:
        """From the heading to the next one of the same or a higher level."""
        start = re.search(rf"^(#+) {re.escape(heading)}$", self.text, re.MULTILINE)
        assert start is not None, f"{self.path.name} has no section {heading!r}"
        rest = self.text[start.end() :]
        following = re.search(rf"^#{{1,{len(start[1])}}} ", FENCE.sub(lambda block: "-" * len(block[0]), rest), re.M)
        return Page(self.path, rest[: following.start()] if following else rest)

    def rows(self, header: str) -> list[list[str]]:
        """The cells of the first table whose first column has this header."""
        lines = iter(self.prose.splitlines())
        for line in lines:
            if line.startswith(f"| {header} |"):
                return [_cells(row) for row in _table_rows(lines)]
        raise AssertionError(f"{self.path.name} has no table with the first column {header!r}")

    def first_codes(self, header: str) -> list[str]:
        """Everything in code style in the first column of that table."""
        return [name for row in self.rows(header) for name in CODE.findall(row[0])]


def _table_rows(lines: Iterator[str]) -> Iterator[str]:
    next(lines)  # the line of dashes
    for line in lines:
        if not line.startswith("|"):
            return
        yield line


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@pytest.fixture(scope="session")
def read_page() -> type[Page]:
    """For a page of a test's own: ``read_page.read(path)``."""
    return Page


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def package() -> Path:
    return ROOT / "service" / "headway"


@pytest.fixture(scope="session")
def pages() -> list[Page]:
    """All of them."""
    return [Page.read(path) for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="session")
def readme() -> Page:
    return Page.read(ROOT / "README.md")


@pytest.fixture(scope="session")
def architecture() -> Page:
    return Page.read(ROOT / "docs" / "architecture.md")


@pytest.fixture(scope="session")
def wire() -> Page:
    return Page.read(ROOT / "docs" / "wire.md")


@pytest.fixture(scope="session")
def configuration() -> Page:
    return Page.read(ROOT / "docs" / "configuration.md")
