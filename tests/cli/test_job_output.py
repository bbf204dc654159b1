"""What is printed of a job's text."""

from __future__ import annotations

import pytest

from headway.broker.errors import BrokerUnavailable
from headway.broker.results import Chunk
from headway.commands.job_output import print_stream, printable


def test_a_model_cannot_steer_the_terminal():
    assert printable("a\x1b[2Jb\r\x07\x9bc") == "a[2Jbc"


def test_text_of_any_language_is_printed_with_its_line_breaks_and_tabs():
    text = "één\tzwei\n三 🙂"
    assert printable(text) == text


async def test_text_that_an_error_cuts_off_ends_its_line(capsys):
    async def stream():
        yield Chunk(text="Well, I")
        raise BrokerUnavailable("read", "closed")

    with pytest.raises(BrokerUnavailable):
        await print_stream(stream(), lambda: None)
    assert capsys.readouterr().out == "Well, I\n"
