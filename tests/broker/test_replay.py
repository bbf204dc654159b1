"""Reading a stream by pages, against a real server."""

from __future__ import annotations

import pytest

from headway.broker.connection import Connection
from headway.broker.errors import BrokerError
from headway.broker.replay import read_page
from headway.broker.streams import RESULTS


async def store(connection: Connection, *subjects: str) -> None:
    for number, subject in enumerate(subjects, start=1):
        await connection.js.publish(subject, str(number).encode())


async def test_a_page_holds_one_subject_in_order(connection: Connection) -> None:
    await store(connection, "headway.log.a.x", "headway.log.a.y", "headway.log.a.x")
    page = await read_page(connection, RESULTS, "headway.log.a.x", 1)
    assert [message.data for message in page] == [b"1", b"3"]


async def test_a_page_begins_at_its_sequence_and_is_bounded(connection: Connection) -> None:
    await store(connection, *["headway.log.a.x"] * 6)
    page = await read_page(connection, RESULTS, "headway.log.a.x", 3, max_messages=2)
    assert [message.metadata.sequence.stream for message in page] == [3, 4]


async def test_nothing_stored_is_an_empty_page(connection: Connection) -> None:
    assert await read_page(connection, RESULTS, "headway.log.a.x", 1) == []


async def test_a_stream_that_does_not_exist_is_an_error(connection: Connection) -> None:
    with pytest.raises(BrokerError):
        await read_page(connection, "NOWHERE", "headway.log.a.x", 1)
