from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from headway.core.scheduler_config import SchedulerConfig
from headway.engine.build import build_engine
from headway.engine.cache_folder import cache_folder
from headway.engine.config import Device, DType, EngineConfig
from headway.engine.load import LoadedModel, load_model
from headway.engine.native.kernels import use_native_kernels
from loadtest import quality, quantization
from loadtest.quality import Passage, Quality, greedy_answers, measure_quality, predictions, windows

PASSAGE = Passage(tuple(range(3, 40)))


@pytest.fixture
def model(tiny_model: Path) -> LoadedModel:
    return load_model(EngineConfig(model=str(tiny_model), device=Device.CPU, dtype=DType.FLOAT64), print)


def test_a_model_is_as_good_as_itself(model: LoadedModel) -> None:
    quality = measure_quality(model, model, [PASSAGE, Passage((5, 6, 7, 8), num_given=3)])
    assert quality.num_predictions == 36 + 1
    assert quality.agreement == 1.0
    assert quality.divergence == 0.0
    assert quality.perplexity == quality.plain_perplexity


def test_sums_are_those_of_the_definitions() -> None:
    quality = Quality()
    plain, ours = torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]]), torch.tensor([[0.25, 0.5, 0.25], [0.1, 0.1, 0.8]])
    quality.add(plain.log(), ours.log() + 7, torch.tensor([0, 2]))
    assert quality.agreement == 0.5
    assert quality.plain_perplexity == pytest.approx((0.5 * 0.6) ** -0.5)
    assert quality.perplexity == pytest.approx((0.25 * 0.8) ** -0.5)
    expected = 0.25 * math.log(2) + 0.4 * math.log(2) + 0.6 * math.log(0.75)
    assert quality.divergence == pytest.approx(expected / 2, rel=1e-5)


def test_each_position_predicts_the_next_token(model: LoadedModel) -> None:
    """A longer passage changes nothing for earlier positions, and what is given is not counted."""
    whole = predictions(model, PASSAGE)
    assert whole.shape == (36, model.vocab_size)
    torch.testing.assert_close(predictions(model, Passage(PASSAGE.token_ids[:20])), whole[:19])
    torch.testing.assert_close(predictions(model, Passage(PASSAGE.token_ids, num_given=30)), whole[29:])


def test_greedy_answers_are_the_model_s_own_choice(tiny_model: Path, model: LoadedModel) -> None:
    config = EngineConfig(model=str(tiny_model), device=Device.CPU, dtype=DType.FLOAT64, kv_memory="1MiB")
    answers = greedy_answers(build_engine(config, SchedulerConfig(), print), [(3, 4, 5), (9,)], 6)
    assert [(len(answer.token_ids), answer.num_given) for answer in answers] == [(9, 3), (7, 1)]
    for answer in answers:
        assert predictions(model, answer).argmax(-1).tolist() == list(answer.token_ids[answer.num_given :])


def test_a_text_is_cut_into_pieces() -> None:
    assert windows(range(10), 4) == [Passage((0, 1, 2, 3)), Passage((4, 5, 6, 7))]
    assert windows(range(3), 4) == [Passage((0, 1, 2))]


def test_the_command_reports_quality_size_and_times(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not use_native_kernels(cache_folder(EngineConfig()), print):
        pytest.skip("there is no compiler")
    for module in (quality, quantization):
        monkeypatch.setattr(module, "load_workload", lambda: [quantization.Request((3, 4, 5), 4, 0.0)])
    monkeypatch.setattr(quantization, "child_environment", lambda config: {})
    text, out = tmp_path / "text", tmp_path / "out.json"
    text.write_text(" ".join(f"w{number % 64}" for number in range(150)))
    arguments = ["--model", str(tiny_model), "--text", str(text), "--sizes", "1", "2", "--json", str(out)]
    assert quantization.main(arguments) == 0
    report = json.loads(out.read_text())
    assert report["weight_bytes"]["int8"] < report["weight_bytes"]["off"]
    assert set(report["quality"]) == {"text", "prompts", "answers"}
    assert all(0.5 < quality["agreement"] <= 1 for quality in report["quality"].values())
    assert set(report["decode_step_seconds"]) == {"1", "2"}
    assert "agreement" in capsys.readouterr().out


def test_pages_of_eight_bits_are_a_little_worse_than_the_model_s_own(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quality, "load_workload", lambda: [quantization.Request((3, 4, 5), 4, 0.0)])
    text, out = tmp_path / "text", tmp_path / "out.json"
    text.write_text(" ".join(f"w{number * 7 % 64}" for number in range(150)))
    options = ["--model", str(tiny_model), "--dtype", "float32", "--text", str(text), "--json", str(out)]
    assert quality.main(options) == 0
    report = json.loads(out.read_text())
    assert report["dtype"] == "float32"
    assert set(report["quality"]) == {"text", "prompts", "answers"}
    assert report["quality"]["text"]["num_predictions"] > 40
    for of_kind in report["quality"].values():
        assert 0 < of_kind["divergence"] < 0.05
        assert of_kind["perplexity"]["auto"] != of_kind["perplexity"]["fp8"]
    assert "divergence" in capsys.readouterr().out


def test_float64_has_no_pages_of_eight_bits(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert quality.main(["--model", str(tiny_model), "--dtype", "float64"]) == 2
    assert "kv_cache_dtype" in capsys.readouterr().err
