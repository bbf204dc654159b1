"""What a suite found, as tables for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.claims.table import claim_rows, is_claim
from loadtest.row import Aim, Row

Report = Mapping[str, Any]

THROUGHPUT_AIMS = {
    "vllm": Aim(2.0, True),
    "llamacpp": Aim(4.0, True),
    "llamacpp:16": Aim(4.0, True),
    "llamacpp:q8_0": Aim(1.5, True),
    "llamacpp:q8_0:16": Aim(1.5, True),
}
PATH_AIM = Aim(0.95, True)
TPOT_AIM = Aim(0.7, False)
FLOOR_AIM = Aim(1.6, False)
FIRST_TOKEN_AIM = Aim(10.0, False)


def to_markdown(folder: Path) -> str:
    """Of all studies whose files lie in the folder."""
    reports = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    first_token = reports.pop("first-token", None)
    benches = {name: report for name, report in reports.items() if "output_tokens_per_s" in report}
    parts = [_machine(report) for report in list(benches.values())[:1]]
    claims = [row for study, report in benches.items() for row in claim_rows(study, report)]
    compared = {study: report for study, report in benches.items() if not is_claim(study)}
    rows = [*_ratios(compared), *_floors(benches), *_starts(first_token), *claims]
    parts.append("\n".join(["| what | median | spread | aim |", "|---|---|---|---|", *(row.to_line() for row in rows)]))
    if systems := list(_systems(benches)):
        head = ["| study | system | output tokens/s | first token, ms | per token, ms | end to end, ms | CPU seconds |"]
        parts.append("\n".join([*head, "|---|---|---|---|---|---|---|", *systems]))
    if pages := sorted(path.stem for path in folder.glob("*.html")):
        parts.append("Plots: " + ", ".join(f"[{name}]({name}.html)" for name in pages))
    parts += [f"{report['title']}\n\n{report['table']}" for report in reports.values() if "table" in report]
    return "\n\n".join(parts) + "\n"


def _machine(report: Report) -> str:
    machine, floor = report["machine"], report["floor"]
    versions = ", ".join(f"{name} {machine[name]}" for name in ("headway", "torch", "transformers", "python"))
    return (
        f"{machine['cpu']} ({', '.join(machine['cpu_flags'])}), {machine['num_cores']} cores; {versions}; "
        f"{floor['read_bytes_per_s'] / 1e9:.1f} GB/s read, {floor['matrix_flops_per_s'] / 1e12:.2f} TFLOP/s; "
        f"load average before the first study {machine['load_average']:.2f}"
    )


def _ratios(benches: Mapping[str, Report]) -> Iterator[Row]:
    for study, report in benches.items():
        for peer, compared in report["peers"].items():
            if study == "path":
                yield _row("whole path ÷ engine alone, output tokens/s", compared["ratios"], aim=PATH_AIM)
                continue
            at_once = compared.get("bursts", compared)["ratios"]
            yield _row(f"output tokens/s ÷ {peer}, all at once", at_once, aim=THROUGHPUT_AIMS.get(peer))
            if "bursts" in compared:
                load = f"{report['load']:.0%}"
                own, same = compared["ratios"], compared["same_rate"]["ratios"]
                yield _row(
                    f"mean time per token ÷ {peer}, each at {load} of its capacity", own, "tpot_seconds", TPOT_AIM
                )
                yield _row(f"mean time per token ÷ {peer}, both at {load} of {peer}'s", same, "tpot_seconds", TPOT_AIM)


def _row(what: str, ratios: Mapping[str, Any], key: str = "output_tokens_per_s", aim: Aim | None = None) -> Row:
    ratio = ratios[key]
    return Row(what, ratio["median"], ratio["min"], ratio["max"], aim)


def _floors(benches: Mapping[str, Report]) -> Iterator[Row]:
    """Of the studies of decode steps: the step of all their requests."""
    for study, report in sorted(benches.items(), key=lambda item: item[1]["num_requests"]):
        share = report["floor"]["share"].get(str(report["num_requests"]))
        if study.startswith("decode-") and share:
            yield Row(f"decode step ÷ floor, {report['num_requests']} sequences", 1 / share, aim=FLOOR_AIM)


def _starts(first_token: Mapping[str, Any] | None) -> Iterator[Row]:
    if first_token is not None:
        yield _row("first token after a start, seconds", first_token, "first_token_seconds", FIRST_TOKEN_AIM)


def _systems(benches: Mapping[str, Report]) -> Iterator[str]:
    for study, report in benches.items():
        yield _system(study, f"headway, {report['target']}", report["runs"])
        if report["bursts"]:
            yield _system(f"{study}, all at once", f"headway, {report['target']}", report["bursts"])
        for peer, compared in report["peers"].items():
            yield _system(study, peer, compared["runs"])
            if "bursts" in compared:
                yield _system(f"{study}, all at once", peer, compared["bursts"]["runs"])
                yield _system(f"{study}, at the rate of {peer}", "headway", compared["same_rate"]["runs"])


def _system(study: str, name: str, runs: Sequence[Report]) -> str:
    """Every run's throughput; of the last one the latencies (mean / p99) and what it cost."""
    last = runs[-1]
    throughput = ", ".join(f"{run['output_tokens_per_s']:.0f}" for run in runs)
    latencies = (_latency(last[key]) for key in ("ttft_seconds", "tpot_seconds", "e2e_seconds"))
    cpu = ", ".join(f"{process} {seconds:.1f}" for process, seconds in last["cpu_seconds"].items())
    return f"| {study} | {name} | {throughput} | {' | '.join(latencies)} | {cpu} |"


def _latency(summary: Mapping[str, float] | None) -> str:
    return "" if summary is None else f"{summary['mean'] * 1000:.0f} / {summary['p99'] * 1000:.0f}"
