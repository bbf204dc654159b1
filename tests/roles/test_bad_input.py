"""What is wrong with one job is said to its own client, and to nobody else."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headway.roles.local import LocalRole

pytestmark = pytest.mark.asyncio(loop_scope="session")
Job = Callable[..., dict[str, Any]]

FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "an unknown field": ({"temprature": 1}, "unknown_field", "temprature"),
    "a wrong type": ({"max_tokens": "12"}, "invalid_value", "max_tokens"),
    "a value out of range": ({"temperature": -1}, "invalid_value", "temperature"),
    "an empty prompt": ({"prompt": ""}, "invalid_value", "prompt"),
    "an empty list of ids": ({"prompt": []}, "invalid_value", "prompt"),
    "a token id that is not in the vocabulary": ({"prompt": [5, 98]}, "invalid_value", "prompt"),
    "a text longer than the model": ({"prompt": "x" * 1013}, "too_long", "max_tokens"),
    "a list of ids longer than the model": ({"prompt": [5] * 1013}, "too_long", "max_tokens"),
}


async def test_each_fault_is_answered_with_code_and_field_and_the_jobs_around_it_finish(
    wire: Any, tenant: str, job: Job
) -> None:
    for number, (fields, _, _) in enumerate(FAULTS.values()):
        await wire.publish(tenant, job(id=f"good{number}"))
        await wire.publish(tenant, job(id=f"bad{number}", **fields))
    errors = {name: (await wire.ended(tenant, f"bad{number}")).error for number, name in enumerate(FAULTS)}
    assert errors == {name: (code, field) for name, (_, code, field) in FAULTS.items()}
    for number in range(len(FAULTS)):
        bad, good = wire.log(tenant, f"bad{number}"), await wire.ended(tenant, f"good{number}")
        assert (bad.end["finish_reason"], bad.token_ids) == ("rejected", [])
        assert (good.end["finish_reason"], len(good.token_ids)) == ("length", 12)


async def test_a_prompt_that_just_fits_is_taken(wire: Any, tenant: str) -> None:
    assert (await wire.run(tenant, "fits", prompt="x" * 1012)).end["finish_reason"] == "length"


async def test_an_unknown_model_is_rejected(wire: Any, tenant: str, job: Job) -> None:
    await wire.publish(tenant, job(id="a1"), model="nobodys")
    assert (await wire.ended(tenant, "a1")).error == ("unknown_model", "model")


async def test_what_is_no_json_is_a_dead_letter_and_an_end_under_its_place_in_the_stream(
    wire: Any, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    sequence = await wire.publish(tenant, b"{prompt: Hello}")
    assert (await wire.ended(tenant, f"j{sequence}")).error == ("invalid_json", None)
    (reason,) = await wire.dead_reasons(tenant, f"j{sequence}")
    assert reason.startswith("invalid_json")
    assert any("dead letter" in message for message in caplog.messages)


async def test_a_reserved_id_is_rejected_under_its_place_in_the_stream(wire: Any, tenant: str, job: Job) -> None:
    sequence = await wire.publish(tenant, job(id="j1"))
    assert (await wire.ended(tenant, f"j{sequence}")).error == ("invalid_value", "id")
    assert wire.log(tenant, "j1").records == []


@pytest.mark.parametrize("first_has_ended", [True, False])
async def test_another_payload_under_a_known_identity_is_dead_and_the_first_job_untouched(
    local: LocalRole,
    wire: Any,
    tenant: str,
    job: Job,
    eventually: Callable[..., Awaitable[None]],
    first_has_ended: bool,
) -> None:
    await wire.publish(tenant, job(id="a1", max_tokens=200))
    if first_has_ended:
        await wire.ended(tenant, "a1")
    await wire.publish(tenant, job(id="a1", max_tokens=200, prompt="Other"))

    async def is_dead() -> bool:
        return len(await wire.dead_reasons(tenant, "a1")) == 1 and await wire.num_jobs() == 0

    await eventually(is_dead)
    log = wire.log(tenant, "a1")
    assert (log.kinds, len(log.token_ids)) == (["attempt", "tokens", "end"], 200)
    assert log.token_ids == (await wire.run(tenant, "same", max_tokens=200)).token_ids


@pytest.mark.parametrize("first_has_ended", [True, False])
async def test_the_same_payload_again_is_the_same_job(
    wire: Any, tenant: str, job: Job, eventually: Callable[..., Awaitable[None]], first_has_ended: bool
) -> None:
    payload = json.dumps(job(id="a1", max_tokens=100)).encode()
    await wire.publish(tenant, payload)
    if first_has_ended:
        await wire.ended(tenant, "a1")
    await wire.publish(tenant, payload)

    async def settled() -> bool:
        return await wire.num_jobs() == 0

    await eventually(settled)
    log = wire.log(tenant, "a1")
    assert len(log.of_kind("attempt")) == len(log.of_kind("end")) == 1
    assert await wire.dead_reasons(tenant, "a1") == []


async def write_log(wire: Any, tenant: str, job_id: str, record: bytes) -> None:
    await wire.client.jetstream().publish(f"headway.log.{tenant}.{job_id}", record)


async def test_a_job_whose_log_has_lost_its_first_tokens_ends_with_an_error(wire: Any, tenant: str, job: Job) -> None:
    rest = {"kind": "tokens", "seq": 1, "token_start": 5, "token_ids": [7], "text": "x"}
    await write_log(wire, tenant, "a1", json.dumps(rest).encode())
    await wire.publish(tenant, job(id="a1"))
    log = await wire.ended(tenant, "a1")
    assert (log.end["finish_reason"], log.end["error"]["code"]) == ("error", "log_incomplete")


async def test_a_record_that_nobody_can_read_harms_no_job(wire: Any, tenant: str, job: Job) -> None:
    await write_log(wire, tenant, "a1", b'{"kind": "tokens", "seq": "x"}')
    await wire.publish(tenant, job(id="a1"))
    assert (await wire.ended(tenant, "a1")).end["finish_reason"] == "length"


async def test_a_faulty_resend_of_a_waiting_job_is_dead_and_the_job_untouched(
    parts: Any, tenant: str, job: Job, eventually: Callable[..., Awaitable[None]]
) -> None:
    queue = await parts.queue()
    await parts.wire.publish(tenant, job(id="a1"))
    await parts.wire.publish(tenant, job(id="a1", max_tokens=-1))

    async def is_settled() -> bool:
        return await parts.wire.num_jobs() == 1

    await eventually(is_settled)
    (reason,) = await parts.wire.dead_reasons(tenant, "a1")
    assert reason.startswith("conflict")
    assert parts.wire.log(tenant, "a1").records == []
    assert queue.status().models[0].num_waiting_jobs == 1
