"""Jobs from arguments and lines."""

import json

import click
import pytest

from headway.commands.job_fields import check_values, given_fields, option_names
from headway.commands.job_files import PromptStyle, read_requests

CHAT, RAW = PromptStyle(is_raw=False), PromptStyle(is_raw=True)


def read(*prompts, lines=None, style=CHAT, **options):
    return [request.fields for request in read_requests(prompts, lines, style, options)]


def test_a_prompt_is_a_chat_message():
    assert read("Hello") == [{"messages": [{"role": "user", "content": "Hello"}]}]


def test_a_raw_prompt_is_the_models_input():
    assert read("Hello", style=RAW) == [{"prompt": "Hello"}]


def test_the_system_message_comes_first():
    (fields,) = read("Hello", style=PromptStyle(is_raw=False, system="Be brief."))
    assert [message["role"] for message in fields["messages"]] == ["system", "user"]


def test_a_line_is_a_prompt_and_an_empty_line_is_none():
    assert [fields["prompt"] for fields in read(lines=["one\n", "\n", "two\n"], style=PromptStyle(True))] == [
        "one",
        "two",
    ]


def test_a_line_of_json_is_a_job_and_the_flags_fill_in_what_it_lacks():
    line = json.dumps({"prompt": "Hello", "max_tokens": 3})
    assert read(lines=[line], max_tokens=9, seed=1) == [{"prompt": "Hello", "max_tokens": 3, "seed": 1}]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"prompt": "a", "max_token": 3}', ("line 2", "max_token", "'max_tokens'")),
        ('{"prompt": ', ("line 2", "JSON")),
        ('{"prompt": "a", "id": 7}', ("line 2", "7")),
        ('{"prompt": "a", "id": "j7"}', ("line 2", "'j7'", "reserved")),
        ('{"prompt": "a", "timeout_seconds": 7}', ("line 2", "timeout_seconds")),
    ],
)
def test_a_wrong_line_is_named(line, words):
    with pytest.raises(click.UsageError) as error:
        read(lines=["fine", line])
    assert all(word in error.value.message for word in words)


def test_a_line_nested_beyond_any_reader_is_named():
    with pytest.raises(click.UsageError, match=r"line 1: .* nested too deeply"):
        read(lines=['{"prompt": ' + "[" * 100_000 + "]" * 100_000 + "}"])


def test_nothing_to_submit_is_an_error():
    with pytest.raises(click.UsageError, match="give a prompt"):
        read(lines=[])


def test_only_fields_that_were_given_are_sent():
    values = dict.fromkeys(option_names()) | {"stop": ("a", "b"), "logit_bias": (("7", -5.0),), "temperature": 0.0}
    values["stop_token_ids"] = ()
    assert given_fields(values) == {"stop": ("a", "b"), "logit_bias": {"7": -5.0}, "temperature": 0.0}


def test_a_file_that_is_not_utf_8_is_named_with_the_way_out(tmp_path):
    (tmp_path / "jobs").write_bytes("caf\xe9".encode("latin-1"))
    with (tmp_path / "jobs").open(encoding="utf-8") as file, pytest.raises(click.UsageError, match=r"jobs: .*iconv"):
        read(lines=file)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"prompts": ["caf\udce9"]}, "the prompt: "),
        ({"lines": ["fine", "caf\udce9"]}, "line 2: "),
        ({"lines": ['{"prompt": "\\ud800"}']}, "line 1: prompt"),
        ({"prompts": ["fine"], "style": PromptStyle(False, "caf\udce9")}, "--system"),
        ({"prompts": ["fine"], "stop": ["caf\udce9"]}, "stop"),
    ],
)
def test_text_that_could_not_be_decoded_is_refused(arguments, words):
    with pytest.raises(click.UsageError) as error:
        read(*arguments.pop("prompts", ()), **arguments)
    assert words in error.value.message
    assert "UTF-8" in error.value.message


def test_a_prompt_of_blanks_is_refused():
    with pytest.raises(click.UsageError, match="must not be empty"):
        read("   ")


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", -3.0), ("logit_bias", {"7": float("nan")}), ("priority", 101), ("logprobs", 21)],
)
def test_a_flag_that_no_job_may_have_is_refused_by_its_name(field, value):
    with pytest.raises(click.UsageError, match=f"--{field.replace('_', '-')}: must"):
        check_values({field: value})


def test_flags_that_some_jobs_may_have_are_left_to_the_queue():
    check_values({"min_tokens": 300, "logit_bias": {"7": -5.0}, "deadline_seconds": 3.0, "stop": ("a",)})
