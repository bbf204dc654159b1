from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as Backend

from headway.core.job import SamplingParams
from headway.core.records import TokenLogprobs
from headway.engine.detokenizer import Detokenizer, Piece
from headway.engine.load import LoadedModel
from headway.engine.text_stream import Decode, TextStream
from headway.engine.tokenizer import Tokenizer

# What breaks naive decoders: many bytes per character, joined emoji, combining marks, spaces, right-to-left.
awkward = st.sampled_from(
    ["é", "ß", "日本", "🎉", "👩‍👩‍👧‍👦", "🇪🇺", "e\u0301", "ـع", "\u200b", " ", "  ", "\n", "</s", "<|im", "a", "The "]
)
texts = st.lists(st.one_of(awkward, st.text(max_size=4)), min_size=1, max_size=12).map("".join)


@pytest.fixture(scope="module")
def tokenizer(smollm2: LoadedModel) -> Tokenizer:
    assert smollm2.tokenizer is not None
    return Tokenizer(smollm2.tokenizer, smollm2.vocab_size, smollm2.max_model_len)


@pytest.fixture(scope="module")
def encode(smollm2: LoadedModel) -> Callable[[str], list[int]]:
    assert smollm2.tokenizer is not None
    return lambda text: smollm2.tokenizer.encode(text, add_special_tokens=False)  # type: ignore[union-attr]


def make_detokenizer(decode: Decode, prompt: list[int] | None = None, **params: object) -> Detokenizer:
    return Detokenizer(decode, prompt or [], SamplingParams(**params))  # type: ignore[arg-type]


def pieces(detokenizer: Detokenizer, token_ids: list[int]) -> Iterator[Piece]:
    """Everything that a client gets, one piece per token and one at the end, stopping where the job stops."""
    for token_id in token_ids:
        detokenizer.push(token_id, None, is_stop=False)
        if detokenizer.found_stop:
            break
        yield detokenizer.take()
    yield detokenizer.finish()


@settings(deadline=None, max_examples=200)
@given(text=texts)
def test_the_pieces_are_the_whole_text_and_no_character_is_half(
    tokenizer: Tokenizer, encode: Callable[[str], list[int]], text: str
) -> None:
    token_ids = encode(text)
    assume(tokenizer.decode(token_ids) == text)  # the vocabulary lacks the bytes of a few rare characters
    given_out = list(pieces(make_detokenizer(tokenizer.decode), token_ids))
    assert "".join(piece.text for piece in given_out) == text
    assert [token for piece in given_out for token in piece.token_ids] == token_ids
    assert "\ufffd" in text or not any("\ufffd" in piece.text for piece in given_out)


@settings(deadline=None, max_examples=200)
@given(text=texts, data=st.data())
def test_text_stops_before_the_stop_string_however_tokens_split_it(
    tokenizer: Tokenizer, encode: Callable[[str], list[int]], text: str, data: st.DataObject
) -> None:
    token_ids = encode(text)
    assume(text and tokenizer.decode(token_ids) == text)
    begin = data.draw(st.integers(0, len(text) - 1))
    stop = text[begin : begin + data.draw(st.integers(1, 6))]
    given_out = list(pieces(make_detokenizer(tokenizer.decode, stop=(stop,)), token_ids))
    assert "".join(piece.text for piece in given_out) == text[: text.index(stop)]


@settings(deadline=None, max_examples=100)
@given(text=texts, stop=st.lists(st.text(alphabet="T</s é", min_size=1, max_size=3), max_size=2).map(tuple))
def test_a_resume_from_any_delivery_goes_on_as_if_nothing_had_happened(
    tokenizer: Tokenizer, encode: Callable[[str], list[int]], text: str, stop: tuple[str, ...]
) -> None:
    prompt, token_ids = encode("Once upon a time"), encode(text)
    whole = list(pieces(make_detokenizer(tokenizer.decode, prompt, stop=stop), token_ids))
    for count in range(len(whole)):
        log_tokens = tuple(token for piece in whole[:count] for token in piece.token_ids)
        log_text = "".join(piece.text for piece in whole[:count])
        resumed = make_detokenizer(tokenizer.decode, prompt, stop=stop)
        resumed.restore(log_tokens, log_text, is_stopped=False)
        rest = list(pieces(resumed, token_ids[len(log_tokens) :]))
        assert log_text + "".join(piece.text for piece in rest) == "".join(piece.text for piece in whole)
        assert sum(len(piece.token_ids) for piece in rest) == sum(len(piece.token_ids) for piece in whole[count:])


def byte_decode(token_ids: list[int]) -> str:
    """One token per byte: the worst vocabulary there is. Ids from 256 on are special."""
    return bytes(token for token in token_ids if token < 256).decode("utf-8", errors="replace")


def test_a_text_that_could_begin_a_stop_string_waits_with_its_tokens() -> None:
    detokenizer = make_detokenizer(byte_decode, stop=("</s>",))
    taken = []
    for token in b"a</b</s>":
        detokenizer.push(token, None, is_stop=False)
        taken.append("" if detokenizer.found_stop else bytes(detokenizer.take().token_ids).decode())
    assert taken == ["a", "", "", "</b", "", "", "", ""]
    assert detokenizer.finish() == Piece(tuple(b"</s>"), "")


def test_a_stop_string_that_completes_before_min_tokens_does_not_count() -> None:
    given_out = list(pieces(make_detokenizer(byte_decode, stop=("ab",), min_tokens=4), list(b"abxabx")))
    assert "".join(piece.text for piece in given_out) == "abx"
    early = list(pieces(make_detokenizer(byte_decode, stop=("aa",), min_tokens=3), list(b"aaab")))
    assert "".join(piece.text for piece in early) == "a"


def test_a_stop_token_has_no_text_and_lets_go_of_what_waited() -> None:
    detokenizer = make_detokenizer(byte_decode, stop=("</s>",))
    for token in b"x</":
        detokenizer.push(token, None, is_stop=False)
    detokenizer.push(ord("!"), None, is_stop=True)
    assert detokenizer.finish() == Piece(tuple(b"x</!"), "x</")


def test_a_character_that_is_never_finished_is_never_shown() -> None:
    *_, last = pieces(make_detokenizer(byte_decode), list("é🎉".encode())[:-1])
    assert last.text == ""
    assert len(last.token_ids) == 3


def test_bytes_that_are_no_character_wait_four_tokens_and_not_for_ever() -> None:
    given_out = list(pieces(make_detokenizer(byte_decode), [0xFF] * 20 + list("é".encode())))
    assert all(piece.text == "\ufffd" for piece in given_out[4:20])
    assert "".join(piece.text for piece in given_out) == "\ufffd" * 20 + "é"


def test_special_tokens_have_no_text_and_leave_no_trace() -> None:
    stream = TextStream(byte_decode, list(b"prompt"))
    assert [stream.push(token) for token in [300] * 50 + [ord("a")]] == [""] * 50 + ["a"]
    assert len(stream._window) < 10


def test_a_prompt_that_ends_in_half_a_character_gets_its_other_half() -> None:
    prompt, output = list("é🎉".encode())[:-2], list("🎉".encode())[-2:]
    given_out = list(pieces(make_detokenizer(byte_decode, prompt), output))
    assert "".join(piece.text for piece in given_out) == "🎉"


def test_logprobs_go_with_their_tokens() -> None:
    detokenizer = make_detokenizer(byte_decode, logprobs=0)
    for number, token in enumerate("é".encode()):
        detokenizer.push(token, TokenLogprobs(-float(number)), is_stop=False)
    assert detokenizer.take().logprobs == (TokenLogprobs(-0.0), TokenLogprobs(-1.0))


def test_a_sentencepiece_vocabulary_keeps_the_space_between_prompt_and_output() -> None:
    vocabulary = [
        ("<unk>", 0.0),
        ("▁is", -1.0),
        ("▁Paris", -1.0),
        ("▁", -1.0),
        *((f"<0x{b:02X}>", -1.0) for b in range(256)),
    ]
    backend = Backend(models.Unigram(vocabulary, 0, byte_fallback=True))
    backend.add_special_tokens([AddedToken("<s>", special=True)])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    emoji = [4 + byte for byte in "🎉".encode()]
    output = [2, 3, *emoji, *emoji, 2]
    for prompt in ([1], [260, 1]):
        given_out = list(pieces(make_detokenizer(backend.decode, prompt), output))
        assert "".join(piece.text for piece in given_out) == " Paris 🎉🎉 Paris"
