"""The claims' rows, from made-up runs."""

from __future__ import annotations

from loadtest.claims.studies import CLAIM_STUDIES, WHOLE_PROMPT
from loadtest.claims.table import claim_rows, is_claim


def run(tokens_per_s: float = 100.0, **fields: object) -> dict[str, object]:
    """Fields that are numbers of seconds become summaries whose p99 they are."""
    base = {"output_tokens_per_s": tokens_per_s, "slot_utilisation": 0.5, "num_output_tokens": 80, "num_steps": 10}
    return {**base, **fields}


def p99(seconds: float) -> dict[str, float]:
    return {"mean": seconds / 2, "p50": seconds / 2, "p90": seconds, "p99": seconds}


def report(runs: list[dict[str, object]], **peers: list[dict[str, object]]) -> dict[str, object]:
    return {"runs": runs, "peers": {name: {"runs": theirs} for name, theirs in peers.items()}}


def rows(study: str, of: dict[str, object]) -> dict[str, tuple[float, float | None, float | None]]:
    return {row.what: (row.median, row.least, row.greatest) for row in claim_rows(study, of)}


def test_each_round_is_compared_with_itself():
    ours = [run(200, e2e_seconds=p99(1.0)), run(300, e2e_seconds=p99(1.0)), run(100, e2e_seconds=p99(1.0))]
    theirs = [run(100, e2e_seconds=p99(2.0)), run(100, e2e_seconds=p99(4.0)), run(100, e2e_seconds=p99(2.0))]
    found = rows("same-batch-512", report(ours, static=theirs))
    throughput = next(name for name in found if name.startswith("output tokens/s"))
    assert found[throughput] == (2.0, 1.0, 3.0)
    assert "ideal slot ratio 2.54" in throughput
    assert found["p99 to the end, continuous ÷ static, 8 slots, answers up to 512"] == (0.5, 0.25, 0.5)
    assert found["busy slots, static, 8 slots, answers up to 512"] == (0.5, 0.5, 0.5)


def test_memory_is_compared_by_the_sequences_that_step_together():
    found = rows("same-memory", report([run(num_steps=5)], static=[run(num_steps=20)]))
    assert found["sequences in a step, paged ÷ reserved, same KV memory"] == (4.0, 4.0, 4.0)


def test_a_long_prompt_is_felt_in_the_longest_gap():
    rows_of = {"requests": [{"max_gap_seconds": gap} for gap in (0.1, 0.5, None)]}
    whole = run(100, inter_token_gap_seconds=p99(2.0), requests=[{"max_gap_seconds": 4.0}])
    ours = run(90, inter_token_gap_seconds=p99(0.5))
    found = rows(
        "long-prompt",
        {**report([ours, ours], **{WHOLE_PROMPT: [run(100, inter_token_gap_seconds=p99(2.0)), whole]}), **rows_of},
    )
    assert found["longest gap between tokens, the same, median runs"] == (0.125, 0.125, 0.125)
    assert found["p99 gap between tokens, 4k prompt in chunks ÷ whole"] == (0.25, 0.25, 0.25)
    assert found["output tokens/s, 4k prompt in chunks ÷ whole"] == (0.9, 0.9, 0.9)


def test_policies_are_told_by_the_length_of_jobs():
    def of(short: float, long: float) -> dict[str, object]:
        return run(tenants={"short": {"e2e_seconds": p99(short)}, "long": {"e2e_seconds": p99(long)}})

    found = rows("policies", report([of(10.0, 10.0)], **{"nats+policy=sjf": [of(2.0, 20.0)]}))
    assert found == {
        "mean to the end of short jobs, fifo ÷ sjf": (5.0, 5.0, 5.0),
        "mean to the end of long jobs, fifo ÷ sjf": (0.5, 0.5, 0.5),
    }


def test_what_is_no_claim_has_no_row():
    assert not is_claim("vllm-burst")
    assert rows("vllm-burst", report([run()], vllm=[run()])) == {}


def test_every_claim_that_is_a_bench_has_rows():
    assert [one.name for one in CLAIM_STUDIES if is_claim(one.name)] == [
        *(f"same-batch-{cap}" for cap in (32, 128, 512, 1536)),
        *("same-memory", "long-prompt", "policies"),
    ]
