from __future__ import annotations

import copy
import threading

import pytest

from headway.core.errors import JobRejected, RejectCode
from headway.core.job import JobKey, Message, SamplingParams
from headway.engine.load import LoadedModel
from headway.engine.messages import Submit
from headway.engine.tokenizer import Tokenizer

MAX_MODEL_LEN = 32


@pytest.fixture(scope="module")
def tokenizer(smollm2: LoadedModel) -> Tokenizer:
    assert smollm2.tokenizer is not None
    return Tokenizer(smollm2.tokenizer, smollm2.vocab_size, MAX_MODEL_LEN)


def make_submit(
    prompt: str | tuple[int, ...] | None = None, messages: tuple[Message, ...] | None = None, **params: object
) -> Submit:
    return Submit(JobKey("acme", "a"), SamplingParams(**{"max_tokens": 4, **params}), prompt, messages)  # type: ignore[arg-type]


def rejection(tokenizer: Tokenizer, job: Submit) -> tuple[RejectCode, str | None]:
    with pytest.raises(JobRejected) as caught:
        tokenizer.encode(job)
    return caught.value.code, caught.value.field


def test_a_prompt_becomes_token_ids_and_reads_as_before(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode(make_submit("Grüße, world 🎉"))) == "Grüße, world 🎉"


def test_token_ids_are_taken_as_they_are(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode(make_submit((5, 0, 49151))) == [5, 0, 49151]


def test_messages_go_through_the_chat_template(tokenizer: Tokenizer, smollm2: LoadedModel) -> None:
    token_ids = tokenizer.encode(make_submit(messages=(Message("system", "Be brief."), Message("user", "Hi"))))
    text = smollm2.tokenizer.decode(token_ids)  # type: ignore[union-attr]
    assert text == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (None, "no chat template"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ 1 + 'a' }}", "int"),
    ],
)
def test_messages_that_the_template_cannot_take_are_rejected(
    smollm2: LoadedModel, template: str | None, said: str
) -> None:
    changed = copy.copy(smollm2.tokenizer)
    changed.chat_template = template  # type: ignore[union-attr]
    job = make_submit(messages=(Message("user", "Hi"),))
    with pytest.raises(JobRejected, match=said) as caught:
        Tokenizer(changed, smollm2.vocab_size, MAX_MODEL_LEN).encode(job)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.field) == (RejectCode.INVALID_VALUE, "messages")


def test_a_chat_template_cannot_reach_out_of_its_sandbox(smollm2: LoadedModel) -> None:
    changed = copy.copy(smollm2.tokenizer)
    changed.chat_template = "{{ messages.__class__.__mro__[1].__subclasses__() }}"  # type: ignore[union-attr]
    with pytest.raises(JobRejected, match="unsafe"):
        Tokenizer(changed, smollm2.vocab_size, MAX_MODEL_LEN).encode(make_submit(messages=(Message("user", "Hi"),)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (make_submit((5, 49152)), "prompt"),
        (make_submit((-1,)), "prompt"),
        (make_submit("a", stop_token_ids=(49152,)), "stop_token_ids"),
        (make_submit("a", logit_bias=((49152, 1.0),)), "logit_bias"),
        (make_submit(""), "prompt"),
        (make_submit(()), "prompt"),
    ],
)
def test_what_the_vocabulary_lacks_is_rejected_by_field(tokenizer: Tokenizer, job: Submit, field: str) -> None:
    assert rejection(tokenizer, job) == (RejectCode.INVALID_VALUE, field)


def test_a_text_with_a_token_that_the_model_has_no_embedding_of_is_rejected(smollm2: LoadedModel) -> None:
    assert smollm2.tokenizer is not None
    narrow = Tokenizer(smollm2.tokenizer, 300, 64)
    assert rejection(narrow, make_submit("a Schwabacher")) == (RejectCode.INVALID_VALUE, "prompt")
    assert rejection(narrow, make_submit(messages=(Message("user", "a"),))) == (RejectCode.INVALID_VALUE, "messages")


def test_prompt_and_output_must_fit_the_length_to_the_token(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.encode(make_submit((7,) * 28, max_tokens=4))) == 28
    assert rejection(tokenizer, make_submit((7,) * 28, max_tokens=5)) == (RejectCode.TOO_LONG, "max_tokens")
    assert len(tokenizer.encode(make_submit((7,) * 31, max_tokens=1))) == 31
    assert rejection(tokenizer, make_submit((7,) * 32, max_tokens=1)) == (RejectCode.TOO_LONG, "prompt")
    many = (Message("user", "word " * 40),)
    assert rejection(tokenizer, make_submit(messages=many)) == (RejectCode.TOO_LONG, "messages")


def test_a_text_with_more_characters_than_can_fit_is_not_tokenized(tokenizer: Tokenizer, smollm2: LoadedModel) -> None:
    longest = 81  # characters of the vocabulary's longest entry
    most = MAX_MODEL_LEN * longest
    for num_characters, said in (
        (most, "tokens; with one output token"),
        (most + 1, f"{most + 1} characters; at most {most}"),
    ):
        with pytest.raises(JobRejected, match=said) as caught:
            tokenizer.encode(make_submit("a" * num_characters))
        assert (caught.value.code, caught.value.field) == (RejectCode.TOO_LONG, "prompt")
    chat = (Message("user", "a" * most), Message("user", "a"))
    with pytest.raises(JobRejected, match=f"at most {most} are possible: ") as caught:
        tokenizer.encode(make_submit(messages=chat))
    assert (caught.value.code, caught.value.field) == (RejectCode.TOO_LONG, "messages")


def test_a_chat_whose_template_leaves_most_of_it_out_fits(smollm2: LoadedModel) -> None:
    changed = copy.copy(smollm2.tokenizer)
    changed.chat_template = "{{ messages[-1].content | trim }}"  # type: ignore[union-attr]
    tokenizer = Tokenizer(changed, smollm2.vocab_size, MAX_MODEL_LEN)  # type: ignore[arg-type]
    chat = (Message("user", "a" * 10_000), Message("user", "Hi" + " " * 10_000))
    assert tokenizer.decode(tokenizer.encode(make_submit(messages=chat))) == "Hi"


def test_one_thread_may_encode_while_another_decodes(smollm2: LoadedModel) -> None:
    """Encoding changes the settings of a tokenizer that comes with others, as one that truncates does."""
    changed = copy.deepcopy(smollm2.tokenizer)
    tokenizer = Tokenizer(changed, smollm2.vocab_size, 10**6)  # type: ignore[arg-type]
    failures: list[Exception] = []

    def encode() -> None:
        try:
            for _ in range(20):
                tokenizer._encoder.backend_tokenizer.enable_truncation(8)
                assert len(tokenizer.encode(make_submit("word " * 5000))) == 5001
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=encode)
    thread.start()
    while thread.is_alive():
        changed.backend_tokenizer.enable_truncation(8)  # type: ignore[union-attr]
        assert tokenizer.decode([4093]) == tokenizer.decode([4093])
    thread.join()
    assert failures == []
