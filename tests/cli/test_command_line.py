"""What holds for every command: help, errors, statuses, and what is imported."""

import subprocess
import sys

import pytest
import yaml

from headway.cli import COMMANDS
from headway.settings import list_settings

HEAVY = ("torch", "transformers", "grpc", "nats", "opentelemetry")


def loaded_by(code):
    """Which of the heavy packages are loaded afterwards."""
    report = f"import sys; print(sorted({set(HEAVY)!r} & set(sys.modules)))"
    python = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True)
    return python.stdout.strip()


def test_the_command_line_loads_nothing_heavy():
    assert loaded_by("import headway.cli") == "[]"


def test_the_help_of_no_command_loads_anything_heavy():
    imports = "\n".join(f"import headway.commands.{name}" for name in COMMANDS)
    assert loaded_by(imports) == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(call, name):
    status, out, _ = call(name, "--help")
    assert status == 0
    assert out.startswith(f"Usage: headway {name}")


def test_the_list_of_commands_names_them_all(call):
    status, out, _ = call("--help")
    assert status == 0
    assert all(name in out for name in COMMANDS)


def test_settings_stand_in_the_help_under_the_heading_of_their_group(call):
    _, out, _ = call("worker", "--help")
    assert out.index("The engine:") < out.index("--page-size") < out.index("The engine's scheduler:")
    assert out.index("The engine's scheduler:") < out.index("--max-num-seqs")


def test_a_command_takes_only_the_settings_that_it_uses(call):
    assert "--tenant-weights" not in call("worker", "--help")[1]
    assert "--page-size" not in call("queue", "--help")[1]
    assert "--max-waiting-jobs" not in call("submit", "--help")[1]


def test_every_setting_is_a_flag_of_config(call):
    _, out, _ = call("config", "--help")
    assert [setting.flag for setting in list_settings() if setting.flag not in out] == []


def test_a_flag_wins_over_a_variable_and_that_over_the_file(call, monkeypatch, tmp_path):
    file = tmp_path / "headway.yaml"
    file.write_text("scheduler: {max_num_seqs: 3, max_num_batched_tokens: 300, max_prefill_chunk: 30}")
    monkeypatch.setenv("HEADWAY_MAX_NUM_SEQS", "2")
    monkeypatch.setenv("HEADWAY_MAX_NUM_BATCHED_TOKENS", "200")
    status, out, _ = call("config", "--config", str(file), "--max-num-seqs", "1")
    scheduler = yaml.safe_load(out)["scheduler"]
    assert status == 0
    assert [scheduler[name] for name in ("max_num_seqs", "max_num_batched_tokens", "max_prefill_chunk")] == [1, 200, 30]


def test_the_printed_settings_can_be_fed_back(call, tmp_path):
    _, first, _ = call("config", "--policy", "sjf", "--tenant-weights", "acme=2,zeta=0.5", "--no-create-streams")
    file = tmp_path / "headway.yaml"
    file.write_text(first)
    _, again, _ = call("config", "--brief", "--config", str(file))
    assert yaml.safe_load(again) == yaml.safe_load(first)
    assert yaml.safe_load(again)["queue"]["tenant_weights"] == {"acme": 2, "zeta": 0.5}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("worker", "--max-num-seqs", "0"), ("--max-num-seqs", "≥ 1")),
        (("queue", "--policy", "lifo"), ("--policy", "fifo")),
        (("up", "--config", "/no/such.yaml"), ("/no/such.yaml", "No such file")),
        (("submit", "--model", "No.Such", "x"), ("model", "must match")),
        (("submit", "--tenant", "Acme", "x"), ("tenant", "must match", "Acme")),
        (("submit", "--model", "Org/Model-1B", "x"), ("Org/Model-1B", "served name", '"default"')),
        (("submit", "--temperature", "-3", "x"), ("--temperature", "≥ 0.0")),
        (("submit", "   "), ("the prompt", "must not be empty")),
        (("submit", "caf\udce9"), ("the prompt", "UTF-8")),
        (("submit", "--system", "caf\udce9", "x"), ("--system", "UTF-8")),
        (("top", "--nats-url", "http://127.0.0.1:4222"), ("--nats-url", "nats://host:4222")),
        (("submit", "--id", "a.b", "x"), ("--id", "a.b")),
        (("submit", "--id", "j12", "x"), ("--id", "j12", "reserved")),
        (("cancel", "Acme/a1"), ("Acme/a1", "tenant")),
        (("submit", "--file", "/no/such.jsonl"), ("/no/such.jsonl", "No such file")),
        (("submit", "--logit-bias", "word", "x"), ("--logit-bias", "1234=-5")),
        (("bench", "--scenario", "nowhere"), ("there is no scenario", "nowhere")),
        (("bench", "compare", "/no/such.json", "/no/such.json"), ("/no/such.json", "No such file")),
        (("no-such-command",), ("no-such-command",)),
        (("sumbit", "x"), ("sumbit", "Did you mean 'submit'?")),
    ],
)
def test_what_is_asked_wrongly_is_named_with_the_way_out_and_status_2(call, arguments, words):
    status, out, err = call(*arguments)
    last_line = err.strip().splitlines()[-1]
    assert (status, out) == (2, "")
    assert all(word in last_line for word in words), err
    assert last_line.startswith("headway: ")


def test_a_command_line_without_arguments_shows_the_help(call):
    _, out, err = call()
    assert "Usage: headway" in out + err


def test_the_comments_of_the_printed_settings_fit_into_a_terminal(call):
    _, out, _ = call("config")
    assert max(len(line) for line in out.splitlines() if line.lstrip().startswith("#")) <= 88


def test_a_misspelt_variable_is_refused_by_name(call, monkeypatch):
    monkeypatch.setenv("HEADWAY_MAX_NUM_SEKS", "3")
    status, _, err = call("config")
    assert status == 2
    assert "HEADWAY_MAX_NUM_SEKS" in err
    assert "HEADWAY_MAX_NUM_SEQS" in err


def test_a_broker_that_is_not_there_is_one_line_and_status_1(headway):
    done = headway("submit", "--nats-url", "nats://127.0.0.1:1", "--nats-timeout-seconds", "0.2", "Hello")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.count("127.0.0.1") == 1
    assert "nats://127.0.0.1:1: connection refused" in done.stderr
    assert "`headway up`" in done.stderr


def test_a_command_that_waits_for_a_broker_says_so(headway):
    done = headway("top", "--nats-url", "nats://127.0.0.1:1", "--nats-timeout-seconds", "1.5", "--once")
    trying, failed = done.stderr.splitlines()
    assert "trying to reach NATS at nats://127.0.0.1:1" in trying
    assert "`headway up`" in failed


def test_a_reader_that_leaves_ends_the_command_without_a_word():
    command = f"{sys.executable} -m headway config | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
