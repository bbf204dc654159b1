"""The model through torch.compile: everything between the attention calls, in as few kernels as they can be fused to.

    ┌ norm ─ q/k/v ─ rotary ┐ attention ┌ o ─ + ─ norm ─ gate/up ─ SiLU·mul ─ down ─ + ─ norm ─ q/k/v ─ …
    └────── compiled ───────┘  our op   └───────────────────────────── compiled ──────────────────────────

Attention is one opaque operator to the compiler, so the model is a single graph. It is compiled once, at the start, for
every number of tokens, sequences, pages and sampled rows:

    tokens                      a symbol. torch.compile takes a size of 0 or 1 for a constant, so a step of one token
                                runs op by op (a captured one is padded to two rows)
    sampled rows                a symbol; fewer than two are padded with the first row
    sequences, page table       unbacked: nothing but the operator looks at them, so nothing need be known of them

After the start nothing is compiled any more, so that no step waits for a compiler: what the compiled code does not take
runs op by op. Inductor's own CUDA graphs are off; ours record what comes out of here (`headway.engine.captured`).
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch
import torch._inductor.config as inductor_config
from torch import Tensor
from torch._dynamo import mark_dynamic
from torch._dynamo.decorators import mark_unbacked
from torch.nn.functional import pad

from headway.engine.cache_folder import COMPILER_FOLDER
from headway.engine.forward import DeviceInputs, EagerForward, Forward, run_model
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel

logger = logging.getLogger(__name__)

EXAMPLE_SEQUENCES, EXAMPLE_TOKENS = 4, 128
"""Of the step that the model is compiled with: the compiler tunes its kernels for about as many."""
MIN_SIZE = 2


class CompiledForward:
    """Runs what `compile_forward` has compiled, and the rest op by op."""

    def __init__(self, loaded: LoadedModel, cache: KvCache, backend: str) -> None:
        self._model = loaded.model
        self._cache = cache
        self._eager = EagerForward(loaded, cache)
        # Isolated: another engine of this process has compiled the same function, for another model.
        options = {"fullgraph": True, "isolate_recompiles": True}
        self._run = torch.compile(run_model, backend=backend, **options)  # type: ignore[call-overload]  # a stub lacks it

    def compile(self) -> None:
        """Raises whatever the compiler does, and if what it has compiled serves no other sizes: every step would run op
        by op then, and nobody would know."""
        example = _mark(example_inputs(self._cache, self._model.device, EXAMPLE_SEQUENCES, EXAMPLE_TOKENS))
        other = example_inputs(self._cache, self._model.device, EXAMPLE_SEQUENCES - 1, 1)
        with torch.inference_mode():
            self._run(self._model, self._cache, example)
            with torch.compiler.set_stance("fail_on_recompile"):
                self._run(self._model, self._cache, other)

    @torch.inference_mode()
    def __call__(self, inputs: DeviceInputs) -> Tensor:
        if len(inputs.token_ids) < MIN_SIZE:
            return self._eager(inputs)
        num_sampled = len(inputs.sampled_rows)
        with torch.compiler.set_stance("eager_on_recompile"):
            logits: Tensor = self._run(self._model, self._cache, as_compiled(inputs))
        return logits[:num_sampled]


def compile_forward(loaded: LoadedModel, cache: KvCache, folder: Path, backend: str = "inductor") -> Forward:
    """Compiled with its results in ``folder``, where the next start finds them. A model that cannot be compiled runs op
    by op, with one warning."""
    os.environ.setdefault(COMPILER_FOLDER, str(folder))
    # In this process. Helpers would have to import torch, 300 MB each, and stay: a model has a dozen different kernels.
    inductor_config.compile_threads = 1
    forward = CompiledForward(loaded, cache, backend)
    try:
        forward.compile()
    except Exception as exc:
        reason = next(iter(str(exc).strip().splitlines()), "no reason given")
        found = "the model runs op by op, since it cannot be compiled: %s: %s"
        logger.warning(found, type(exc).__name__, reason, exc_info=True)
        return EagerForward(loaded, cache)
    return forward


def example_inputs(cache: KvCache, device: torch.device, num_sequences: int, num_tokens: int) -> DeviceInputs:
    """A step of so many prompts, of so many tokens each, in the scratch page, which may be written at any time."""
    length = min(num_tokens, cache.max_model_len)
    positions = torch.arange(length).repeat(num_sequences)
    starts = torch.arange(num_sequences + 1) * length
    num_columns = -(-length // cache.page_size)
    inputs = DeviceInputs(
        token_ids=torch.zeros_like(positions),
        positions=positions,
        slot_mapping=cache.scratch_page * cache.page_size + positions % cache.page_size,
        page_table=torch.full((num_sequences, num_columns), cache.scratch_page, dtype=torch.int32),
        query_start=starts.int(),
        context_lens=torch.full((num_sequences,), length, dtype=torch.int32),
        sampled_rows=starts[1:] - 1,
    )
    return inputs.to(device)


@torch.inference_mode(False)
def as_compiled(inputs: DeviceInputs) -> DeviceInputs:
    """With two sampled rows at least, and no tensors that were made in inference mode: the compiler takes those for
    another kind."""
    tensors = {name: getattr(inputs, name) for name in DeviceInputs.__slots__}
    tensors = {name: tensor.clone() if tensor.is_inference() else tensor for name, tensor in tensors.items()}
    missing = MIN_SIZE - len(inputs.sampled_rows)
    if missing > 0:
        tensors["sampled_rows"] = pad(tensors["sampled_rows"], (0, missing))
    return DeviceInputs(**tensors)


def _mark(inputs: DeviceInputs) -> DeviceInputs:
    """The sizes that differ from step to step."""
    for tensor in (inputs.token_ids, inputs.positions, inputs.slot_mapping, inputs.sampled_rows):
        mark_dynamic(tensor, 0)
    for tensor in (inputs.query_start, inputs.context_lens):
        mark_unbacked(tensor, 0)
    mark_unbacked(inputs.page_table, [0, 1])
    return inputs
