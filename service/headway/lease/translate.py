"""Between the lease protocol's protobuf messages and the dataclasses of `core.lease_messages`.

The only module that knows both. Whatever comes from the wire is checked here: a peer that sends nonsense gets a
``LeaseError`` and loses its stream, and nothing behind this module sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from headway.core import lease_messages as core
from headway.core.errors import LeaseError
from headway.core.job import FinishReason, JobKey
from headway.core.records import GrantToken
from headway.lease import lease_pb2 as pb

MAX_TOGETHER = 256
"""Messages that travel as one: whoever receives them looks at all of them before it does anything else."""
MAX_BYTES_TOGETHER = 256 * 1024
"""Far below what one message may hold (``max_lease_message_bytes``), and enough that its cost does not matter."""

Wire = TypeVar("Wire", pb.WorkerMessage, pb.LeaderMessage)

# -- to the wire ---------------------------------------------------------------------------------------------------


def worker_messages_to_wire(messages: Iterable[core.WorkerMessage]) -> Iterator[pb.WorkerMessages]:
    """In order, as few as their bytes allow."""
    for together in _parted(map(worker_message_to_wire, messages)):
        yield pb.WorkerMessages(messages=together)


def leader_messages_to_wire(messages: Iterable[core.LeaderMessage]) -> Iterator[pb.LeaderMessages]:
    """In order, as few as their bytes allow."""
    for together in _parted(map(leader_message_to_wire, messages)):
        yield pb.LeaderMessages(messages=together)


def _parted(messages: Iterable[Wire]) -> Iterator[list[Wire]]:
    """In lists of at most `MAX_TOGETHER` and `MAX_BYTES_TOGETHER`, but for one message that is larger by itself."""
    together: list[Wire] = []
    num_bytes = 0
    for message in messages:
        size = message.ByteSize()
        if len(together) == MAX_TOGETHER or (together and num_bytes + size > MAX_BYTES_TOGETHER):
            yield together
            together, num_bytes = [], 0
        together.append(message)
        num_bytes += size
    if together:
        yield together


def worker_message_to_wire(message: core.WorkerMessage) -> pb.WorkerMessage:
    match message:
        case core.Hello():
            return pb.WorkerMessage(hello=_hello_to_wire(message))
        case core.Demand():
            return pb.WorkerMessage(
                demand=pb.Demand(
                    num_sequences=message.num_sequences, num_pages=message.num_pages, last_grant=message.last_grant
                )
            )
        case core.Progress():
            return pb.WorkerMessage(progress=_progress_to_wire(message))
        case core.Ended():
            return pb.WorkerMessage(
                ended=pb.Ended(
                    key=_key(message.key),
                    grant=_token(message.grant),
                    finish_reason=message.finish_reason,
                    num_output_tokens=message.num_output_tokens,
                )
            )
        case core.Returned():
            return pb.WorkerMessage(
                returned=pb.Returned(
                    key=_key(message.key),
                    grant=_token(message.grant),
                    reason=message.reason,
                    num_lost_attempts=message.num_lost_attempts,
                )
            )
        case core.Refused():
            refused = pb.Refused(
                key=_key(message.key),
                grant=_token(message.grant),
                conflict=message.conflict,
                newest_epoch=message.newest_epoch,
            )
            return pb.WorkerMessage(refused=refused)


def leader_message_to_wire(message: core.LeaderMessage) -> pb.LeaderMessage:
    match message:
        case core.Welcome():
            return pb.LeaderMessage(welcome=pb.Welcome(epoch=message.epoch, lease_seconds=message.lease_seconds))
        case core.Redirect():
            return pb.LeaderMessage(redirect=pb.Redirect(address=message.address))
        case core.Grant():
            return pb.LeaderMessage(grant=_grant_to_wire(message))
        case core.Recall():
            return pb.LeaderMessage(recall=pb.Recall(key=_key(message.key), grant=_token(message.grant)))
        case core.CancelJob():
            cancel = pb.CancelJob(key=_key(message.key), grant=_token(message.grant), reason=message.reason)
            return pb.LeaderMessage(cancel=cancel)


def _key(key: JobKey) -> pb.JobKey:
    return pb.JobKey(tenant=key.tenant, id=key.id)


def _token(token: GrantToken) -> pb.GrantToken:
    return pb.GrantToken(epoch=token.epoch, number=token.number)


def _hello_to_wire(hello: core.Hello) -> pb.Hello:
    return pb.Hello(
        incarnation=hello.incarnation,
        name=hello.name,
        model=hello.model,
        page_size=hello.page_size,
        num_pages=hello.num_pages,
        max_num_seqs=hello.max_num_seqs,
        held=[pb.HeldJob(key=_key(job.key), grant=_token(job.grant), started=job.started) for job in hello.held],
        newest_epoch=hello.newest_epoch,
    )


def _progress_to_wire(progress: core.Progress) -> pb.Progress:
    load = pb.WorkerLoad(
        num_running=progress.load.num_running,
        num_waiting=progress.load.num_waiting,
        num_free_pages=progress.load.num_free_pages,
        step_seconds=progress.load.step_seconds,
    )
    return pb.Progress(jobs=[_job_progress_to_wire(job) for job in progress.jobs], load=load)


def _job_progress_to_wire(job: core.JobProgress) -> pb.JobProgress:
    return pb.JobProgress(
        key=_key(job.key),
        grant=_token(job.grant),
        started=job.started,
        num_prompt_tokens=job.num_prompt_tokens,
        num_cached_tokens=job.num_cached_tokens,
        num_output_tokens=job.num_output_tokens,
    )


def _grant_to_wire(grant: core.Grant) -> pb.Grant:
    return pb.Grant(
        key=_key(grant.key),
        token=_token(grant.token),
        stream_sequence=grant.stream_sequence,
        payload=grant.payload,
        arrival_seconds=grant.arrival_seconds,
        queue_seconds=grant.queue_seconds,
        deadline_seconds=grant.deadline_seconds,
        alone=grant.alone,
        num_lost_attempts=grant.num_lost_attempts,
        traceparent=grant.traceparent,
    )


# -- from the wire -------------------------------------------------------------------------------------------------


def worker_messages_from_wire(wire: pb.WorkerMessages) -> Iterator[core.WorkerMessage]:
    """Raises ``LeaseError``: at once if they are too many, else at the first that makes no sense."""
    _check_number(len(wire.messages))
    return map(worker_message_from_wire, wire.messages)


def leader_messages_from_wire(wire: pb.LeaderMessages) -> Iterator[core.LeaderMessage]:
    """Raises ``LeaseError``: at once if they are too many, else at the first that makes no sense."""
    _check_number(len(wire.messages))
    return map(leader_message_from_wire, wire.messages)


def _check_number(num_messages: int) -> None:
    if num_messages > MAX_TOGETHER:
        raise LeaseError(f"{num_messages} messages together; at most {MAX_TOGETHER} are allowed")


def worker_message_from_wire(wire: pb.WorkerMessage) -> core.WorkerMessage:
    """Raises ``LeaseError``."""
    match wire.WhichOneof("kind"):
        case "hello":
            return _hello_from_wire(wire.hello)
        case "demand":
            return core.Demand(wire.demand.num_sequences, wire.demand.num_pages, wire.demand.last_grant)
        case "progress":
            return _progress_from_wire(wire.progress)
        case "ended":
            key, grant = _job_from_wire(wire.ended.key, wire.ended.grant)
            return core.Ended(key, grant, _reason(wire.ended.finish_reason), wire.ended.num_output_tokens)
        case "returned":
            key, grant = _job_from_wire(wire.returned.key, wire.returned.grant)
            return core.Returned(key, grant, wire.returned.reason, wire.returned.num_lost_attempts)
        case "refused":
            key, grant = _job_from_wire(wire.refused.key, wire.refused.grant)
            return core.Refused(key, grant, wire.refused.conflict, wire.refused.newest_epoch)
    raise LeaseError("a worker's message of an unknown kind: the worker may be newer than this queue")


def leader_message_from_wire(wire: pb.LeaderMessage) -> core.LeaderMessage:
    """Raises ``LeaseError``."""
    match wire.WhichOneof("kind"):
        case "welcome":
            return core.Welcome(wire.welcome.epoch, wire.welcome.lease_seconds)
        case "redirect":
            return core.Redirect(wire.redirect.address if wire.redirect.HasField("address") else None)
        case "grant":
            return _grant_from_wire(wire.grant)
        case "recall":
            return core.Recall(*_job_from_wire(wire.recall.key, wire.recall.grant))
        case "cancel":
            return core.CancelJob(*_job_from_wire(wire.cancel.key, wire.cancel.grant), _reason(wire.cancel.reason))
    raise LeaseError("a leader's message of an unknown kind: the queue may be newer than this worker")


def _job_from_wire(key: pb.JobKey, grant: pb.GrantToken) -> tuple[JobKey, GrantToken]:
    if not key.tenant or not key.id:
        raise LeaseError("a message about a job without its tenant or id")
    return JobKey(key.tenant, key.id), GrantToken(grant.epoch, grant.number)


def _reason(value: str) -> FinishReason:
    try:
        return FinishReason(value)
    except ValueError as error:
        raise LeaseError(f"unknown finish reason {value!r}") from error


def _hello_from_wire(hello: pb.Hello) -> core.Hello:
    if not hello.incarnation or not hello.model or min(hello.page_size, hello.num_pages, hello.max_num_seqs) < 1:
        raise LeaseError(
            "a hello needs an incarnation, a model, and at least one page, one token per page, one sequence"
        )
    return core.Hello(
        incarnation=hello.incarnation,
        name=hello.name,
        model=hello.model,
        page_size=hello.page_size,
        num_pages=hello.num_pages,
        max_num_seqs=hello.max_num_seqs,
        held=tuple(core.HeldJob(*_job_from_wire(job.key, job.grant), job.started) for job in hello.held),
        newest_epoch=hello.newest_epoch,
    )


def _progress_from_wire(progress: pb.Progress) -> core.Progress:
    load = core.WorkerLoad(
        num_running=progress.load.num_running,
        num_waiting=progress.load.num_waiting,
        num_free_pages=progress.load.num_free_pages,
        step_seconds=progress.load.step_seconds,
    )
    return core.Progress(tuple(_job_progress_from_wire(job) for job in progress.jobs), load)


def _job_progress_from_wire(job: pb.JobProgress) -> core.JobProgress:
    key, grant = _job_from_wire(job.key, job.grant)
    return core.JobProgress(
        key=key,
        grant=grant,
        started=job.started,
        num_prompt_tokens=job.num_prompt_tokens,
        num_cached_tokens=job.num_cached_tokens,
        num_output_tokens=job.num_output_tokens,
    )


def _grant_from_wire(grant: pb.Grant) -> core.Grant:
    key, token = _job_from_wire(grant.key, grant.token)
    return core.Grant(
        key=key,
        token=token,
        stream_sequence=grant.stream_sequence,
        payload=grant.payload,
        arrival_seconds=grant.arrival_seconds,
        queue_seconds=grant.queue_seconds,
        deadline_seconds=grant.deadline_seconds if grant.HasField("deadline_seconds") else None,
        alone=grant.alone,
        num_lost_attempts=grant.num_lost_attempts,
        traceparent=grant.traceparent if grant.HasField("traceparent") else None,
    )
