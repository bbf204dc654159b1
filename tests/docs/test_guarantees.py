"""docs/guarantees.md: every test that it names exists, and every test of the fault suite is in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")


def names_of(path: Path) -> set[str]:
    if not path.exists():
        return set()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, functions) and node.name.startswith("test_")}


def is_there(tests: set[str], test: str) -> bool:
    """A file that is named without a test stands for all of its tests."""
    return test in tests if test else bool(tests)


@pytest.fixture(scope="module")
def named() -> list[tuple[str, str]]:
    return NAMED.findall((ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8"))


def test_every_test_that_shows_a_guarantee_exists(named: list[tuple[str, str]]) -> None:
    assert len(named) > 30
    assert [f"{path}::{test}" for path, test in named if not is_there(names_of(ROOT / path), test)] == []


def test_every_test_of_the_fault_suite_stands_for_a_guarantee(named: list[tuple[str, str]]) -> None:
    suite = {
        (str(path.relative_to(ROOT)), test)
        for path in (ROOT / "tests" / "faults").glob("test_*.py")
        for test in names_of(path)
    }
    assert suite - set(named) == set()
