from __future__ import annotations

import pytest
from transformers import GPT2Config, LlamaConfig, Phi3Config, PretrainedConfig

from headway.core.errors import SettingError
from headway.engine.config import EngineConfig
from headway.engine.parallel.divisible import check_divisible


def make_llama(num_heads: int, num_kv_heads: int) -> LlamaConfig:
    return LlamaConfig(hidden_size=8 * num_heads, num_attention_heads=num_heads, num_key_value_heads=num_kv_heads)


def refusal(stated: PretrainedConfig, size: int) -> str:
    with pytest.raises(SettingError) as caught:
        check_divisible(stated, EngineConfig(tensor_parallel_size=size))
    assert (caught.value.setting, caught.value.value) == ("tensor_parallel_size", size)
    return caught.value.fix


@pytest.mark.parametrize(
    ("stated", "size"),
    [
        (make_llama(9, 3), 1),
        (make_llama(9, 3), 3),
        (make_llama(8, 4), 4),
        (Phi3Config(hidden_size=72, num_attention_heads=9, num_key_value_heads=3), 2),
        (GPT2Config(), 1),
    ],
    ids=["one rank", "as many as heads", "several heads each", "every rank has all heads", "no plan and one rank"],
)
def test_heads_that_come_out_even_are_divided(stated: PretrainedConfig, size: int) -> None:
    check_divisible(stated, EngineConfig(tensor_parallel_size=size))


def test_heads_that_do_not_are_refused_with_the_numbers_that_go() -> None:
    assert "9 attention heads and 3 key/value heads; use 1" in refusal(make_llama(9, 3), 2)
    assert refusal(make_llama(12, 6), 4).endswith("use 1 or 2 or 3")
    assert refusal(make_llama(8, 2), 4).endswith("use 1 or 2")


def test_a_model_without_a_plan_is_refused() -> None:
    assert refusal(GPT2Config(), 2) == "transformers has no plan to divide models of the type gpt2 (tp_plan); use 1"
