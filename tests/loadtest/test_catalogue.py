import pytest

from loadtest.errors import BenchInputError
from loadtest.peers.catalogue import FORMS, Variant, Weights, parse_opponent
from loadtest.targets.server import Server
from loadtest.targets.target import HEADWAYS, Target


@pytest.mark.parametrize(
    ("text", "runner", "arguments"),
    [
        ("vllm", "vllm_runner", ()),
        ("transformers", "transformers_runner", ()),
        ("transformers:static", "static_runner", ("--rows", "16")),
        ("transformers:static:8", "static_runner", ("--rows", "8")),
        ("llamacpp", "llamacpp_runner", ("--data-type", "bf16", "--slots", "64")),
        ("llamacpp:16", "llamacpp_runner", ("--data-type", "bf16", "--slots", "16")),
        ("llamacpp:q8_0", "llamacpp_runner", ("--data-type", "q8_0", "--slots", "64")),
        ("llamacpp:file:16", "llamacpp_runner", ("--data-type", "file", "--slots", "16")),
    ],
)
def test_a_name_and_its_options_say_what_runs(text, runner, arguments):
    peer = parse_opponent(text)
    assert (peer.name, peer.runner, peer.arguments) == (text, runner, arguments)
    assert (peer.weights is Weights.GGUF) == text.startswith("llamacpp")


@pytest.mark.parametrize("target", HEADWAYS)
def test_headway_itself_may_be_an_opponent(target):
    assert parse_opponent(target.value) is target


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("openai=http://127.0.0.1:8000/v1", Server("http://127.0.0.1:8000/v1")),
        ("sglang=https://host/v1/#my/model", Server("https://host/v1", "my/model", "sglang")),
    ],
)
def test_a_server_that_is_there_already_is_named_by_its_address(text, server):
    assert parse_opponent(text) == server


@pytest.mark.parametrize("text", ["openai=", "openai=host:8000", "openai=ftp://host/v1"])
def test_an_address_that_nobody_can_ask_is_refused(text):
    with pytest.raises(BenchInputError, match="http://HOST"):
        parse_opponent(text)


@pytest.mark.parametrize(
    "text", ["openai", "sglang", "vllm:8", "llamacpp:q4", "llamacpp:0", "transformers:8", "llamacpp:16:file"]
)
def test_what_is_not_known_is_refused_with_what_is(text):
    with pytest.raises(BenchInputError) as caught:
        parse_opponent(text)
    assert repr(text) in str(caught.value)
    assert FORMS in str(caught.value)


def test_headway_may_be_compared_with_itself_under_other_settings():
    assert parse_opponent("engine+max-prefill-chunk=64+max_num_seqs=8") == Variant(
        Target.ENGINE, (("max_prefill_chunk", "64"), ("max_num_seqs", "8"))
    )


@pytest.mark.parametrize("text", ["engine+", "nats+policy", "nats+=sjf", "nats+policy=", "nats+policy=sjf+"])
def test_a_change_that_names_no_setting_or_no_value_is_refused(text):
    with pytest.raises(BenchInputError, match="SETTING=VALUE"):
        parse_opponent(text)


def test_a_peer_that_sets_its_length_aside_beforehand_is_told_the_longest_request():
    assert parse_opponent("vllm").command("a-model", longest=4104)[1:] == [
        *("-m", "loadtest.peers.vllm_runner", "a-model", "--longest", "4104")
    ]
    assert "--longest" not in parse_opponent("transformers").command("a-model", longest=4104)
