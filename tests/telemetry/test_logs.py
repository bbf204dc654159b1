import io
import json
import logging

import pytest

from headway.core.job import JobKey
from headway.telemetry.config import LogFormat, LogLevel, TelemetryConfig
from headway.telemetry.logs import LogStyle, configure_logs, fields, job_fields, log_style

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
KEY = JobKey("acme", "a1")
log = logging.getLogger("headway.test")


@pytest.fixture(autouse=True)
def quiet_again():
    root, ours = logging.getLogger(), logging.getLogger("headway")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:], root.level, ours.level = before


def configured(**config):
    stream = io.StringIO()
    configure_logs(TelemetryConfig(**config), stream)
    return stream


def entries(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_machines_get_one_json_object_per_line():
    stream = configured(log_format=LogFormat.JSON)
    log.info("granted %d jobs", 2, extra=job_fields(KEY, TRACEPARENT, worker="w-0"))
    (entry,) = entries(stream)
    assert entry["message"] == "granted 2 jobs"
    assert entry["level"] == "info"
    assert (entry["tenant"], entry["job"], entry["worker"]) == ("acme", "a1", "w-0")
    assert entry["trace_id"] == "0af7651916cd43dd8448eb211c80319c"


def test_people_get_a_line_of_text_with_the_job():
    stream = configured()
    log.warning("returned", extra=job_fields(KEY, reason="worker lost"))
    line = stream.getvalue()
    assert "WARNING test  returned" in line
    assert line.endswith('tenant=acme job=a1 reason="worker lost"\n')


def test_a_line_break_in_a_field_cannot_forge_a_line():
    stream = configured()
    log.info("refused", extra=fields(reason="x\n12:00:00.000 INFO    forged"))
    assert len(stream.getvalue().splitlines()) == 1


def test_an_exception_is_logged_with_its_traceback():
    stream = configured(log_format=LogFormat.JSON)
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("failed")
    (entry,) = entries(stream)
    assert entry["exception"].endswith("ValueError: broken")


def test_the_level_hides_what_is_less_important():
    stream = configured(log_level=LogLevel.WARNING)
    log.info("hidden")
    log.warning("shown")
    assert "hidden" not in stream.getvalue()
    assert "shown" in stream.getvalue()


def test_libraries_speak_up_from_warning_on():
    stream = configured(log_level=LogLevel.DEBUG)
    logging.getLogger("somelibrary").info("chatter")
    logging.getLogger("somelibrary").warning("trouble")
    log.debug("ours")
    assert "chatter" not in stream.getvalue()
    assert "trouble" in stream.getvalue()
    assert "ours" in stream.getvalue()


def test_configuring_twice_does_not_log_twice():
    configured()
    stream = configured()
    log.info("once")
    assert len(stream.getvalue().splitlines()) == 1


def test_unknown_facts_are_left_out():
    assert fields(worker=None, job="a1") == {"fields": {"job": "a1"}}


def test_a_child_can_log_as_its_parent_does():
    configured(log_level=LogLevel.ERROR, log_format=LogFormat.JSON)
    assert log_style() == LogStyle(LogLevel.ERROR, LogFormat.JSON)
    configured(log_level=LogLevel.DEBUG)
    assert log_style() == LogStyle(LogLevel.DEBUG, LogFormat.TEXT)
