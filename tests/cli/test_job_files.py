"""Jobs from arguments and lines."""

import json

import click
import pytest

from headway.commands.job_fields import given_fields, option_names
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


def test_nothing_to_submit_is_an_error():
    with pytest.raises(click.UsageError, match="give a prompt"):
        read(lines=[])


def test_only_fields_that_were_given_are_sent():
    values = dict.fromkeys(option_names()) | {"stop": ("a", "b"), "logit_bias": (("7", -5.0),), "temperature": 0.0}
    values["stop_token_ids"] = ()
    assert given_fields(values) == {"stop": ("a", "b"), "logit_bias": {"7": -5.0}, "temperature": 0.0}
