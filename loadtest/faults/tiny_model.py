"""A small Llama with random weights, one token per character, as it would come from the hub.

Besides the printable characters of ASCII it has two tokens that only together make one, so that a character can be
half received.
"""

from __future__ import annotations

from pathlib import Path

SPECIAL = ("<unk>", "<s>", "</s>")
HALVES = ("Ã", "©")
"""The two bytes of é, as byte-level tokenizers write them."""
ASCII = tuple("Ġ" if code == 32 else chr(code) for code in range(32, 127))
TOKENS = (*SPECIAL, *HALVES, *ASCII)
HALF_IDS = tuple(TOKENS.index(half) for half in HALVES)
MAX_MODEL_LEN = 1024


def save_tiny_model(folder: Path, num_layers: int = 2) -> Path:
    """Deterministic: the same weights every time. More layers make it slower, for those who want to hit one token."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=MAX_MODEL_LEN,
        initializer_range=0.3,  # tied embeddings of small weights would repeat one character for ever
        tie_word_embeddings=False,
        bos_token_id=TOKENS.index("<s>"),
        eos_token_id=TOKENS.index("</s>"),
        dtype="float32",
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    _save_tokenizer(folder)
    return folder


def _save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: index for index, token in enumerate(TOKENS)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>")
    fast.save_pretrained(folder)
