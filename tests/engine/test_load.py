from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Llama4TextConfig,
    LlamaConfig,
    MambaConfig,
    PretrainedConfig,
    StableLmConfig,
)

from headway.core.errors import EngineError, SettingError
from headway.engine import cpu_rewrite, gguf, hub
from headway.engine.attention import ATTENTION_NAME
from headway.engine.cache_folder import cache_folder
from headway.engine.config import AutoOrOff, Device, DType, EngineConfig, Quantization
from headway.engine.gguf import publish_folder
from headway.engine.int8_linear import Int8Linear
from headway.engine.linears import Rewrite, weight_bytes
from headway.engine.load import LoadedModel, load_model, prepare
from headway.engine.measure import LayerShape
from headway.engine.native.kernels import use_native_kernels
from headway.engine.native_linear import NativeLinear
from headway.engine.packed_linear import PackedLinear, can_pack

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def load(model: Path | str, **settings: object) -> LoadedModel:
    return load_model(EngineConfig(model=str(model), device=Device.CPU, **settings), print)


def refusal(model: Path | str, **settings: object) -> str:
    with pytest.raises(SettingError) as caught:
        load(model, **settings)
    assert caught.value.setting == "model"
    return str(caught.value)


def test_the_built_in_model_is_complete(smollm2: LoadedModel) -> None:
    tokenizer = smollm2.tokenizer
    ends = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert smollm2.eos_token_ids == set(ends)
    assert smollm2.layers == (LayerShape(3, 64, 64),) * 30
    assert (smollm2.vocab_size, smollm2.max_model_len) == (49152, 8192)
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert chat.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_a_folder_is_loaded_in_its_own_type(tiny_llama: Path) -> None:
    loaded = load(tiny_llama)
    assert (loaded.dtype, loaded.device.type) == (torch.float32, "cpu")
    assert loaded.layers == (LayerShape(2, 8, 8),) * 2
    assert loaded.eos_token_ids == {2, 3}
    assert loaded.config._attn_implementation == ATTENTION_NAME


def test_an_end_that_the_model_cannot_say_is_none(tiny_llama: Path) -> None:
    """Its logit would be masked below min_tokens, beyond the end of the vocabulary."""
    path = tiny_llama / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": [2, 10**6]}))
    assert load(tiny_llama).eos_token_ids == {2}


def test_the_type_can_be_chosen(tiny_llama: Path) -> None:
    assert load(tiny_llama, dtype=DType.FLOAT64).dtype == torch.float64


def has_packed(loaded: LoadedModel) -> bool:
    return any(isinstance(module, NativeLinear | PackedLinear) for module in loaded.model.modules())


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16, DType.FLOAT64])
def test_weights_are_packed_where_the_cpu_gains(tiny_llama: Path, dtype: DType) -> None:
    assert has_packed(load(tiny_llama, dtype=dtype)) == can_pack(getattr(torch, dtype), torch.device("cpu"))


def test_packing_can_be_turned_off(tiny_llama: Path) -> None:
    assert not has_packed(load(tiny_llama, pack_weights=AutoOrOff.OFF))


def test_no_weight_stays_in_the_checkpoint_s_file_once_they_are_packed(tiny_llama: Path) -> None:
    """Else the whole file stays mapped."""
    loaded = load(tiny_llama)
    if not has_packed(loaded):
        pytest.skip("not packed on this CPU")
    mapped = Path("/proc/self/maps")
    if not mapped.exists():
        pytest.skip("Linux only")
    assert str(tiny_llama) not in mapped.read_text()


@pytest.fixture
def kernels() -> None:
    if not use_native_kernels(cache_folder(EngineConfig()), print):
        pytest.skip("there is no compiler")


@pytest.mark.usefixtures("kernels")
def test_int8_weights_take_a_byte_each_and_the_others_are_gone(tiny_llama: Path) -> None:
    plain, quantised = load(tiny_llama, pack_weights=AutoOrOff.OFF), load(tiny_llama, quantization=Quantization.INT8)
    linears = [module for module in plain.model.modules() if isinstance(module, nn.Linear)]
    num_weights, num_outputs = (
        sum(layer.weight.numel() for layer in linears),
        sum(layer.out_features for layer in linears),
    )
    assert not any(isinstance(module, nn.Linear) for module in quantised.model.modules())
    assert any(isinstance(module, Int8Linear) for module in quantised.model.modules())
    assert weight_bytes(quantised.model) == weight_bytes(plain.model) - 4 * num_weights + num_weights + 4 * num_outputs


@pytest.mark.usefixtures("kernels")
def test_int8_is_refused_for_a_type_that_it_does_not_go_with(tiny_llama: Path) -> None:
    with pytest.raises(SettingError, match="not with float64; set dtype") as caught:
        load(tiny_llama, dtype=DType.FLOAT64, quantization=Quantization.INT8)
    assert caught.value.setting == "quantization"


@pytest.mark.usefixtures("kernels")
def test_int8_is_refused_where_the_model_s_code_minds(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_rewrite, "rewrite_linears", lambda *_: Rewrite(obstacle="it reads a weight"))
    with pytest.raises(SettingError, match="it reads a weight") as caught:
        load(tiny_llama, quantization=Quantization.INT8)
    assert caught.value.setting == "quantization"


@pytest.mark.parametrize(("setting", "expected"), [(None, 256), (100, 100), (1000, 256)])
def test_a_sequence_is_as_long_as_the_model_and_the_setting_allow(
    tiny_llama: Path, setting: int | None, expected: int
) -> None:
    assert load(tiny_llama, max_model_len=setting).max_model_len == expected


def test_pickled_weights_are_not_read(tiny_llama: Path) -> None:
    (tiny_llama / "model.safetensors").rename(tiny_llama / "pytorch_model.bin")
    assert "safetensors" in refusal(tiny_llama)


def test_damaged_weights_are_refused(tiny_llama: Path) -> None:
    weights = tiny_llama / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])
    assert "cannot be loaded" in refusal(tiny_llama)


def test_code_that_comes_with_a_model_is_not_run(tiny_llama: Path) -> None:
    config = json.loads((tiny_llama / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}
    (tiny_llama / "config.json").write_text(json.dumps(config))
    (tiny_llama / "own.py").write_text("raise SystemExit('this code was run')\n")
    assert "trust_remote_code" in refusal(tiny_llama)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "none")
    assert "no such file" in refusal(tmp_path / "none.gguf")


def test_a_file_of_another_kind_is_refused_with_what_a_model_may_be(tmp_path: Path) -> None:
    (tmp_path / "jobs.json").write_text("{}")
    said = refusal(tmp_path / "jobs.json")
    assert "no such" not in said
    assert "GGUF file" in said


def test_a_name_that_is_almost_a_built_in_one_gets_it_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "hf_hub_url", lambda *_: "http://127.0.0.1:1/config.json")
    with pytest.raises(EngineError, match=r"did you mean smollm2\?"):
        load_model(EngineConfig(model="smolm2", cache_folder=str(tmp_path)), print)


def test_a_file_that_is_no_gguf_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    assert "GGUF" in refusal(tmp_path / "bad.gguf", cache_folder=str(tmp_path / "cache"))
    assert not list((tmp_path / "cache" / "converted").iterdir())


@pytest.mark.parametrize("max_hashed_bytes", [1000, 100])
def test_a_converted_model_is_found_by_what_is_in_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_hashed_bytes: int
) -> None:
    monkeypatch.setattr(gguf, "MAX_HASHED_BYTES", max_hashed_bytes)
    contents = {"one": bytes(200), "same": bytes(200), "longer": bytes(201), "other": bytes(199) + b"x"}
    folders: dict[str, Path] = {}
    for number, (name, content) in enumerate(contents.items()):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "model.gguf"
        file.write_bytes(content)
        os.utime(file, (number, number))
        monkeypatch.setattr(gguf, "_convert", lambda path, draft: None)
        folders[name] = gguf.converted_folder(file, tmp_path / "cache", print)
    assert folders["one"] == folders["same"]
    assert len(set(folders.values())) == 3


def test_a_model_of_the_hub_is_announced_and_a_hub_that_is_not_there_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "hf_hub_url", lambda *_: "http://127.0.0.1:1/config.json")
    stages: list[str] = []
    with pytest.raises(EngineError, match="hub cannot be reached"):  # it may be soon
        load_model(EngineConfig(model="acme/tiny", cache_folder=str(tmp_path)), stages.append)
    assert stages == ["downloading acme/tiny from the Hugging Face hub"]


def test_processes_that_convert_at_once_leave_one_folder(tmp_path: Path) -> None:
    drafts = [tmp_path / name for name in ("one", "two", "three")]
    for draft in drafts:
        draft.mkdir()
        (draft / "model").write_text(draft.name)
    threads = [threading.Thread(target=publish_folder, args=(draft, tmp_path / "folder")) for draft in drafts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "folder" / "model").read_text() in {"one", "two", "three"}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (Llama4TextConfig(**SIZES, num_local_experts=2, intermediate_size_mlp=48), "chunked_attention"),
        (MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2), "linear_attention"),
        (BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4), "0 of its 2 layers"),
        (StableLmConfig(**SIZES), "does not pass on"),
    ],
    ids=["chunked attention", "state space", "own attention", "drops keywords"],
)
def test_a_model_whose_attention_is_not_served_is_refused_by_name(config: PretrainedConfig, reason: str) -> None:
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model.set_attn_implementation(ATTENTION_NAME)
    with pytest.raises(SettingError, match=reason):
        prepare(model, None, EngineConfig(model="odd"), print)


def test_positions_that_depend_on_the_batch_are_kept_to_the_original_length() -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4, "original_max_position_embeddings": 128}
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SIZES, max_position_embeddings=256, rope_parameters=rope))
    model.set_attn_implementation(ATTENTION_NAME)
    assert prepare(model, None, EngineConfig(model="long"), print).max_model_len == 128
