"""What `make bench` measures: each claim as a study of the suite, sized for a machine without a GPU.

The sizes of the published benchmarks, with `FULL=1`, take hours on such a machine; their schedules alone are also
simulated at full size (`loadtest.claims.schedules`, `loadtest.claims.policies`).
"""

from __future__ import annotations

from pathlib import Path

from loadtest.claims.field_benchmark import CAPS
from loadtest.study import Study

SCENARIOS = Path(__file__).with_name("scenarios")
SLOTS = 8
ROWS_MEMORY = "142MiB"
"""KV pages of the default model for 8 rows of 32 prompt and 512 output tokens, 34 pages of 16 tokens each, and what the
watermarks keep back: 23,040 bytes a token."""
WHOLE_PROMPT = "engine+max_prefill_chunk=4200+max_num_batched_tokens=4300"
"""Never in chunks."""


def same_batch(cap: int) -> Study:
    """Continuous over static batching, with the same slots and more memory than either needs."""
    small = ("--scenario", str(SCENARIOS / f"answers-{cap}.yaml"))
    return Study(
        f"same-batch-{cap}",
        minutes=0.7 if cap < 512 else 2.5,
        arguments=("--max-num-seqs", str(SLOTS), *small),
        full_arguments=("--max-num-seqs", str(SLOTS), "--scenario", f"exponential-{cap}"),
        peers=("static",),
    )


SAME_MEMORY = Study(
    "same-memory",
    minutes=3.0,
    arguments=("--kv-memory", ROWS_MEMORY, "--scenario", str(SCENARIOS / "answers-512.yaml"), "--num-requests", "64"),
    full_arguments=("--kv-memory", ROWS_MEMORY, "--scenario", "exponential-512"),
    peers=("static",),
)
LONG_PROMPT = Study("long-prompt", minutes=2.5, arguments=("--scenario", "long-prompt"), peers=(WHOLE_PROMPT,))
POLICIES = Study(
    "policies",
    minutes=4.0,
    arguments=("--target", "nats", "--scenario", "mixed-lengths", "--max-num-seqs", "16"),
    peers=("nats+policy=sjf", "nats+policy=weighted-fair"),
)
PATH = Study("path", 2.5, ("--target", "nats", "--runs", "5"), ("engine",))
# More of each, as other numbers of slots and eight-bit weights, is in `make bench-engine`.
PEERS = (
    Study("vllm-burst", 3.0, (), ("vllm",)),
    Study("llamacpp-burst", 3.0, (), ("llamacpp:16",)),
    Study("transformers-burst", 4.5, (), ("transformers",)),
)
CLAIM_STUDIES = (
    Study("schedules", 1.5, module="loadtest.claims.schedules"),
    Study("policy-schedules", 0.5, module="loadtest.claims.policies"),
    *map(same_batch, CAPS),
    SAME_MEMORY,
    LONG_PROMPT,
    POLICIES,
    PATH,
    *PEERS,
)
