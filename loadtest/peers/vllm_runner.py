"""vLLM, in process: its engine driven step by step, as Headway's is for the target ``engine``.

Compiled, with the limits that Headway has on its side by default for a batch, no prefix caching; two GiB for keys and
values are many more pages than the workload needs. It takes requests of up to `LEAST_MODEL_LEN` tokens, or of the
longest there is.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from functools import partial

from loadtest.peers.protocol import TaskRequest, begin, drive, serve

MAX_NUM_SEQS = 64
MAX_NUM_BATCHED_TOKENS = 2048
LEAST_MODEL_LEN = 1024


class VllmEngine:
    def __init__(self, model: str, max_model_len: int) -> None:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        self._engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=model,
                dtype="bfloat16",
                max_model_len=max_model_len,
                max_num_seqs=MAX_NUM_SEQS,
                max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
                enable_prefix_caching=False,
                disable_log_stats=True,
            )
        )

    def add(self, number: int, request: TaskRequest) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        num_tokens = request.num_output_tokens
        sampling = SamplingParams(
            temperature=0.0,
            max_tokens=num_tokens,
            min_tokens=num_tokens,
            ignore_eos=True,
            output_kind=RequestOutputKind.DELTA,
        )
        self._engine.add_request(str(number), {"prompt_token_ids": request.prompt_token_ids}, sampling)

    def step(self) -> Iterator[tuple[int, int, bool]]:
        for output in self._engine.step():
            yield int(output.request_id), len(output.outputs[0].token_ids), output.finished

    @property
    def is_busy(self) -> bool:
        return bool(self._engine.has_unfinished_requests())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--longest", type=int, required=True)
    arguments = parser.parse_args()
    answers = begin()
    engine = VllmEngine(arguments.model, max(LEAST_MODEL_LEN, arguments.longest))
    import vllm

    serve(partial(drive, engine), answers, {"version": vllm.__version__})


if __name__ == "__main__":
    # Set before vLLM is imported: it reads them then.
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    cores = sorted(os.sched_getaffinity(0))
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", ",".join(map(str, cores)))
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    main()
