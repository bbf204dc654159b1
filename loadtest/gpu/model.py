"""A model of a given shape with random weights, made in memory, and a tokenizer for it: nothing is downloaded, and
nothing written."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from string import ascii_lowercase

import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, PreTrainedTokenizerFast

from loadtest.floor import Floor

SEED = 7


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Of a Llama. The default is Llama 3 8B's."""

    name: str = "llama-3-8b-shaped"
    num_layers: int = 32
    hidden_size: int = 4096
    num_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 128
    intermediate_size: int = 14_336
    vocab_size: int = 128_256
    max_model_len: int = 8192
    dtype: torch.dtype = torch.bfloat16

    @property
    def num_layer_weights(self) -> int:
        """Of all linear layers but the head."""
        attention = self.hidden_size * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)
        return self.num_layers * (attention + 3 * self.hidden_size * self.intermediate_size)

    @property
    def num_weights(self) -> int:
        """Of all linear layers. The table of embeddings is looked up, not read, and norms are small."""
        return self.num_layer_weights + self.hidden_size * self.vocab_size

    @property
    def weight_bytes(self) -> int:
        return self.num_weights * self.dtype.itemsize

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.dtype.itemsize

    def floor(self, read_bytes_per_s: float, matrix_flops_per_s: float) -> Floor:
        """Of its decode steps, on a device with these rates."""
        return Floor(read_bytes_per_s, matrix_flops_per_s, self.num_weights, self.weight_bytes, self.kv_bytes_per_token)

    def prefill_flops(self, num_tokens: int) -> float:
        """Of one prompt: each weight multiplied with each token, each query with all keys up to its own and with their
        values. The head is computed for one token."""
        num_pairs = num_tokens * (num_tokens + 1) / 2
        attention = 4 * self.num_layers * self.num_heads * self.head_dim * num_pairs
        return 2.0 * (self.num_layer_weights * num_tokens + self.hidden_size * self.vocab_size) + attention


def build_model(shape: ModelShape, device: torch.device, attention: str) -> PreTrainedModel:
    """The same weights every time on the same kind of device. ``attention`` is its ``attn_implementation``."""
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.max_model_len,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    with device:
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, dtype=shape.dtype, attn_implementation=attention
        )
    return model.eval()


def num_linear_weights(model: nn.Module) -> int:
    """As they lie in the model."""
    return sum(module.weight.numel() for module in model.modules() if isinstance(module, nn.Linear))


def build_tokenizer(vocab_size: int) -> PreTrainedTokenizerFast:
    """A word of letters per token, read byte by byte as Llama 3's are, so that detokenizing is the work that it is."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = ("Ġ" + "".join(letters) for length in range(1, 5) for letters in product(ascii_lowercase, repeat=length))
    vocabulary = {word: number for number, word in zip(range(vocab_size), words, strict=False)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)
