"""Where reports go."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from loadtest.errors import BenchError, BenchInputError
from loadtest.results.files import check_writable, write_report


def test_what_can_be_written_is_not_touched_by_the_question(tmp_path):
    old = tmp_path / "old.json"
    old.write_text("content")
    for path in (old, tmp_path / "new.json"):
        check_writable(path)
    assert old.read_text() == "content"
    assert list(tmp_path.iterdir()) == [old]


@pytest.mark.parametrize("name", ["nowhere/out.json", "."])
def test_what_cannot_be_written_is_named_beforehand(name, tmp_path):
    with pytest.raises(BenchInputError, match=r"cannot write to .*; name another file"):
        check_writable(tmp_path / name)


@pytest.mark.skipif(sys.platform != "linux", reason="has /dev/full")
def test_a_disk_that_is_full_by_then_is_named():
    check_writable(Path("/dev/full"))
    with pytest.raises(BenchError, match="/dev/full: No space left"):
        write_report(Path("/dev/full"), "text")
