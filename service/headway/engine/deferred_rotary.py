"""Leaves rotary positions to the attention op, which turns keys on their way into the pages.

    decoder layer ─▶ attention(position_embeddings=(cos, sin), paged=batch)
                        │ hook: position_embeddings=(None, None), paged=Turned(batch, cos, sin)
                        ▼
           q/k/v ─ apply_rotary_pos_emb(q, k, None, None): as they are ─ attention interface ─▶ op(…, cos, sin)

The model's code runs as it is: it is given other arguments, and its rotary function (`headway.engine.fusion` wraps it)
hands back what comes without an angle. Nothing is kept between calls, so torch.compile traces it like the rest. Whether
a model allows it is found out: its attention is run both ways on numbers of our own, and unless the op's rotation of
what arrives now is what arrived before (no norm or anything else behind the rotation, the same pairs of columns), it
keeps its own.

What it saves on a GPU, for Llama 3 8B (32 query and 8 key/value heads of 128, bfloat16), against a rotation that
torch.compile has fused as far as it does, with a kernel for the queries and one for the keys:

    KiB per token and layer        in the model    in the op
    queries, read and written           8 + 8         8 + 8
    keys, read and written turned       2 + 2         2 + 2
    keys, into pages                    2 + 2
    values, into pages                  2 + 2         2 + 2
    all                                    28            24

A layer moves 28, 1,792 and 7,168 KiB at 1, 64 and 256 tokens instead of 24, 1,536 and 6,144: a seventh of it, but even
at 256 tokens only 32 MiB over all 32 layers, beside 16 GB of weights. What counts are launches, one per layer instead
of three: 64 fewer in each step, at some one or two microseconds within a CUDA graph, where reading the weights takes
3.4 ms. (Estimated: no GPU has timed it yet.)
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headway.engine.attention import LayerCall, Paged
from headway.engine.fusion import SAME_LAYER, agrees, fuse_rotary, trial_numbers
from headway.engine.paged_reference import rotate

ANGLES = "position_embeddings"
"""The keyword by which attention modules of transformers are given cos and sin [1, T, R]."""
NUM_TOKENS = 8
"""Of the trial: the last ones are turned far enough for any difference to show."""


@dataclass(frozen=True, slots=True)
class Turned:
    """``paged`` for a layer whose queries and keys are still to be turned."""

    paged: Paged
    cos: Tensor
    sin: Tensor

    def attend(self, call: LayerCall) -> Tensor:
        return self.paged.attend(
            LayerCall(
                call.layer,
                call.query,
                call.key,
                call.value,
                call.scale,
                call.sliding_window,
                call.softcap,
                call.sinks,
                self.cos,
                self.sin,
            )
        )


@torch.no_grad()
def defer_rotary(model: PreTrainedModel) -> int:
    """Returns how many attention layers leave their rotation to the op from now on."""
    done = [module for module in model.modules() if _defer in module._forward_pre_hooks.values()]
    if done:
        return len(done)
    trials = [trial for trial in _observe(model) if _allows(trial)]
    for trial in trials:
        trial.module.register_forward_pre_hook(_defer, with_kwargs=True)
    return len(trials)


def _defer(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The hook: what the attention module is given instead."""
    paged = keywords.get("paged")
    if paged is None:  # somebody else runs the model
        return arguments, keywords
    cos, sin = keywords[ANGLES]
    return arguments, {**keywords, ANGLES: (None, None), "paged": Turned(paged, cos[0], sin[0])}


@dataclass(frozen=True, slots=True)
class _Trial:
    """An attention module, and how the model calls it."""

    module: nn.Module
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    @property
    def angles(self) -> tuple[Tensor, Tensor]:
        cos, sin = self.keywords[ANGLES]
        return cos, sin

    def run(self, paged: _Recorder) -> LayerCall:
        """On hidden states of our own. What reaches the op."""
        arguments, keywords = self.arguments, {**self.keywords, "paged": paged}
        if arguments:
            arguments = (_like(arguments[0]), *arguments[1:])
        else:
            keywords["hidden_states"] = _like(keywords["hidden_states"])
        self.module(*arguments, **keywords)
        (call,) = paged.calls
        return call


class _Recorder:
    """Answers with zeros and keeps what it was asked."""

    def __init__(self) -> None:
        self.calls: list[LayerCall] = []

    def attend(self, call: LayerCall) -> Tensor:
        self.calls.append(call)
        return call.query.new_zeros((*call.query.shape[:2], call.value.shape[2]))


def _observe(model: PreTrainedModel) -> list[_Trial]:
    """The innermost modules that are given angles."""
    trials: list[_Trial] = []

    def note(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        angles = keywords.get(ANGLES)
        if isinstance(angles, tuple) and len(angles) == 2 and all(isinstance(part, Tensor) for part in angles):
            trials.append(_Trial(module, arguments, keywords))

    hooks = [module.register_forward_pre_hook(note, with_kwargs=True) for module in model.modules()]
    try:
        positions = torch.arange(NUM_TOKENS, device=model.device)[None]
        keywords: dict[str, Any] = {"use_cache": False, "paged": _Recorder()}
        model(input_ids=torch.zeros_like(positions), position_ids=positions, **keywords)
    finally:
        for hook in hooks:
            hook.remove()
    given = {trial.module for trial in trials}
    return [trial for trial in trials if not any(inner in given for inner in list(trial.module.modules())[1:])]


def _allows(trial: _Trial) -> bool:
    """Whether the op's rotation of what the attention module gives without angles is what it gives with them."""
    source = sys.modules[type(trial.module).__module__]
    if not fuse_rotary(source, trial.angles[0].dtype):
        return False
    before = trial.run(_Recorder())
    hook = trial.module.register_forward_pre_hook(_defer, with_kwargs=True)
    try:
        after = trial.run(_Recorder())
    except (AttributeError, RuntimeError, TypeError, ValueError):  # its code wants more of the angles
        return False
    finally:
        hook.remove()
    return after.cos is not None and after.sin is not None and _same(before, after, after.cos, after.sin)


def _same(before: LayerCall, after: LayerCall, cos: Tensor, sin: Tensor) -> bool:
    return (
        agrees(rotate(after.query, cos, sin), before.query, SAME_LAYER)
        and agrees(rotate(after.key, cos, sin), before.key, SAME_LAYER)
        and torch.equal(after.value, before.value)
    )


def _like(hidden_states: Tensor) -> Tensor:
    return trial_numbers(*hidden_states.shape).to(hidden_states)
