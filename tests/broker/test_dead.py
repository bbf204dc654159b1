"""Dead jobs, kept and found again."""

from __future__ import annotations

from headway.broker.connection import Connection
from headway.broker.dead import DeadLetter, DeadLetters
from headway.core.job import JobKey


def letter(sequence: int, tenant: str = "acme", job_id: str = "a1", payload: bytes = b'{"prompt": "x"}') -> DeadLetter:
    return DeadLetter(JobKey(tenant, job_id), "default", "attempts_exhausted: no worker", payload, sequence, 3)


async def test_a_dead_job_comes_back_as_it_was_put(connection: Connection) -> None:
    dead = DeadLetters(connection)
    await dead.put(letter(7))
    (stored,) = await dead.show(JobKey("acme", "a1"))
    assert stored.letter == letter(7)
    assert stored.died_at > 0


async def test_a_new_leader_that_finds_it_dead_again_adds_nothing(connection: Connection) -> None:
    dead = DeadLetters(connection)
    await dead.put(letter(7))
    await dead.put(letter(7))
    assert len(await dead.read()) == 1


async def test_jobs_in_conflict_are_kept_apart(connection: Connection) -> None:
    dead = DeadLetters(connection)
    await dead.put(letter(7))
    await dead.put(letter(8, payload=b"other"))
    assert [stored.letter.payload for stored in await dead.show(JobKey("acme", "a1"))] == [b'{"prompt": "x"}', b"other"]


async def test_a_tenant_sees_its_own_and_pages_go_on(connection: Connection) -> None:
    dead = DeadLetters(connection)
    for sequence in range(1, 6):
        await dead.put(letter(sequence, tenant="acme" if sequence % 2 else "other", job_id=f"a{sequence}"))
    assert [stored.letter.key.id for stored in await dead.read("acme")] == ["a1", "a3", "a5"]
    first = await dead.read(max_letters=2)
    rest = await dead.read(from_sequence=first[-1].sequence + 1)
    assert [stored.letter.stream_sequence for stored in (*first, *rest)] == [1, 2, 3, 4, 5]


async def test_a_payload_as_large_as_a_message_and_a_long_reason_are_cut_to_fit(connection: Connection) -> None:
    dead = DeadLetters(connection)
    huge = letter(7, payload=b"x" * connection.max_payload)
    await dead.put(DeadLetter(huge.key, "default", "why\r\nso " * 500, huge.payload, 7))
    (stored,) = await dead.read()
    assert len(stored.letter.payload) > connection.max_payload - 2048
    assert stored.letter.reason.startswith("why so why so")
