"""What is printed of a job's text."""

from __future__ import annotations

from headway.commands.job_output import printable


def test_a_model_cannot_steer_the_terminal():
    assert printable("a\x1b[2Jb\r\x07\x9bc") == "a[2Jbc"


def test_text_of_any_language_is_printed_with_its_line_breaks_and_tabs():
    text = "één\tzwei\n三 🙂"
    assert printable(text) == text
