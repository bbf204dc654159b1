from __future__ import annotations

from loadtest.comparison import compare, comparison_text, median_run


def run(tokens_per_s: float, tpot: float | None = 0.1) -> dict[str, object]:
    summary = None if tpot is None else {"mean": tpot}
    return {
        "output_tokens_per_s": tokens_per_s,
        "ttft_seconds": {"mean": 1.0},
        "tpot_seconds": summary,
        "e2e_seconds": {"mean": 2.0},
    }


def test_ratios_pair_the_runs_that_took_turns():
    ratios = compare([run(100), run(300), run(90)], [run(50), run(100), run(90)])
    assert ratios["output_tokens_per_s"] == {"median": 2.0, "min": 1.0, "max": 3.0}


def test_latencies_below_one_are_better_than_the_peers():
    assert compare([run(1, tpot=0.05)], [run(1, tpot=0.1)])["tpot_seconds"]["median"] == 0.5


def test_what_one_side_has_not_measured_is_left_out():
    assert "tpot_seconds" not in compare([run(1, tpot=None)], [run(1)])


def test_the_run_shown_is_the_one_in_the_middle():
    runs = [run(5), run(1), run(3)]
    assert median_run(runs) is runs[2]


def test_a_comparison_is_one_line():
    line = comparison_text("vllm", compare([run(100)], [run(50)]))
    assert line.startswith("headway / vllm: output_tokens_per_s 2.00 (2.00 to 2.00)")
