"""`headway up`, and the commands that people use with it."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import urllib.request

import pytest

READY = "Ctrl-C ends it"
COLORLESS = {"TERM": "xterm", "NO_COLOR": "1", "PYTHONUTF8": "1"}


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def objects(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_says_how_to_submit_a_first_job(up):
    assert f"headway submit --nats-url {up.url}" in up.said
    assert f"nats pub --server {up.url} headway.jobs.default.acme" in up.said


def test_it_says_where_metrics_and_probes_are_of_both_its_roles(up):
    for role, metric in (("queue", "headway_connected_workers"), ("worker", "headway_pages")):
        (line,) = [line for line in up.said.splitlines() if line.startswith(f"{role}:")]
        found = re.search(r"metrics at (http\S+/metrics), probes at 127\.0\.0\.1:[1-9]", line)
        with urllib.request.urlopen(found[1]) as answer:
            assert metric in answer.read().decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_with_status_0_and_leaves_no_process(start, up_arguments, eventually, number):
    with start(*up_arguments()) as process:
        process.read_until(READY)
        children = process.children()
        assert len(children) == 2  # nats-server and the engine
        assert process.end_by(number) == 0
        await eventually(lambda: not any(is_running(pid) for pid in children))


async def test_a_signal_while_it_starts_ends_it_too(start, up_arguments, eventually):
    with start(*up_arguments()) as process:
        process.read_until("importing torch")
        children = process.children()
        assert process.end_by(signal.SIGINT) == 0
        await eventually(lambda: not any(is_running(pid) for pid in children))


def test_an_engine_that_cannot_start_ends_it_with_the_reason(headway, up_arguments, tmp_path):
    done = headway(*up_arguments(), "--model", str(tmp_path))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert str(tmp_path) in done.stderr.splitlines()[-1]


def test_a_folder_that_another_one_uses_is_named_with_the_way_out(headway, up_arguments, up):
    folder = re.search(r"are kept in (\S+)/nats\.", up.said)[1]
    done = headway(*up_arguments(), "--data-folder", folder)
    assert done.returncode == 2
    assert f"--data-folder = '{folder}'" in done.stderr
    assert "another headway up?" in done.stderr
    assert "--lease-listen" in done.stderr


def test_a_port_that_is_taken_is_named(headway, up_arguments, up):
    port = up.url.rpartition(":")[2]
    done = headway(*up_arguments(), "--nats-port", port)
    assert done.returncode == 2
    assert f"--nats-port = {port}" in done.stderr


def test_one_prompt_streams_its_answer(up):
    done = up("submit", "--temperature", "0", "--max-tokens", "24", "What is the capital of France?")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "The capital of France is Paris.\n"


def test_several_prompts_come_as_one_object_each_in_their_order(up):
    lengths = (6, 2, 4)
    lines = "\n".join(json.dumps({"id": f"many-{n}", "prompt": "One", "max_tokens": n}) for n in lengths)
    done = up("submit", "--tenant", "acme", "--json", "--ignore-eos", "--file", "-", stdin=lines)
    assert (done.returncode, done.stderr) == (0, "")
    jobs = objects(done)
    assert [job["id"] for job in jobs] == ["many-6", "many-2", "many-4"]
    assert [job["usage"]["completion_tokens"] for job in jobs] == list(lengths)
    assert [len(job["token_ids"]) for job in jobs] == list(lengths)
    assert {(job["tenant"], job["finish_reason"], job["error"]) for job in jobs} == {("acme", "length", None)}
    assert all(job["timings"]["queue_seconds"] >= 0 for job in jobs)


def test_lines_of_standard_input_are_prompts_and_the_answers_are_numbered(up):
    done = up("submit", "--max-tokens", "2", stdin="Name a colour.\nName a river.\n")
    assert done.returncode == 0
    assert "[1] Name a colour.\n" in done.stdout
    assert done.stdout.index("[1] Name a colour.") < done.stdout.index("[2] Name a river.")


def test_a_prompt_is_sent_as_a_chat_message_unless_it_is_raw(up):
    options = ("submit", "--json", "--max-tokens", "1", "Hello")
    (chat,), (raw,) = objects(up(*options)), objects(up(*options, "--raw"))
    assert raw["usage"]["prompt_tokens"] < chat["usage"]["prompt_tokens"]


def test_every_field_reaches_the_engine(up):
    done = up("submit", "--json", "--max-tokens", "3", "--logprobs", "2", "--ignore-eos", "--no-ignore-eos", "Hello")
    (job,) = objects(done)
    assert [len(logprobs["top"]) for logprobs in job["logprobs"]] == [2] * len(job["token_ids"])


def test_a_rejected_job_is_one_line_that_names_the_field_and_status_1(up):
    done = up("submit", "--max-tokens", "3", "--min-tokens", "7", "Hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "min_tokens" in done.stderr


def test_a_rejected_job_does_not_keep_others_from_their_end(up):
    done = up("submit", "--json", "--max-tokens", "1", stdin='{"prompt": "a", "top_p": 7}\nHello\n')
    assert done.returncode == 1
    assert [job["finish_reason"] for job in objects(done)] == ["rejected", "length"]
    assert objects(done)[0]["error"]["field"] == "top_p"


def test_a_detached_job_is_read_later_by_any_number_of_readers(up):
    assert up("submit", "--detach", "--id", "late", "--max-tokens", "4", "Hello").stdout == "default/late\n"
    readers = [up("result", "default/late"), up("result", "late")]
    assert {reader.returncode for reader in readers} == {0}
    assert readers[0].stdout == readers[1].stdout != ""
    (job,) = objects(up("result", "--json", "late"))
    assert job["text"].strip() == readers[0].stdout.strip()


def test_waiting_for_a_job_that_never_was_has_an_end(up):
    done = up("result", "--timeout", "0.2", "acme/never-was")
    assert done.returncode == 1
    assert "acme/never-was" in done.stderr


def test_a_cancelled_job_is_reported_and_one_that_is_not_known_is_status_1(up):
    up("submit", "--detach", "--tenant", "acme", "--id", "endless", "--max-tokens", "1000", "--ignore-eos", "Hello")
    done = up("cancel", "acme/endless", "acme/never-was")
    assert done.returncode == 1
    assert done.stdout == "acme/endless: cancelled\nacme/never-was: not found\n"
    assert up("cancel", "acme/endless").stdout == "acme/endless: had ended (cancelled)\n"


def test_an_interrupted_submit_ends_with_130_and_cancels_its_job(up, start):
    job = ("--id", "interrupted", "--max-tokens", "1000", "--ignore-eos")
    with start("submit", *job, "Hello", HEADWAY_NATS_URL=up.url) as process:
        process.read_characters(1)
        assert process.end_by(signal.SIGINT) == 130
        assert "headway: cancelled 1 job" in process.said
    (ended,) = objects(up("result", "--json", "interrupted"))
    assert ended["finish_reason"] == "cancelled"


def test_top_shows_models_and_workers(up):
    status = json.loads(up("top", "--json").stdout)
    (worker,) = status["workers"]
    assert [model["model"] for model in status["models"]] == ["default"]
    assert worker["is_connected"]
    shown = up("top", "--once").stdout
    assert worker["name"] in shown
    assert f"{worker['capacity']['num_pages']}" in shown


def test_top_on_a_terminal_shows_the_last_minutes_until_ctrl_c(up):
    terminal, inside = pty.openpty()
    termios.tcsetwinsize(inside, (50, 100))
    command = [sys.executable, "-m", "headway", "top", "--nats-url", up.url, "--interval", "0.1"]
    with subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, env=os.environ | COLORLESS) as process:
        os.close(inside)
        shown = ""
        while not re.search(r"output tokens/s.*▁ +0 +0", shown):
            shown += os.read(terminal, 65536).decode(errors="replace")
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # how Linux says that nobody writes to a terminal any more
            while os.read(terminal, 65536):
                pass
        assert process.wait() == 0
    os.close(terminal)
    assert "last 5 minutes" in shown


def test_top_into_a_pipe_is_the_state_alone(up):
    done = up("top", "--interval", "0.1")
    assert done.returncode == 0
    assert "last 5 minutes" not in done.stdout


def test_the_streams_of_a_running_headway_are_right(up):
    done = up("streams", "check")
    assert done.returncode == 0
    assert done.stdout.count("ok ") == 4
