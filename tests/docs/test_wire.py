"""docs/wire.md: its examples are what the code reads and writes, its tables are complete."""

import json

import msgspec
import pytest

from headway.broker import dead, joblog, streams
from headway.broker.codec import decode_record, encode_record
from headway.broker.config import BrokerConfig, JobLimits
from headway.broker.control import CANCEL_SUBJECTS, STATUS_SUBJECT, _CancelReply
from headway.broker.job_codec import decode_job
from headway.broker.replay_service import REPLAY_SUBJECTS
from headway.core.errors import RejectCode
from headway.core.job import FinishReason, JobKey
from headway.core.lease_actions import CancelOutcome, DeadReason
from headway.core.records import Attempt, End, Released, Tokens
from headway.core.status import QueueStatus
from headway.engine.engine import ENGINE_ERROR

KEY = JobKey("acme", "a1")
WILDCARDS = {"<model>": "*", "<tenant>": "*", "<id>": "*"}


@pytest.fixture(scope="module")
def records(wire):
    return [line for block in wire.blocks("json record") for line in block.splitlines()]


def replaced(text, replacements):
    for old, new in replacements.items():
        text = text.replace(old, new)
    return text


def test_the_records_are_read_and_written_as_they_stand_there(records):
    for line in records:
        assert encode_record(decode_record(line.encode())) == line.encode()


def test_every_kind_of_record_has_an_example(records):
    assert {type(decode_record(line.encode())) for line in records} == {Attempt, Tokens, Released, End}


def test_every_job_is_one(wire):
    jobs = wire.blocks("json job")
    assert jobs
    for number, text in enumerate(jobs, start=1):
        decode_job("default", "acme", text.encode(), number, JobLimits())


def test_the_answers_to_requests_are_as_they_stand_there(wire):
    for kind, language in ((_CancelReply, "json cancel"), (QueueStatus, "json status")):
        (text,) = wire.blocks(language)
        decoded = msgspec.json.decode(text, type=kind)
        assert json.loads(msgspec.json.encode(decoded)) == json.loads(text)


def test_the_errors_are_all_there_are(wire):
    codes = wire.section("Errors").first_codes("`code`")
    assert set(codes) == {*RejectCode, DeadReason.ATTEMPTS_EXHAUSTED, ENGINE_ERROR}


def test_the_finish_reasons_and_outcomes_are_all_there_are(wire):
    assert set(wire.first_codes("`finish_reason`")) == set(FinishReason)
    assert set(wire.first_codes("`outcome`")) == set(CancelOutcome)


def test_the_streams_and_their_subjects_are_those_that_are_made(wire):
    written = {(row[0].strip("`"), replaced(row[1].strip("`"), WILDCARDS)) for row in wire.rows("stream")}
    made = {(spec.name, subject) for spec in streams.stream_specs(BrokerConfig()) for subject in spec.subjects}
    assert written == made


def test_the_other_subjects_are_those_that_are_used(wire):
    written = [replaced(subject, WILDCARDS) for subject in wire.first_codes("subject, no stream")]
    assert written == [streams.results_subject(JobKey("*", "*")), CANCEL_SUBJECTS, REPLAY_SUBJECTS, STATUS_SUBJECT]


def test_the_headers_are_those_that_are_sent(wire):
    letter = dead.DeadLetter(KEY, "default", "conflict", b"{}", 1)
    ours = {name for name in letter.headers if name.startswith("Headway-")}
    assert set(wire.section("Dead letters").first_codes("header")) == ours
    for header in (joblog.WRITE_HEADER, joblog.HASH_HEADER):
        assert f"`{header}`" in wire.text
