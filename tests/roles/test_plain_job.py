"""A job that a person could type, without any library of ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headway.broker.client import Client
from headway.broker.errors import TooLarge
from headway.core.job import FinishReason
from headway.roles.local import LocalRole

pytestmark = pytest.mark.asyncio(loop_scope="session")
Job = Callable[..., dict[str, Any]]
Eventually = Callable[..., Awaitable[None]]


async def test_a_plain_json_job_streams_its_tokens_to_its_own_subject(
    local: LocalRole, wire: Any, tenant: str, job: Job, eventually: Eventually
) -> None:
    await wire.publish(tenant, b'{"id":"a1","prompt":"Hello","max_tokens":24,"temperature":0}')
    log = await wire.ended(tenant, "a1")
    assert log.kinds == ["attempt", "tokens", "end"]
    assert log.end["finish_reason"] == "length"
    assert len(log.token_ids) == log.end["usage"]["completion_tokens"] == 24
    assert len(log.text) == 24  # one token is one character
    starts = [record["token_start"] for record in log.of_kind("tokens")]
    assert len(starts) > 1, "it streams"
    assert starts == sorted(starts)
    assert [record["seq"] for record in log.of_kind("tokens")] == list(range(len(starts)))
    await is_idle(local, wire, eventually)
    assert wire.log(tenant, "a1") == log, "nothing comes after the end"


async def is_idle(local: LocalRole, wire: Any, eventually: Eventually) -> None:
    """Nothing is left of the jobs: not in the stream, not at the worker, not in the engine's pages."""

    async def done() -> bool:
        stats = local.worker.stats
        return await wire.num_jobs() == 0 and stats is not None and stats.pages.num_used == 0

    await eventually(done)
    status = local.queue.status()
    assert [model.num_outstanding_jobs for model in status.models] == [0]
    assert [worker.num_held_jobs for worker in status.workers] == [0]


async def test_a_job_without_an_id_is_named_after_its_place_in_the_stream(wire: Any, tenant: str, job: Job) -> None:
    sequence = await wire.publish(tenant, job())
    log = await wire.ended(tenant, f"j{sequence}")
    assert log.end["finish_reason"] == "length"


async def test_a_late_reader_gets_what_the_live_reader_got(local: LocalRole, tenant: str) -> None:
    async with Client.connect(local.nats.url, tenant=tenant) as client:
        stream = await client.submit("Hello", max_tokens=40, ignore_eos=True)
        live = [chunk async for chunk in stream]
        late = [chunk async for chunk in client.follow(stream.id)]
        result = await client.result(stream.id)
    assert [chunk.token_ids for chunk in late] == [chunk.token_ids for chunk in live]
    assert late[-1] == live[-1]
    assert result.text == "".join(chunk.text for chunk in live)
    assert (result.finish_reason, len(result.token_ids), result.num_attempts) == (FinishReason.LENGTH, 40, 1)


async def test_a_job_that_does_not_stream_gives_all_tokens_in_one_record(wire: Any, tenant: str) -> None:
    streamed = await wire.run(tenant, "streamed", max_tokens=30)
    whole = await wire.run(tenant, "whole", max_tokens=30, stream=False)
    assert len(whole.of_kind("tokens")) == 1 < len(streamed.of_kind("tokens"))
    assert (whole.text, whole.token_ids) == (streamed.text, streamed.token_ids)


async def test_each_token_comes_with_its_logprobs(wire: Any, tenant: str) -> None:
    log = await wire.run(tenant, "a1", logprobs=2)
    logprobs = [entry for record in log.of_kind("tokens") for entry in record["logprobs"]]
    assert len(logprobs) == len(log.token_ids) == 12
    for token_id, entry in zip(log.token_ids, logprobs, strict=True):
        best, second = entry["top"]
        assert best[0] == token_id, "greedy takes the most likely one"
        assert 0 >= entry["logprob"] == best[1] > second[1]


async def test_a_stop_string_ends_the_job_and_is_not_part_of_its_text(wire: Any, tenant: str) -> None:
    whole = await wire.run(tenant, "whole", max_tokens=30)
    stop = whole.text[10:13]
    stopped = await wire.run(tenant, "stopped", max_tokens=30, stop=[stop])
    assert stopped.end["finish_reason"] == "stop"
    assert stopped.text == whole.text[: whole.text.index(stop)]


async def test_a_seed_repeats_its_answer_under_another_id(wire: Any, tenant: str) -> None:
    first = await wire.run(tenant, "first", temperature=1.0, seed=7, max_tokens=30)
    again = await wire.run(tenant, "again", temperature=1.0, seed=7, max_tokens=30)
    other = await wire.run(tenant, "other", temperature=1.0, seed=8, max_tokens=30)
    assert first.token_ids == again.token_ids != other.token_ids


async def test_a_chat_is_answered(wire: Any, tenant: str) -> None:
    payload = b'{"id":"chat","messages":[{"role":"user","content":"Hi"}],"max_tokens":4,"ignore_eos":true}'
    await wire.publish(tenant, payload)
    log = await wire.ended(tenant, "chat")
    assert log.end["usage"]["prompt_tokens"] == len("[user] Hi")
    assert log.end["usage"]["completion_tokens"] == 4


async def test_a_payload_over_the_limit_is_an_error_of_the_client(local: LocalRole, tenant: str) -> None:
    async with Client.connect(local.nats.url, tenant=tenant) as client:
        with pytest.raises(TooLarge) as caught:
            await client.submit("x" * (1 << 20))
        with pytest.raises(TooLarge):
            await client.submit("x" * (9 << 20))  # more than the server itself takes
    assert caught.value.size > caught.value.limit == 1 << 20
