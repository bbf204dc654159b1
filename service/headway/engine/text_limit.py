"""How few tokens a text can become: what makes it too long before it is tokenized.

Tokenizing takes time in proportion to the text, so a text that can never fit should not be tokenized to find that out.
With most tokenizers of language models no character of the input is lost, so a token stands for at most as many
characters as the longest entry of the vocabulary has. Where characters may be lost without limit (unknown words that
become one token, white space that is dropped, tokenizers in Python), there is no such number, and nothing is assumed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerBase

_MAX_COMPOSED_CHARACTERS = 4
"""NFC and NFKC make one character of so many at most: the longest canonical decomposition (Unicode, UAX #15)."""
_SHRINK_FACTORS = {
    **dict.fromkeys(("NFD", "NFKD", "Lowercase", "Prepend", "ByteLevel"), 1),
    **dict.fromkeys(("NFC", "NFKC"), _MAX_COMPOSED_CHARACTERS),
}
"""By normalizer: how many characters of its input one of its output stands for at most."""
_KEEPING_PRE_TOKENIZERS = frozenset({"ByteLevel", "Metaspace", "Digits", "UnicodeScripts", "FixedLength"})
"""They split, and drop nothing."""
_SPLITTING_PRE_TOKENIZERS = frozenset({"Split", "Punctuation"})
"""They drop nothing unless their behavior is to remove what they split at."""
_BYTE_TOKENS = frozenset(f"<0x{byte:02X}>" for byte in range(256))
_VISIBLE_BYTES = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
"""They stand for themselves in a byte-level vocabulary; the others are characters from U+0100 on, in their order."""
_CONTINUATION_BYTES = range(0x80, 0xC0)
"""In UTF-8 every character beyond ASCII has one."""


@dataclass(frozen=True, slots=True)
class TextLimit:
    max_characters_per_token: int
    """≥ 1."""
    lost_characters: str = ""
    """Characters that become no token at all; not counted."""

    def num_characters(self, text: str) -> int:
        """Those that count."""
        return len(text) - sum(map(text.count, self.lost_characters))


def text_limit(tokenizer: PreTrainedTokenizerBase) -> TextLimit | None:
    """None if a token may stand for any number of characters, or that is not known."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        return None
    normalizers, pre_tokenizers = _parts(backend.normalizer), _parts(backend.pre_tokenizer)
    strips = any(token.lstrip or token.rstrip for token in backend.get_added_tokens_decoder().values())
    if strips or not all(map(_keeps_all, pre_tokenizers)):
        return None
    most = max(map(len, backend.get_vocab()), default=0)
    for normalizer in normalizers:
        most *= _shrink_factor(normalizer)
    lost = _lost_characters(backend, any(part["type"] == "ByteLevel" for part in (*normalizers, *pre_tokenizers)))
    return None if lost is None or most == 0 else TextLimit(most, lost)


def _parts(step: Any) -> list[dict[str, Any]]:
    """A step of the tokenizer as it stands in its file, taken apart if it is a sequence of steps."""
    return [] if step is None else _flat(json.loads(step.__getstate__()))


def _flat(step: dict[str, Any]) -> list[dict[str, Any]]:
    if step["type"] != "Sequence":
        return [step]
    steps = step["normalizers"] if "normalizers" in step else step["pretokenizers"]
    return [part for inner in steps for part in _flat(inner)]


def _shrink_factor(normalizer: dict[str, Any]) -> int:
    """0: it may drop characters."""
    if normalizer["type"] == "Replace":
        pattern = normalizer["pattern"].get("String")
        return 1 if pattern and len(pattern) <= len(normalizer["content"]) else 0
    return _SHRINK_FACTORS.get(normalizer["type"], 0)


def _keeps_all(pre_tokenizer: dict[str, Any]) -> bool:
    if pre_tokenizer["type"] in _SPLITTING_PRE_TOKENIZERS:
        return bool(pre_tokenizer["behavior"] != "Removed")
    return pre_tokenizer["type"] in _KEEPING_PRE_TOKENIZERS


def _lost_characters(backend: Tokenizer, is_byte_level: bool) -> str | None:
    """What byte-pair encoding leaves out, or makes one token of, for want of an entry; None if that is anything.

    Byte-level vocabularies often lack bytes that their training never saw, as some control characters.
    """
    model = backend.model
    if not isinstance(model, BPE):
        return None
    vocabulary = backend.get_vocab().keys()
    has_unknown_token = model.unk_token is not None and not model.fuse_unk
    if has_unknown_token or (model.byte_fallback and vocabulary >= _BYTE_TOKENS):
        return ""
    lost = [byte for byte, symbol in enumerate(_byte_symbols()) if symbol not in vocabulary]
    if not is_byte_level or any(byte in _CONTINUATION_BYTES for byte in lost):
        return None
    return "".join(chr(byte) for byte in lost if byte < _CONTINUATION_BYTES.start)


def _byte_symbols() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2)."""
    symbols = list(map(chr, range(256)))
    for index, byte in enumerate(byte for byte in range(256) if byte not in _VISIBLE_BYTES):
        symbols[byte] = chr(256 + index)
    return symbols
