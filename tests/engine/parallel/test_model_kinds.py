"""Every kind of model that transformers can divide gives the same logits on two ranks as whole; float64 decides nothing
by rounding. Two processes serve all of them, since what takes long is to start one."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.engine.calibration import calibrate
from headway.engine.load import load_model
from tests.engine.model_kinds import KINDS, make_model
from tests.engine.parallel.ranks import PAGE_SIZE, SIZE, make_config, run_steps, weight_bytes
from tests.tiny_llama import save_tokenizer

WITHOUT_PLAN = "gpt2"
IN_FLOAT32 = "llama.float32"
TIMEOUT_SECONDS = 300
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Divided:
    """What two ranks made of all kinds."""

    folder: Path
    told: list[dict[str, Any]]
    """By rank."""


def slug(kind: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in kind)


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory) -> Divided:
    folder = tmp_path_factory.mktemp("kinds")
    for kind in KINDS:
        make_model(kind, torch.float64).save_pretrained(folder / slug(kind))
        save_tokenizer(folder / slug(kind))
    shutil.copytree(folder / "llama", folder / IN_FLOAT32)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        places = [str(listener.getsockname()[1]), str(listener.fileno()), str(folder)]
        command = [sys.executable, "-m", "tests.engine.parallel.ranks"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ranks = [
            subprocess.Popen([*command, str(rank), *places], pass_fds=[listener.fileno()], env=environment, cwd=ROOT)
            for rank in range(SIZE)
        ]
        try:
            assert [rank.wait(TIMEOUT_SECONDS) for rank in ranks] == [0, 0]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    return Divided(folder, [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(SIZE)])


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {WITHOUT_PLAN}))
def test_two_ranks_compute_what_one_does(divided: Divided, kind: str) -> None:
    whole = load_model(make_config(divided.folder / slug(kind), 1), print)
    np.testing.assert_allclose(np.load(divided.folder / f"{slug(kind)}.npy"), run_steps(whole), atol=1e-9)


def test_it_does_with_the_settings_that_make_a_cpu_fast(divided: Divided) -> None:
    whole = load_model(make_config(divided.folder / IN_FLOAT32, 1), print)
    np.testing.assert_allclose(np.load(divided.folder / f"{IN_FLOAT32}.npy"), run_steps(whole), atol=1e-3)


def test_each_rank_has_its_share_of_weights_and_heads(divided: Divided) -> None:
    whole = load_model(make_config(divided.folder / "llama", 1), print)
    for told in divided.told:
        assert told["llama"]["heads"] == [layer.num_kv_heads // SIZE for layer in whole.layers]
        assert told["llama"]["bytes"] < 0.6 * weight_bytes(whole)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3"])
def test_a_rank_scales_its_heads_as_one_process_would(divided: Divided, kind: str) -> None:
    whole = load_model(make_config(divided.folder / slug(kind), 1), print)
    halves = [told[slug(kind)]["scales"] for told in divided.told]
    together = [[*one, *other] for one, other in zip(*halves, strict=True)]
    assert together == [scales.key.tolist() for scales in calibrate(whole, PAGE_SIZE)]


def test_a_model_that_cannot_be_divided_is_refused_on_every_rank(divided: Divided) -> None:
    for told in divided.told:
        assert "tensor_parallel_size" in told[WITHOUT_PLAN]
        assert "no plan" in told[WITHOUT_PLAN]


def test_ranks_agree_on_the_smallest_number(divided: Divided) -> None:
    assert [told["smallest"] for told in divided.told] == [7, 7]
