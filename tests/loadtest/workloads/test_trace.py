from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.workloads.requests import WorkloadError
from loadtest.workloads.trace import TraceRow, read_trace


@pytest.fixture
def write(tmp_path: Path):
    def to_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return to_file


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("own.csv", "arrived_at,prompt_tokens,output_tokens\n5,10,3\n6.5,20,4\n"),
        ("burstgpt.csv", "Timestamp,Model,Request tokens,Response tokens\n5,m,10,3\n6.5,m,20,4\n"),
        (
            "azure.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n"
            "2023-11-16 18:17:05.0000000,10,3\n2023-11-16 18:17:06.5000000,20,4\n",
        ),
        (
            "mooncake.jsonl",
            '{"timestamp": 5, "input_length": 10, "output_length": 3, "hash_ids": [1]}\n\n'
            '{"timestamp": 6.5, "input_length": 20, "output_length": 4, "hash_ids": []}\n',
        ),
    ],
)
def test_the_names_that_public_traces_use_are_known(write, name, text):
    assert read_trace(write(name, text), {}, 1.0) == (TraceRow(0.0, 10, 3, None), TraceRow(1.5, 20, 4, None))


def test_other_names_are_given_and_times_are_scaled_and_sorted(write):
    path = write("odd.csv", "when,in,out,tenant\n3000,10,3,acme\n1000,20,4,zoo\n")
    columns = {"arrived_at": "when", "prompt_tokens": "in", "output_tokens": "out"}
    assert read_trace(path, columns, 0.001) == (TraceRow(0.0, 20, 4, "zoo"), TraceRow(2.0, 10, 3, "acme"))


def test_a_trace_need_not_have_times(write):
    assert read_trace(write("x.csv", "prompt_tokens,output_tokens\n1,2\n"), {}, 1.0) == (TraceRow(None, 1, 2, None),)


def test_rows_that_had_failed_are_left_out(write):
    path = write("x.csv", "prompt_tokens,output_tokens\n5,0\n0,5\n5,5\n")
    assert read_trace(path, {}, 1.0) == (TraceRow(None, 5, 5, None),)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("x.csv", "", "no rows"),
        (
            "x.csv",
            "prompt_tokens\n5\n",
            "no column 'output_tokens'; write columns: {output_tokens: NAME}",
        ),
        ("x.csv", "prompt_tokens,output_tokens\n5,five\n", "line 2: output_tokens must be a whole number, not 'five'"),
        ("x.csv", "prompt_tokens,output_tokens\n5,-1\n", "from 0 to"),
        ("x.csv", "prompt_tokens,output_tokens\n5\n", "whole number, not None"),
        ("x.csv", "prompt_tokens,output_tokens,tenant\n5,5,Big Co\n", "tenant must match"),
        ("x.csv", "time,prompt_tokens,output_tokens\nnoon,5,5\n", "time must be a number or a date"),
        ("x.jsonl", "[1]\n", "line 1 is no object"),
        ("x.jsonl", "{", "x.jsonl is no trace"),
    ],
)
def test_what_is_wrong_is_named_with_file_line_and_column(write, name, text, complaint):
    with pytest.raises(WorkloadError) as caught:
        read_trace(write(name, text), {}, 1.0)
    assert complaint in str(caught.value)
    assert name in str(caught.value)
