"""Makes a loaded model faster on a CPU, where that is allowed and possible: packed linears, fused norms and gates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from transformers import PreTrainedModel

from headway.core.errors import SettingError
from headway.engine.config import AutoOrOff, EngineConfig, Quantization
from headway.engine.fusion import can_fuse, fuse
from headway.engine.huge_pages import move_to_huge_pages
from headway.engine.linear_choice import choose_int8, choose_linear
from headway.engine.linears import BuildLinear, rewrite_linears, weight_bytes
from headway.engine.measure import run_tokens
from headway.engine.native.kernels import use_native_kernels


def rewrite_for_cpu(model: PreTrainedModel, config: EngineConfig, cache: Path, progress: Callable[[str], None]) -> None:
    """``cache`` is where compiled kernels are kept. Raises ``SettingError`` if int8 is asked for and cannot be had."""
    _replace_linears(model, config, cache, progress)
    _fuse(model, config, cache, progress)


def _load_native(config: EngineConfig, cache: Path, progress: Callable[[str], None]) -> bool:
    return config.native_kernels is AutoOrOff.AUTO and use_native_kernels(cache, progress)


def _fuse(model: PreTrainedModel, config: EngineConfig, cache: Path, progress: Callable[[str], None]) -> None:
    if model.device.type != "cpu" or not _load_native(config, cache, progress):
        return
    if can_fuse(model.dtype, model.device):
        fusion = fuse(model, model.dtype, lambda: run_tokens(model, 2))
        progress(f"fused {fusion.num_norms} norms and {fusion.num_gates} gated MLPs")


def _replace_linears(
    model: PreTrainedModel, config: EngineConfig, cache: Path, progress: Callable[[str], None]
) -> None:
    arguments = (model.dtype, model.device, lambda: _load_native(config, cache, progress))
    if config.quantization is Quantization.INT8:
        obstacle = _pack_weights(model, choose_int8(*arguments), progress)
        if obstacle is not None:
            raise SettingError("quantization", config.quantization, f"not for this model ({obstacle}); set it to off")
    elif config.pack_weights is AutoOrOff.AUTO and (build := choose_linear(*arguments)):
        obstacle = _pack_weights(model, build, progress)
        if obstacle is not None:
            progress(f"weights stay unpacked: {obstacle}")


def _pack_weights(model: PreTrainedModel, build: BuildLinear, progress: Callable[[str], None]) -> str | None:
    """Why the model stays as it is, if it does."""
    rewritten = rewrite_linears(model, lambda: run_tokens(model, 2), build)
    if rewritten.num_linears == 0:
        return rewritten.obstacle or "it calls no linear layers"
    # Also because checkpoints are mapped, not read: all of a file counts as ours as long as one tensor lies in it.
    move_to_huge_pages([*model.parameters(), *model.buffers()])
    progress(
        f"packed the weights of {rewritten.num_linears} linear layers, {rewritten.num_merged} of them merged; "
        f"all weights take {weight_bytes(model) / 1e6:.0f} MB"
    )
    return None
