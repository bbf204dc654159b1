"""A rank that loads one small model after the other and runs steps on each: ``python -m tests.engine.parallel.ranks``.

What came out, or why a model was refused, is written into the folder of the models.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

from headway.core.batch import ScheduledChunk, StepPlan
from headway.core.errors import SettingError
from headway.core.job import JobKey, SamplingParams
from headway.core.sequence import Sequence
from headway.engine.calibration import calibrate
from headway.engine.config import Device, DType, EngineConfig
from headway.engine.forward import DeviceInputs, EagerForward
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel, load_model
from headway.engine.parallel.group import join, smallest_of_ranks
from headway.engine.step_inputs import build_step_inputs

SIZE = 2
PAGE_SIZE = 4
LONG, SHORT = [5, 6, 7, 8, 9, 10, 11], [12, 13, 14]


def make_config(folder: Path, size: int) -> EngineConfig:
    """float64, where rounding decides nothing, unless the folder's name ends in another type."""
    dtype = DType(folder.suffix[1:] or DType.FLOAT64)
    return EngineConfig(str(folder), device=Device.CPU, dtype=dtype, num_threads=1, tensor_parallel_size=size)


def make_chunk(number: int, token_ids: list[int], page_table: list[int], start: int, end: int) -> ScheduledChunk:
    sampling = SamplingParams(temperature=0.0)
    sequence = Sequence(number, JobKey("acme", "a"), sampling, token_ids, len(token_ids), 0.0, page_table=page_table)
    return ScheduledChunk(sequence, start, end - start, is_sampled=end == len(token_ids))


def run_steps(loaded: LoadedModel) -> np.ndarray:
    """Logits of a step with a whole prompt and part of one, then of one with a decode and the rest; none in between."""
    forward = EagerForward(loaded, KvCache(loaded, num_pages=4, page_size=PAGE_SIZE))
    long, short = [3, 1], [2]
    steps = [
        (make_chunk(1, LONG, long, 0, 2),),
        (make_chunk(1, LONG, long, 2, 5), make_chunk(2, SHORT, short, 0, 3)),
        (make_chunk(2, [*SHORT, 15], short, 3, 4), make_chunk(1, LONG, long, 5, 7)),
    ]
    inputs = [build_step_inputs(StepPlan(1, chunks), PAGE_SIZE) for chunks in steps]
    return torch.cat([forward(DeviceInputs.of(step, loaded.device)) for step in inputs]).numpy()


def weight_bytes(loaded: LoadedModel) -> int:
    """In this process."""
    local = [getattr(weight, "_local_tensor", weight) for weight in loaded.model.parameters()]
    return sum(weight.numel() * weight.element_size() for weight in local)


def main(rank: int, port: int, listener: int, folder: Path) -> None:
    models = sorted(path for path in folder.iterdir() if path.is_dir())
    join(make_config(folder, SIZE), rank, port, listener if rank == 0 else None)
    told: dict[str, object] = {"smallest": smallest_of_ranks(7 + rank)}
    for model in models:
        try:
            loaded = load_model(make_config(model, SIZE), lambda stage: None)
        except SettingError as refused:
            told[model.name] = str(refused)
            continue
        logits = run_steps(loaded)
        if rank == 0:
            np.save(folder / f"{model.name}.npy", logits)
        told[model.name] = {
            "heads": [layer.num_kv_heads for layer in loaded.layers],
            "bytes": weight_bytes(loaded),
            "scales": [scales.key.tolist() for scales in calibrate(loaded, PAGE_SIZE)],
        }
    (folder / f"rank-{rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), Path(sys.argv[4]))
