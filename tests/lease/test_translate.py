"""Every message survives the wire, and nonsense does not."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources

import pytest
from grpc_tools import protoc

from headway.core.errors import LeaseError
from headway.core.job import FinishReason, JobKey
from headway.core.lease_messages import (
    CancelJob,
    Demand,
    Ended,
    Grant,
    HeldJob,
    Hello,
    JobProgress,
    Progress,
    Recall,
    Redirect,
    Refused,
    Returned,
    Welcome,
    WorkerLoad,
)
from headway.core.records import GrantToken
from headway.lease import lease_pb2 as pb
from headway.lease.translate import (
    MAX_TOGETHER,
    leader_message_from_wire,
    leader_message_to_wire,
    leader_messages_from_wire,
    leader_messages_to_wire,
    worker_message_from_wire,
    worker_message_to_wire,
    worker_messages_from_wire,
)

KEY, TOKEN = JobKey("acme", "a1"), GrantToken(3, 14)
FULL_GRANT = Grant(KEY, TOKEN, 7, b'{"prompt": "\xc3\xa9"}', 1.7e9, 0.25, 12.5, True, 2, "00-abc-def-01")
BARE_GRANT = Grant(KEY, TOKEN, 7, b"", 1.7e9, 0.0)


@pytest.mark.parametrize(
    "message",
    [
        Hello("inc", "pod-0", "m", 16, 1000, 64, (HeldJob(KEY, TOKEN, True), HeldJob(KEY, TOKEN, False)), 7),
        Demand(3, 500, 14),
        Progress((JobProgress(KEY, TOKEN, True, 10, 4, 7),), WorkerLoad(1, 2, 300, 0.025)),
        Progress((), WorkerLoad(0, 0, 0, 0.0)),
        Ended(KEY, TOKEN, FinishReason.LENGTH, 100),
        Returned(KEY, TOKEN, "drained", 2),
        Refused(KEY, TOKEN, conflict=True, newest_epoch=7),
    ],
)
def test_a_workers_message_survives_the_wire(message):
    wire = pb.WorkerMessage.FromString(worker_message_to_wire(message).SerializeToString())
    assert worker_message_from_wire(wire) == message


@pytest.mark.parametrize(
    "message",
    [
        Welcome(3, 15.0),
        Redirect("10.0.0.7:4280"),
        Redirect(None),
        FULL_GRANT,
        BARE_GRANT,
        Recall(KEY, TOKEN),
        CancelJob(KEY, TOKEN, FinishReason.EXPIRED),
    ],
)
def test_a_leaders_message_survives_the_wire(message):
    wire = pb.LeaderMessage.FromString(leader_message_to_wire(message).SerializeToString())
    assert leader_message_from_wire(wire) == message


def test_messages_travel_together_in_order_up_to_a_number_of_bytes():
    messages = [replace(BARE_GRANT, stream_sequence=number, payload=b"x" * 100_000) for number in range(5)]
    wires = list(leader_messages_to_wire(messages))
    assert [len(wire.messages) for wire in wires] == [2, 2, 1]
    assert [message for wire in wires for message in leader_messages_from_wire(wire)] == messages


def test_no_more_messages_travel_together_than_a_receiver_takes():
    wires = list(leader_messages_to_wire([BARE_GRANT] * (2 * MAX_TOGETHER + 1)))
    assert [len(wire.messages) for wire in wires] == [MAX_TOGETHER, MAX_TOGETHER, 1]
    too_many = pb.LeaderMessages(messages=[leader_message_to_wire(BARE_GRANT)] * (MAX_TOGETHER + 1))
    with pytest.raises(LeaseError, match="257 messages together"):
        leader_messages_from_wire(too_many)
    with pytest.raises(LeaseError, match="257 messages together"):
        worker_messages_from_wire(pb.WorkerMessages(messages=[pb.WorkerMessage()] * (MAX_TOGETHER + 1)))


def test_a_message_that_is_too_large_to_share_travels_alone():
    sizes = (10, 1_000_000, 10)
    wires = list(leader_messages_to_wire([replace(BARE_GRANT, payload=b"x" * size) for size in sizes]))
    assert [len(wire.messages) for wire in wires] == [1, 1, 1]


@pytest.mark.parametrize(
    "wire",
    [
        pb.WorkerMessage(),
        pb.WorkerMessage(ended=pb.Ended(finish_reason="stop")),
        pb.WorkerMessage(
            ended=pb.Ended(key=pb.JobKey(tenant="t", id="i"), grant=pb.GrantToken(), finish_reason="bored")
        ),
        pb.WorkerMessage(hello=pb.Hello(incarnation="i", model="m", page_size=0, num_pages=1, max_num_seqs=1)),
    ],
)
def test_a_message_that_makes_no_sense_is_an_error(wire):
    with pytest.raises(LeaseError):
        worker_message_from_wire(wire)


def test_the_generated_code_is_that_of_the_proto_file(tmp_path):
    """If not: `make proto`."""
    root = resources.files("headway").parent
    arguments = ["protoc", f"-I{root}", f"--python_out={tmp_path}", "headway/lease/lease.proto"]
    assert protoc.main(arguments) == 0
    fresh = (tmp_path / "headway/lease/lease_pb2.py").read_text()
    assert _descriptor(fresh) == _descriptor(resources.files("headway").joinpath("lease/lease_pb2.py").read_text())


def _descriptor(code: str) -> str:
    """The line with the serialized descriptor; the rest differs between versions of the compiler."""
    return next(line for line in code.splitlines() if "AddSerializedFile" in line)
