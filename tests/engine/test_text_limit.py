"""No text within the limits of a model may be refused, so a token may never stand for more characters than said."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer
from transformers import PreTrainedTokenizerFast

from headway.engine.load import LoadedModel
from headway.engine.text_limit import TextLimit, text_limit

BYTES = {character: number for number, character in enumerate(pre_tokenizers.ByteLevel.alphabet())}
BYTE_FALLBACK = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"▁": 256, "a": 257, "▁a": 258}
TEXTS = st.text(
    st.sampled_from(" \n\t\x04aéß🎉한ᾂ가\u0301\u0313\u0300\u0345\u1100\u1161\u11a8ﷺİ")
    | st.characters(exclude_categories=["Cs"])
)


def byte_level(normalizer: Normalizer | None = None, pre_tokenizer: PreTokenizer | None = None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(BYTES | {"aa": 256, "aaa": 257}, [("a", "a"), ("aa", "a")]))
    byte_split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizer, byte_split]) if pre_tokenizer else byte_split
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return tokenizer


def byte_fallback() -> Tokenizer:
    model = models.BPE(BYTE_FALLBACK, [("▁", "a")], unk_token="<0x00>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer


def stripping() -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.add_special_tokens([AddedToken("<|user|>", rstrip=True)])
    return tokenizer


def with_gaps() -> Tokenizer:
    """A byte-level vocabulary without bytes that its training never saw."""
    lost = {symbol for symbol in BYTES if ord(symbol) in {0x61, 0xF1, 0x104}}
    tokenizer = Tokenizer(models.BPE({symbol: number for symbol, number in BYTES.items() if symbol not in lost}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def limit_of(tokenizer: Tokenizer) -> TextLimit | None:
    return text_limit(PreTrainedTokenizerFast(tokenizer_object=tokenizer))


LIMITED = {
    "bytes": (byte_level(), 3),
    "composed": (byte_level(normalizers.NFC()), 12),
    "compatible": (byte_level(normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])), 12),
    "decomposed": (byte_level(normalizers.NFD()), 3),
    "split": (byte_level(pre_tokenizer=pre_tokenizers.Split(" ", "isolated")), 3),
    "fallback": (byte_fallback(), 6),
    "gaps": (with_gaps(), 1),
}


@pytest.mark.parametrize("name", LIMITED)
@settings(deadline=None, max_examples=60)
@given(text=TEXTS)
def test_no_token_stands_for_more_characters_than_the_limit(name: str, text: str) -> None:
    tokenizer, expected = LIMITED[name]
    limit = limit_of(tokenizer)
    assert limit is not None
    assert limit.max_characters_per_token == expected
    assert limit.num_characters(text) <= expected * len(tokenizer.encode(text).ids)


@pytest.mark.parametrize(
    "tokenizer",
    [
        Tokenizer(models.WordLevel({"a": 0}, unk_token="a")),
        Tokenizer(models.WordPiece({"a": 0}, unk_token="a")),
        Tokenizer(models.Unigram([("a", 0.0)], 0, False)),
        Tokenizer(models.BPE({"a": 0}, [])),
        Tokenizer(models.BPE(BYTES, [])),
        Tokenizer(models.BPE({"a": 0}, [], unk_token="a", fuse_unk=True)),
        byte_level(normalizers.Strip()),
        byte_level(normalizers.Replace("aa", "a")),
        byte_level(pre_tokenizer=pre_tokenizers.Whitespace()),
        byte_level(pre_tokenizer=pre_tokenizers.Split(" ", "removed")),
        stripping(),
    ],
)
def test_where_characters_may_be_lost_no_limit_is_assumed(tokenizer: Tokenizer) -> None:
    assert limit_of(tokenizer) is None


@pytest.fixture(scope="module")
def default_limit(smollm2: LoadedModel) -> TextLimit:
    """Found once: it takes a look at every token."""
    assert smollm2.tokenizer is not None
    limit = text_limit(smollm2.tokenizer)
    assert limit is not None
    return limit


def test_the_limit_of_the_default_model_is_its_longest_token(smollm2: LoadedModel, default_limit: TextLimit) -> None:
    assert smollm2.tokenizer is not None
    assert default_limit.max_characters_per_token == max(map(len, smollm2.tokenizer.get_vocab()))


@settings(deadline=None, max_examples=200)
@given(text=TEXTS)
def test_the_limit_of_the_default_model_holds(smollm2: LoadedModel, default_limit: TextLimit, text: str) -> None:
    assert smollm2.tokenizer is not None
    num_tokens = len(smollm2.tokenizer.encode(text))
    assert default_limit.num_characters(text) <= default_limit.max_characters_per_token * num_tokens


def test_characters_that_become_no_token_are_not_counted() -> None:
    limit = limit_of(with_gaps())
    assert limit == TextLimit(1, "\x04a")
    assert limit.num_characters("\x04ba\x04c") == 2
