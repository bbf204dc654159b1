"""The whole path with a tiny model: several tenants, clients that give up, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from headway.core.job import FinishReason
from headway.core.queue_config import QueueConfig, QueuePolicy
from headway.core.scheduler_config import PrefixSharing, SchedulerConfig
from headway.engine.config import EngineConfig
from headway.settings import Settings
from loadtest.opening import with_weights
from loadtest.recording import Outcome
from loadtest.targets.nats_target import WholePath, open_path
from loadtest.workloads.plan import ClosedLoop
from loadtest.workloads.requests import Request


@pytest.fixture(scope="module")
def path(tiny_model: Path) -> Iterator[WholePath]:
    settings = Settings(
        engine=EngineConfig(model=str(tiny_model), kv_memory="1MiB"),
        scheduler=SchedulerConfig(max_num_seqs=4, prefix_sharing=PrefixSharing.OFF),
        queue=QueueConfig(policy=QueuePolicy.WEIGHTED_FAIR),
    )
    with open_path(with_weights(settings, {"acme": 2.0}), print) as opened:
        yield opened


def request(num_tokens: int = 6, num_prompt_tokens: int = 5, **fields: object) -> Request:
    return Request(tuple(range(10, 10 + num_prompt_tokens)), num_tokens, **fields)


def test_every_tenant_has_its_requests_answered_and_their_delay_in_the_queue_told(path):
    requests = [request(6, tenant="acme"), request(9, tenant="zoo", priority=3)]
    recording = path.run(requests, [0.0, 0.05])
    assert [line.outcome for line in recording.timelines] == [Outcome.COMPLETED] * 2
    assert [line.tenant for line in recording.timelines] == ["acme", "zoo"]
    assert all(0 <= line.queue_seconds <= line.ttft_seconds for line in recording.timelines)
    assert len(recording.steps.ends) == len(recording.steps.steps) > 0
    assert all(0 < end.at < 60 for end in recording.steps.ends)


def test_a_client_that_gives_up_cancels_its_job_and_the_others_go_on(path):
    recording = path.run([request(240, cancel_after_seconds=0.0), request(9, cancel_after_seconds=60.0)], [0.0, 0.0])
    assert [line.outcome for line in recording.timelines] == [Outcome.CANCELLED, Outcome.COMPLETED]
    assert recording.timelines[0].num_tokens < 240
    assert recording.errors == {}


def test_a_closed_loop_sends_after_the_answer(path):
    recording = path.run([request()] * 3, ClosedLoop(1, pauses=[0.0, 0.1, 0.1], due_at=[None] * 3))
    lines = recording.timelines
    assert len(recording.completed) == 3
    assert all(after.due_at >= before.ended_at + 0.1 for before, after in pairwise(lines))


def test_what_the_service_rejects_has_failed_with_its_code(path):
    recording = path.run([request(num_prompt_tokens=5), request(num_tokens=500)], [0.0, 0.0])
    assert [line.outcome for line in recording.timelines] == [Outcome.COMPLETED, Outcome.FAILED]
    assert recording.timelines[1].finish_reason is FinishReason.REJECTED
    assert recording.errors == {"too_long": 1}


def test_a_job_without_an_end_is_lost_after_the_timeout(path):
    hasty = dataclasses.replace(path, timeout_seconds=0.0)
    recording = hasty.run([request()], [0.0])
    assert recording.timelines[0].outcome is Outcome.LOST
    assert recording.errors == {"no end within 0 s": 1}


def test_weights_of_a_scenario_are_the_queues_unless_the_settings_say_otherwise():
    given = Settings(queue=QueueConfig(tenant_weights={"acme": 5.0}))
    assert with_weights(given, {"acme": 2.0, "zoo": 3.0}).queue.tenant_weights == {"acme": 5.0, "zoo": 3.0}
