"""The streams that Headway lives in: their names, subjects and settings, created or checked.

    headway.jobs.<model>.<tenant>   HEADWAY_JOBS      work queue; full means refused, never dropped
    headway.log.<tenant>.<id>       HEADWAY_RESULTS   one log per job; stored records go out again on
    headway.results.<tenant>.<id>                     (republished, so readers see only what was stored)
    headway.dead.<tenant>.<id>      HEADWAY_DEAD      jobs that failed for good
    $KV.HEADWAY_STATE.>             KV_HEADWAY_STATE  leader epoch, capacity, fairness counters

Two kinds of settings. What the delivery guarantee rests on (`GUARANTEES`: subjects, retention, what happens when
full, republishing) must be exactly so, whoever made the stream. Limits belong to whoever makes the streams: we
keep them as configured if we may create streams, and otherwise only insist that there are some.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RePublish, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import NotFoundError

from headway.broker.config import BrokerConfig
from headway.broker.errors import StreamMismatch, StreamMissing, translated
from headway.core.job import JobKey

log = logging.getLogger(__name__)

JOBS = "HEADWAY_JOBS"
RESULTS = "HEADWAY_RESULTS"
DEAD = "HEADWAY_DEAD"
STATE_BUCKET = "HEADWAY_STATE"
DUPLICATE_WINDOW_SECONDS = 120.0
"""How long the broker knows a message by its ``Nats-Msg-Id``: retries of a publish must come within it."""
STATE = f"KV_{STATE_BUCKET}"

GUARANTEES = (
    "subjects",
    "retention",
    "storage",
    "discard",
    "discard_new_per_subject",
    "allow_direct",
    "allow_msg_ttl",
    "republish",
    "no_ack",
    "sealed",
    "mirror",
)
"""Fields of a stream that must be exactly as specified."""
LIMITS = (
    "max_msgs",
    "max_bytes",
    "max_age",
    "max_msg_size",
    "max_msgs_per_subject",
    "duplicate_window",
    "num_replicas",
)
"""Fields that belong to whoever makes the streams; those that we bound (greater than 0) must be bounded anyway."""


def jobs_subject(model: str, tenant: str) -> str:
    return f"headway.jobs.{model}.{tenant}"


def log_subject(key: JobKey) -> str:
    """Where a job's records are written."""
    return f"headway.log.{key.tenant}.{key.id}"


def results_subject(key: JobKey) -> str:
    """Where a job's stored records come out, for readers."""
    return f"headway.results.{key.tenant}.{key.id}"


def dead_subject(key: JobKey) -> str:
    return f"headway.dead.{key.tenant}.{key.id}"


def replay_subject(key: JobKey) -> str:
    """Where a page of a job's log is asked for."""
    return f"headway.replay.{key.tenant}.{key.id}"


def cancel_subject(key: JobKey) -> str:
    return f"headway.cancel.{key.tenant}.{key.id}"


@dataclass(frozen=True, slots=True)
class StreamReport:
    """What `ensure_streams` did to one stream."""

    stream: str
    created: bool = False
    updated: bool = False


def stream_specs(config: BrokerConfig) -> tuple[StreamConfig, ...]:
    """The streams as Headway wants them, in the order of the module's picture."""
    return (_jobs(config), _results(config), _dead(config), _state(config))


async def ensure_streams(js: JetStreamContext, config: BrokerConfig) -> tuple[StreamReport, ...]:
    """Create or check every stream; can be repeated, and by several processes at once.

    Raises `StreamMissing` or `StreamMismatch` with what a person has to do, or `BrokerUnavailable`.
    """
    return tuple([await ensure_stream(js, spec, config.create_streams) for spec in stream_specs(config)])


async def ensure_stream(js: JetStreamContext, spec: StreamConfig, may_create: bool) -> StreamReport:
    """`ensure_streams` for one stream, as `stream_specs` gives it."""
    name = spec.name or ""
    with translated(f"look at stream {name}"):
        try:
            found = (await js.stream_info(name)).config
        except NotFoundError:
            found = None
    if found is None:
        return await _create(js, spec, may_create)
    _verify(spec, found)
    changes = {field: getattr(spec, field) for field in LIMITS if getattr(found, field) != getattr(spec, field)}
    if may_create and changes:
        log.info("stream %s: limits become %s", name, changes)
        with translated(f"update stream {name}"):
            await js.update_stream(found.evolve(**changes))
        return StreamReport(name, updated=True)
    _verify_bounded(spec, found)
    return StreamReport(name)


async def _create(js: JetStreamContext, spec: StreamConfig, may_create: bool) -> StreamReport:
    """Creating is idempotent: a stream that another process made meanwhile with the same settings is fine."""
    name = spec.name or ""
    if not may_create:
        raise StreamMissing(name)
    with translated(f"create stream {name}"):
        await js.add_stream(spec)
    return StreamReport(name, created=True)


def _verify(spec: StreamConfig, found: StreamConfig) -> None:
    for field in GUARANTEES:
        expected, actual = _normal(getattr(spec, field)), _normal(getattr(found, field))
        if expected != actual:
            raise StreamMismatch(spec.name or "", field, expected, actual)


def _verify_bounded(spec: StreamConfig, found: StreamConfig) -> None:
    for field in LIMITS:
        if (getattr(spec, field) or 0) > 0 and (getattr(found, field) or 0) <= 0:
            raise StreamMismatch(spec.name or "", field, f"bounded, like {getattr(spec, field)}", getattr(found, field))


def _normal(value: object) -> object:
    """Comparable and readable: absent and off are the same; enums and republishing as plain values."""
    if isinstance(value, RePublish):
        return f"{value.src} -> {value.dest}" + (" (headers only)" if value.headers_only else "")
    if isinstance(value, list):
        return tuple(sorted(value))
    return str(getattr(value, "value", value)) if value else None


def _jobs(config: BrokerConfig) -> StreamConfig:
    """No per-message TTL: it would delete a job that a worker holds, with nobody to say so."""
    return StreamConfig(
        name=JOBS,
        description="Headway: jobs that wait or run",
        subjects=["headway.jobs.*.*"],
        retention=RetentionPolicy.WORK_QUEUE,
        discard=DiscardPolicy.NEW,
        discard_new_per_subject=True,
        max_msgs=config.max_waiting_jobs,
        max_bytes=config.max_waiting_bytes,
        max_msg_size=config.max_job_bytes,
        max_msgs_per_subject=config.max_waiting_jobs_per_tenant,
        max_age=0.0,
        duplicate_window=DUPLICATE_WINDOW_SECONDS,
        storage=StorageType.FILE,
        num_replicas=config.num_stream_replicas,
    )


def _results(config: BrokerConfig) -> StreamConfig:
    return StreamConfig(
        name=RESULTS,
        description="Headway: the log of each job",
        subjects=["headway.log.*.*"],
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.NEW,
        max_msgs=-1,
        max_bytes=config.max_result_bytes,
        max_age=config.results_max_age_seconds,
        duplicate_window=min(DUPLICATE_WINDOW_SECONDS, config.results_max_age_seconds),
        allow_direct=True,
        republish=RePublish(src="headway.log.*.*", dest="headway.results.{{wildcard(1)}}.{{wildcard(2)}}"),
        storage=StorageType.FILE,
        num_replicas=config.num_stream_replicas,
    )


def _dead(config: BrokerConfig) -> StreamConfig:
    return StreamConfig(
        name=DEAD,
        description="Headway: jobs that failed for good",
        subjects=["headway.dead.*.*"],
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.OLD,
        max_msgs=-1,
        max_bytes=config.max_dead_bytes,
        max_age=0.0,
        duplicate_window=DUPLICATE_WINDOW_SECONDS,
        storage=StorageType.FILE,
        num_replicas=config.num_stream_replicas,
    )


def _state(config: BrokerConfig) -> StreamConfig:
    """A key-value bucket, with the settings that ``nats kv add`` gives one too."""
    return StreamConfig(
        name=STATE,
        description="Headway: leader epoch, capacity, fairness counters",
        subjects=[f"$KV.{STATE_BUCKET}.>"],
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.NEW,
        max_msgs=-1,
        max_bytes=-1,
        max_msgs_per_subject=1,
        max_age=0.0,
        duplicate_window=DUPLICATE_WINDOW_SECONDS,
        allow_rollup_hdrs=True,
        deny_delete=True,
        allow_direct=True,
        storage=StorageType.FILE,
        num_replicas=config.num_stream_replicas,
    )
