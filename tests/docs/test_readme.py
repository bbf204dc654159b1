"""README.md: its commands, names and tables are real."""

import re
import shlex

import click
import pytest

import headway.broker.errors
import headway.core.errors
from headway import Client
from headway.broker.job_fields import JobFields
from headway.cli import headway as command_line
from headway.core.errors import SettingError
from headway.core.queue_config import QueuePolicy
from headway.settings import Settings, list_settings

SETTINGS = {setting.name for setting in list_settings()}


def command_lines(page):
    """The arguments behind ``headway`` of every line of the shell blocks."""
    lines = [line for block in page.blocks("sh") for line in block.splitlines() if re.search(r"\bheadway\b", line)]
    parts = [shlex.split(part, comments=True) for line in lines for part in line.split("|")]
    return [words[words.index("headway") + 1 :] for words in parts if "headway" in words]


def parse(arguments):
    """Parses all the way down, as a user's shell would have it, reads the settings, and runs nothing."""
    arguments = arguments[: arguments.index(">")] if ">" in arguments else arguments
    context = command_line.make_context("headway", list(arguments), resilient_parsing=False)
    command = command_line
    while isinstance(command, click.Group):
        arguments = [*context._protected_args, *context.args]
        if not arguments and command.invoke_without_command:
            break
        name, command, rest = command.resolve_command(context, arguments)
        context = command.make_context(name, rest, parent=context)
    given = {name: value for name, value in context.params.items() if name in SETTINGS}
    Settings.load({**given, "model": None} if command.name == "submit" else given, {}, context.params.get("config"))


def test_every_command_line_is_one(pages, readme, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.jsonl").touch()
    (tmp_path / "headway.yaml").write_text(readme.section("Settings").blocks("yaml")[0])
    found = [arguments for page in pages for arguments in command_lines(page)]
    assert len(found) > 10, "the pattern finds the command lines"
    for arguments in found:
        parse(arguments)


def test_a_wrong_command_line_would_be_found():
    for wrong in (["up", "--no-such-flag"], ["no-such-command"], ["submit", "--max-tokens", "many", "Hello"]):
        with pytest.raises(click.UsageError):
            parse(wrong)
    with pytest.raises(SettingError):
        parse(["up", "--policy", "no-such-policy"])


def test_every_command_that_the_pages_name_exists(pages):
    named = {name for page in pages for name in re.findall(r"`headway ([a-z]+)[ `]", page.prose)}
    assert named <= set(command_line.list_commands(None))


def test_every_program_that_the_pages_name_exists(pages, root):
    named = {name for page in pages for name in re.findall(r"python -m ([a-z_.]+[a-z])", page.text)} - {"headway"}
    assert len(named) > 10, "the pattern finds the programs"
    assert {name for name in named if not is_program(root / name.replace(".", "/"))} == set()


def is_program(path):
    """A module, or a package that can be run."""
    return path.with_suffix(".py").exists() or (path / "__main__.py").exists()


def test_every_make_target_exists(pages, root):
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in pages for name in re.findall(r"(?:^|`)make ([a-z-]+)", page.text, re.MULTILINE)}
    assert named <= targets


def test_the_job_fields_are_all_there_are(readme):
    rows = {row[0].strip("`"): row[1].strip("`") for row in readme.section("Job fields").rows("field")}
    assert list(rows) == list(JobFields.model_fields)
    for name, field in JobFields.model_fields.items():
        if name not in ("id", "prompt", "messages"):
            assert rows[name] == written(field.get_default(call_default_factory=True)), name


def written(default):
    return {None: "none", True: "true", False: "false"}.get(
        default if isinstance(default, bool | None) else "", str(default)
    )


def test_the_policies_are_all_there_are(readme):
    assert readme.section("Order of the queue").first_codes("policy") == list(QueuePolicy)


def test_the_errors_of_the_client_exist(readme):
    for name in readme.section("The Python client").first_codes("error"):
        error = getattr(headway.broker.errors, name, None) or getattr(headway.core.errors, name)
        assert issubclass(error, headway.core.errors.HeadwayError)


def test_the_calls_of_the_client_exist(readme):
    calls = readme.section("The Python client").first_codes("call")
    methods = [re.match(r"(?:C|c)lient\.(\w+)\(", call)[1] for call in calls]
    public = {name for name in vars(Client) if not name.startswith("_")} - {"open", "close"}
    assert set(methods) == public
