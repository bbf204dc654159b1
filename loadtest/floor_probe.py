"""Measures a `Floor`, in a process of its own: `python -m loadtest.floor_probe --model smollm2` prints it as JSON.

Rates are those of torch with all its threads, the best of several tries: the machine at rest, not its average. For
weights in int8, torch has no product that comes near what the machine can do, so the rate is that of our own kernel.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

from headway.commands.statuses import status_of
from headway.core.errors import HeadwayError
from headway.engine.cache_folder import cache_folder
from headway.engine.config import AutoOrOff, DType, EngineConfig, Quantization
from headway.engine.huge_pages import move_to_huge_pages
from headway.engine.int8_linear import Int8Linear
from headway.engine.load import load_model, model_source
from headway.engine.native.kernels import use_native_kernels
from loadtest.floor import Floor, Measured

NUM_READ_BYTES = 512 * 2**20
"""Many times what the caches hold."""
MATRIX_SHAPE = (512, 2048, 2048)
"""Rows, columns, depth of the product that is timed."""
NUM_TRIES = 7


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.floor_probe", description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", type=DType, default=DType.AUTO)
    parser.add_argument("--quantization", type=Quantization, default=Quantization.OFF)
    parser.add_argument("--cache-folder")
    arguments = parser.parse_args()
    # Unpacked, so that the layers can be counted.
    config = EngineConfig(
        model=arguments.model,
        dtype=arguments.dtype,
        cache_folder=arguments.cache_folder,
        pack_weights=AutoOrOff.OFF,
    )
    try:
        print(_measure(config, arguments.quantization).to_line())
    except HeadwayError as error:
        print(error, file=sys.stderr)
        return status_of(error)
    return 0


@torch.inference_mode()
def _measure(config: EngineConfig, quantization: Quantization) -> Measured:
    """``config`` must leave the model as it is."""
    loaded = load_model(config, _ignore)
    num_weights = sum(module.weight.numel() for module in loaded.model.modules() if isinstance(module, nn.Linear))
    kept = sum(layer.num_kv_heads * (layer.key_dim + layer.value_dim) for layer in loaded.layers)
    itemsize, weight_size, rate = loaded.dtype.itemsize, loaded.dtype.itemsize, matrix_rate
    if quantization is Quantization.INT8 and use_native_kernels(cache_folder(config), _ignore):
        weight_size, rate = 1, int8_rate
    floor = Floor(read_rate(), rate(loaded.dtype), num_weights, num_weights * weight_size, kept * itemsize)
    return Measured(floor, model_source(config, _ignore), loaded.vocab_size)


def _ignore(stage: str) -> None:
    pass


def read_rate() -> float:
    """Bytes per second, of memory like that of the weights."""
    values = torch.ones(NUM_READ_BYTES // 8, dtype=torch.float64)
    move_to_huge_pages([values])
    return NUM_READ_BYTES / _best(lambda: values.sum())


def matrix_rate(dtype: torch.dtype) -> float:
    """Operations per second: a multiplication and an addition are two."""
    rows, columns, depth = MATRIX_SHAPE
    left, right = torch.randn(rows, depth).to(dtype), torch.randn(columns, depth).to(dtype)
    return 2 * rows * columns * depth / _best(lambda: torch.nn.functional.linear(left, right))


def int8_rate(dtype: torch.dtype) -> float:
    """The same for weights in int8 and inputs of ``dtype``."""
    rows, columns, depth = MATRIX_SHAPE
    left, layer = torch.randn(rows, depth).to(dtype), Int8Linear(torch.randn(columns, depth).to(dtype), None)
    return 2 * rows * columns * depth / _best(lambda: layer(left))


def _best(operation: Callable[[], object]) -> float:
    """Seconds of the quickest of some tries."""
    seconds = []
    for _ in range(NUM_TRIES):
        started = time.perf_counter()
        operation()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


if __name__ == "__main__":
    sys.exit(main())
