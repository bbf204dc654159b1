"""The page as a whole: what is on it, what is not, and that it needs nothing else."""

from __future__ import annotations

import re

import pytest

from tests.loadtest.reports import peer, report, request, requests, run, summary, timeline

RATIOS = {"output_tokens_per_s": {"median": 2.0, "min": 1.5, "max": 2.5}}
STEPS = {"1": {"num_steps": 9, **summary(0.01)}, "16": {"num_steps": 9, **summary(0.02)}}
FLOOR = {"read_bytes_per_s": 2.6e10, "matrix_flops_per_s": 4.3e11, "decode_step_seconds": {"1": 0.005, "16": 0.01}}
TENANTS = {
    "acme": {"num_requests": 30, "num_output_tokens": 600, "weight": 2, "ttft_seconds": summary(0.2)},
    "zeta": {"num_requests": 30, "num_output_tokens": 300, "weight": 1, "ttft_seconds": summary(0.4)},
}


def detailed(tokens_per_s: float = 100.0, **fields: object):
    """A run that has everything."""
    details = {"requests": requests(60), "timeline": timeline(30), "tenants": TENANTS, "step_seconds": STEPS}
    more = {"slot_utilisation": 0.8, "inter_token_gap_seconds": summary(0.03), "queue_seconds": summary(0.1)}
    slo = {
        "slo": {"ttft_seconds": 1.0, "tpot_seconds": None, "e2e_seconds": 10.0},
        "share": 0.9,
        "requests_per_s": 1.25,
    }
    return run(tokens_per_s, **details, **more, goodput=slo, num_failed=0, num_lost=0, **fields)


def everything(**fields: object):
    ours = [detailed(100), run(90, slot_utilisation=0.7), run(110, slot_utilisation=0.9)]
    theirs = [run(50, requests=requests(60, seed=2)), run(40), run(60)]
    return report(*ours, floor=FLOOR, peers={"vllm": peer(*theirs, ratios=RATIOS)}, **fields)


ALL_PLOTS = [
    "Time to first token",
    "Time per output token",
    "End to end",
    "Wait in the queue",
    "Longest gap between a request's tokens",
    "Requests in the system",
    "Step time by batch size",
    "Slots used",
    "Batch composition, headway",
    "Running and waiting, headway",
    "Service of tenants, headway",
    "Service of tenants, vllm",
]


def test_every_figure_and_every_plot_of_a_full_report_is_there(render):
    page = render(everything(scenario="chat-mix", seed=7))
    assert list(page.plots) == ALL_PLOTS
    assert "Headway bench: chat-mix" in page.titles
    assert page.rows["headway"][:5] == ["8 of 8", "0", "0", "100 (90 to 110)", "80.0%"]
    assert "90.0%, 1.25 requests/s (ttft ≤ 1 s, e2e ≤ 10 s)" in page.rows["headway"]
    assert page.rows["vllm"][0] == "8 of 8"
    assert page.rows["vllm"][3] == "50 (40 to 60)"
    assert page.rows["time to first token, headway"] == ["200 ms", "180 ms", "400 ms", "800 ms"]
    assert page.rows["gap between tokens, headway"][0] == "30 ms"
    assert page.rows["output tokens/s ÷ vllm"] == ["2.00", "1.50 to 2.50"]
    assert page.rows["acme, headway"][:4] == ["2", "30", "600", "200 ms, 800 ms"]
    assert page.rows["short, vllm"][0] == "30"
    for fact in ("A CPU", "26.0 GB/s", "0.43 TFLOP/s", "2.13.0", "8.0 GiB", "made-up.json", "version 1"):
        assert fact in page.words


def test_every_system_is_in_the_plots_of_latencies(render):
    plots = render(everything()).plots
    assert all({"headway", "vllm", "requests"} <= set(plots[title]) for title in ALL_PLOTS[:5])
    assert {"headway", "vllm"} <= set(plots["Requests in the system"])
    assert "wait in the queue, ms" in plots["Wait in the queue"]


def test_a_plot_whose_data_are_absent_leaves_no_hole(render):
    page = render(report())
    assert page.plots == {}
    assert "Plots" not in page.titles
    assert "time to first token, headway" in page.rows
    assert not {"Tenants", "Parts of the mix", "Headway beside its peers", "Settings"} & set(page.titles)


@pytest.mark.parametrize(
    ("fields", "plots"),
    [
        ({"timeline": timeline(3)}, ["Batch composition", "Running and waiting"]),
        ({"timeline": {**timeline(3), "num_waiting": None}}, ["Batch composition", "Running and waiting"]),
        ({"timeline": {**timeline(3), "num_waiting": [None] * 3}}, ["Batch composition", "Running and waiting"]),
        ({"timeline": timeline(0)}, []),
        ({"slot_utilisation": 0.5}, ["Slots used"]),
        ({"step_seconds": STEPS}, ["Step time by batch size"]),
        ({"step_seconds": {"1": None}}, []),
        (
            {"requests": [request(ttft_seconds=None, tpot_seconds=None, queue_seconds=None, e2e_seconds=None)]},
            ["Longest gap between a request's tokens", "Requests in the system"],
        ),
    ],
)
def test_each_plot_needs_only_its_own_data(fields, plots, render):
    assert list(render(report(run(**fields))).plots) == plots


def test_who_waits_is_drawn_where_it_is_known(render):
    def legend(waiting: object) -> set[str]:
        page = render(report(run(timeline={**timeline(3), "num_waiting": waiting})))
        return {"running", "waiting"} & set(page.plots["Running and waiting"])

    assert legend([1, None, 0]) == {"running", "waiting"}
    assert legend(None) == legend([None] * 3) == set()  # one line needs no legend


def test_runs_at_several_rates_make_throughput_against_load(render):
    slow, fast = (everything(arrivals="poisson", rate=rate) for rate in (1.0, 2.0))
    for content, rate in ((slow, 1.0), (fast, 2.0)):
        for each in (*content["runs"], *content["peers"]["vllm"]["runs"]):
            each["rate"] = rate
    page = render(slow=slow, fast=fast)
    assert {"headway", "vllm", "offered load, requests per second"} <= set(page.plots["Throughput against load"])
    assert "time to first token, p99, ms" in page.plots["Time to first token against load, p99"]
    assert "headway [slow]" in page.plots["Time to first token"]


def test_one_rate_makes_no_line(render):
    content = report(run(rate=2.0), run(rate=2.0), arrivals="poisson")
    assert render(content, content).plots == {}


def test_systems_that_were_not_run_alike_are_different_lines_over_load(render):
    def at(rate: float, batching: str):
        return report(run(rate=rate), rate=rate, arrivals="poisson", batching=batching)

    page = render(a=at(1.0, "static"), b=at(2.0, "static"), c=at(1.0, "continuous"), d=at(2.0, "continuous"))
    assert {"headway [a]", "headway [c]"} <= set(page.plots["Throughput against load"])


def test_bursty_arrivals_are_not_one_line_with_others_of_the_same_rate(render):
    def at(rate: float, arrivals: str):
        return report(run(rate=rate), rate=rate, arrivals=arrivals)

    page = render(a=at(1.0, "poisson"), b=at(2.0, "poisson"), c=at(1.0, "gamma"), d=at(2.0, "gamma"))
    assert {"headway [a]", "headway [c]"} <= set(page.plots["Throughput against load"])


def test_what_went_wrong_is_told_and_what_did_not_takes_no_room(render):
    wrong = run(num_completed=5, num_cancelled=1, num_failed=2, num_lost=0, errors={"timed out": 2})
    page = render(report(wrong, num_cancelled=1))
    assert page.rows["headway"][:4] == ["5 of 8", "1", "2", "0"]
    assert page.rows["headway"][-1] == "2 × timed out"
    assert {"cancelled", "errors"} <= set(page.words)
    assert not {"cancelled", "errors", "goodput"} & set(render(report()).words)


def test_several_processes_are_told_apart(render):
    page = render(report(run(cpu_seconds={"engine": 2.0, "worker": 0.5})))
    assert "2.5 s (engine 2.0, worker 0.5)" in page.rows["headway"]


def test_loads_that_the_capacity_decided_are_told_apart(render):
    own = {"output_tokens_per_s": {"median": 1.1, "min": 1.0, "max": 1.2}}
    at_once = {"runs": [run(60)], "ratios": {"output_tokens_per_s": {"median": 1.2, "min": 1.2, "max": 1.2}}}
    same = {"runs": [run(45, rate=1.0)], "ratios": {"output_tokens_per_s": {"median": 1.3, "min": 1.3, "max": 1.3}}}
    vllm = peer(run(40, rate=1.0), ratios=own, bursts=at_once, same_rate=same)
    page = render(report(run(80, rate=2.0), bursts=[run(100)], load=0.6, arrivals="poisson", peers={"vllm": vllm}))
    assert page.rows["output tokens/s ÷ vllm, all at once"][0] == "1.20"
    assert page.rows["output tokens/s ÷ vllm, each at 60% of its own capacity"][0] == "1.10"
    assert page.rows["output tokens/s ÷ vllm, both at 60% of vllm's"][0] == "1.30"
    assert page.rows["headway, all at once"][1] == "100"
    assert page.rows["headway, at the rate of vllm"][1] == "45"
    assert "poisson, at 60% of each system's capacity" in page.words
    assert "Throughput against load" in page.plots


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rate": 2.0}, "ramp, 2 to 10 requests/s within 60 s"),
        ({"load": 0.2}, "ramp, at 20% to 100% of each system's capacity within 60 s"),
        (
            {"rate": 2.0, "num_apart": 1200},
            "ramp, 2 to 10 requests/s within 60 s; 1,200 requests at times of their own",
        ),
    ],
)
def test_a_ramp_is_told_from_its_start_to_its_end(fields, words, render):
    ratios = {"output_tokens_per_s": {"median": 1.1, "min": 1.0, "max": 1.2}}
    content = report(
        arrivals="ramp", growth=5.0, ramp_seconds=60.0, peers={"vllm": peer(run(), ratios=ratios)}, **fields
    )
    page = render(content)
    assert words in page.words
    assert ("load" in fields) == ("output tokens/s ÷ vllm, each at 20% to 100% of its own capacity" in page.rows)


def test_of_the_parts_of_a_mix_the_longest_wait_is_told(render):
    rows = [
        request(seconds=seconds, label=label) for label, seconds in (("a", 5.0), ("a", 9.0), ("a", 1.0), ("b", 1.0))
    ]
    assert render(report(run(requests=rows))).rows["a, headway"][-1] == "900 ms"


def test_one_tenant_alone_has_no_table(render):
    assert "Tenants" not in render(report(run(tenants={"acme": TENANTS["acme"]}))).titles
    assert "Tenants" in render(report(run(tenants=TENANTS))).titles


def test_a_scenario_is_named_once(render):
    words = render(report(workload="chat", scenario="chat")).words
    assert "scenario" in words
    assert "workload" not in words


def test_a_report_that_was_stopped_says_so(render):
    assert "interrupted" in render(report(stopped_by="interrupted")).words
    assert "stopped by" not in render(report(stopped_by=None)).words


def test_the_requests_may_stand_at_the_top_of_the_file_alone(render):
    content = {**report(run(), run()), "requests": requests(5)}
    assert "Time to first token" in render(content).plots


def test_the_page_needs_nothing_else(render):
    page = render(everything(), everything())
    assert page.problems == []
    assert not {"script", "link", "img", "iframe", "object", "image", "foreignobject"} & page.tags
    loading = ("href", "xlink:href", "src", "srcset", "data", "action")
    assert all(value.startswith("#") for name, value in page.attributes if name in loading)
    assert not re.search(r"@import|@font-face|url\((?!#)", page.text)
    namespaces = {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}
    assert set(re.findall(r"https?://[^\"'\s]+", page.text)) <= namespaces


def test_no_id_is_there_twice_and_every_reference_has_one(render):
    page = render(everything(), everything())
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)) > 100
    references = {value[1:] for name, value in page.attributes if name == "xlink:href"}
    references |= set(re.findall(r"url\(#([^)]*)\)", page.text))
    assert references
    assert references <= set(ids)


def test_dark_and_light_follow_the_reader_and_paper_is_light(render):
    page = render(everything())
    assert "@media screen and (prefers-color-scheme: dark)" in page.text
    assert "@media print" in page.text
    drawings = page.text.partition("</style>")[2]
    assert set(re.findall(r"#[0-9a-f]{6}\b", drawings)) == set(), "every colour is one of the style sheet's"
    variables = set(re.findall(r"var\(--([\w-]+)\)", drawings))
    light, dark = page.text.split("@media screen", 1)
    assert all(f"--{name}:" in light and f"--{name}:" in dark for name in variables)


def test_the_style_of_a_plot_stays_its_own(render):
    """Matplotlib brings a rule for all elements, which would be the whole page's."""
    assert render(everything()).text.count("<style") == 1


def test_powers_of_ten_on_an_axis_can_be_read(render):
    tail = [request(ttft_seconds=seconds) for seconds in (0.01, 0.01, 0.02, 30.0)]
    texts = render(report(run(requests=tail))).plots["Time to first token"]
    assert {"0.01", "0.1", "1", "10"} <= set(texts)
    assert not any("$" in text for text in texts)


def test_the_texts_of_plots_are_texts(render):
    page = render(everything())
    assert "step, ms" in page.plots["Step time by batch size"]
    assert "DejaVu" not in page.text
