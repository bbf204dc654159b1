"""Many jobs at once: each is right, and they share the engine's steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headway.roles.local import LocalRole

pytestmark = pytest.mark.asyncio(loop_scope="session")
NUM_JOBS = 60
NUM_TENANTS = 3


def job_fields(number: int) -> dict[str, Any]:
    """Prompts and outputs of different lengths; every fourth job is as another one."""
    number -= number % 4 == 3
    return {"prompt": f"{number} bottles " * (1 + number % 3), "max_tokens": 5 + 7 * (number % 5)}


async def test_sixty_jobs_of_three_tenants_end_once_each_as_if_alone(
    local: LocalRole,
    wire: Any,
    tenant: str,
    job: Callable[..., dict[str, Any]],
    eventually: Callable[..., Awaitable[None]],
) -> None:
    alone = {number: await wire.run(f"{tenant}-alone", f"n{number}", **job_fields(number)) for number in (0, 1, 2, 8)}
    before = local.worker.stats
    assert before is not None
    keys = [(f"{tenant}-{number % NUM_TENANTS}", f"n{number}") for number in range(NUM_JOBS)]
    await wire.publish_all((name, job(id=job_id, **job_fields(number))) for number, (name, job_id) in enumerate(keys))
    logs = await asyncio.gather(*(wire.ended(name, job_id) for name, job_id in keys))

    for number, log in enumerate(logs):
        assert log.kinds == ["attempt", "tokens", "end"]
        assert log.end["finish_reason"] == "length"
        assert log.end["usage"]["completion_tokens"] == len(log.token_ids) == job_fields(number)["max_tokens"]
        if number in alone:
            assert (log.text, log.token_ids) == (alone[number].text, alone[number].token_ids)
        if number % 4 == 3:
            assert log.token_ids == logs[number - 1].token_ids

    async def settled() -> bool:
        return await wire.num_jobs() == 0

    await eventually(settled)
    after = local.worker.stats
    assert after is not None
    num_busy = after.num_busy_slots_total - before.num_busy_slots_total
    num_slots = after.num_slots_total - before.num_slots_total
    # Free slots are taken within a step or two where the machine has time, and later where it has not.
    assert num_busy > 0.5 * num_slots, "jobs shared the steps"
    assert [key for key in wire.attempts if key in keys] == keys, "first in, first out"
