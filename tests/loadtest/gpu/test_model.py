"""A model of a given shape, and what it takes at the least."""

from __future__ import annotations

import pytest
import torch

from loadtest.gpu.model import ModelShape, build_model, build_tokenizer, num_linear_weights


def test_llama_3_8b_has_the_numbers_of_its_paper():
    shape = ModelShape()
    assert round(shape.num_weights + shape.vocab_size * shape.hidden_size, -8) == 8_000_000_000
    assert shape.kv_bytes_per_token == 131_072


def test_the_weights_that_are_counted_are_those_of_the_model(tiny_shape):
    model = build_model(tiny_shape, torch.device("cpu"), "eager")
    assert num_linear_weights(model) == tiny_shape.num_weights
    head = model.lm_head.weight.numel()
    assert tiny_shape.num_layer_weights == tiny_shape.num_weights - head


def test_the_weights_are_the_same_every_time(tiny_shape):
    first, second = (build_model(tiny_shape, torch.device("cpu"), name) for name in ("eager", "sdpa"))
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)
        assert one.dtype == tiny_shape.dtype


def test_a_floor_reads_weights_once_and_each_sequence_once():
    shape = ModelShape()
    floor = shape.floor(read_bytes_per_s=1e12, matrix_flops_per_s=1e15)
    assert floor.read_seconds(64, 1024) == pytest.approx((shape.weight_bytes + 64 * 1024 * 131_072) / 1e12)
    few, many = floor.decode_step_seconds(1, 0), floor.decode_step_seconds(4096, 0)
    assert few == floor.read_seconds(1, 0)
    assert many == pytest.approx(2 * shape.num_weights * 4096 / 1e15)


def test_a_prompt_takes_its_products_and_half_a_square_of_attention():
    shape = ModelShape(num_layers=1, num_heads=1, num_kv_heads=1, head_dim=2, hidden_size=2, vocab_size=0)
    linear = 2 * shape.num_layer_weights
    assert shape.prefill_flops(1) == linear + 4 * 2
    assert shape.prefill_flops(3) == 3 * linear + 4 * 2 * (1 + 2 + 3)


@pytest.mark.parametrize("vocab_size", [96, 128_256])
def test_every_token_is_a_word_of_its_own(vocab_size):
    tokenizer = build_tokenizer(vocab_size)
    assert len(tokenizer) == vocab_size
    words = {tokenizer.decode([token]) for token in (0, 25, 26, vocab_size - 1)}
    assert len(words) == 4
    assert tokenizer.decode([0, 26]) == tokenizer.decode([0]) + tokenizer.decode([26])
