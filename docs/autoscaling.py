"""Draws docs/autoscaling.svg: one day of load, scaled by three metrics.

    .venv/bin/pip install -e '.[cluster,docs]' && PYTHONPATH=. .venv/bin/python docs/autoscaling.py

It runs the simulation of tests/cluster (the queue's real state machine and the real external metrics API; only workers
and time are simulated), prints the table of docs/autoscaling.md, and writes the plot. It takes a minute or two; with
`--windows` it prints the table by which the window on the way down was chosen instead, and takes some ten minutes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.simulation import BEHAVIOR, SCALERS, SLO_SECONDS, SYNC_SECONDS, Day, day_of_load, rate, run_day

if TYPE_CHECKING:
    from matplotlib.pyplot import Axes

PLOT = Path(__file__).with_suffix(".svg")
EVERY = round(120 / SYNC_SECONDS)
"""One point in two minutes is as fine as a page shows."""
WAITS = {0.0: "0", 1.0: "1 s", 10.0: "10 s", SLO_SECONDS: "1 min", 600.0: "10 min", 3600.0: "1 h"}
CHOSEN_ON, CHECKED_ON = range(1, 11), range(201, 211)
"""Seeds: the days on which the window was chosen, and others of the same load."""
WINDOWS = (600.0, 900.0, 1200.0, 1800.0)


async def run_all() -> list[Day]:
    arrivals = day_of_load()
    return [await run_day(name, arrivals) for name in SCALERS]


def table(days: list[Day]) -> str:
    head = (
        "| scaled by | worker hours | median wait | 99 % wait at most | within "
        f"{SLO_SECONDS:.0f} s | changes | taken back in 10 min | jobs moved |\n|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(
        f"| {day.name} | {day.pod_hours:.0f} | {day.delay_quantile(0.5):.0f} s | {day.delay_quantile(0.99):.0f} s | "
        f"{100 * day.share_within_slo:.1f} % | {len(day.changes)} | {day.num_flaps} | {day.num_handed_back} |\n"
        for day in days
    )


async def print_windows() -> None:
    print("| window | days | worker hours a day | changes | taken back in 10 min |\n|---|---|---|---|---|")
    for seeds, windows in ((CHOSEN_ON, WINDOWS), (CHECKED_ON, WINDOWS[1::2])):
        for window in windows:
            behavior = dataclasses.replace(
                BEHAVIOR, down=dataclasses.replace(BEHAVIOR.down, stabilization_seconds=window)
            )
            days = [await run_day("workers needed", day_of_load(seed=seed), behavior=behavior) for seed in seeds]
            hours, num_changes = sum(day.pod_hours for day in days), sum(len(day.changes) for day in days)
            print(
                f"| {window:.0f} s | {seeds[0]} to {seeds[-1]} | {hours / len(days):.1f} | {num_changes} | "
                f"{sum(day.num_flaps for day in days)} |",
                flush=True,
            )


def draw(days: list[Day]) -> None:
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "headway"
    figure, (load, *rows) = pyplot.subplots(
        len(days) + 1, 1, sharex=True, figsize=(9, 10), layout="constrained", height_ratios=[1, *[1.3] * len(days)]
    )
    hours = [time / 3600 for time in days[0].times if time <= 86_400][::EVERY]
    load.fill_between(hours, [rate(3600 * hour) for hour in hours], color="0.8")
    load.set_ylabel("jobs per second")
    for row, day in zip(rows, days, strict=True):
        _draw_day(row, day)
    rows[-1].set_xlabel("hour of the day")
    rows[-1].set_xlim(0, 24)
    rows[-1].set_xticks(range(0, 25, 3))
    figure.savefig(PLOT, metadata={"Date": None})


def _draw_day(row: Axes, day: Day) -> None:
    hours = [time / 3600 for time in day.times][::EVERY]
    row.step(hours, day.replicas[::EVERY], where="post", color="tab:blue")
    row.set_ylabel("workers", color="tab:blue")
    row.set_ylim(0, 13)
    row.set_title(f"by {day.name}: {day.pod_hours:.0f} worker hours", loc="left", fontsize=10)
    waits = row.twinx()
    waits.plot(hours, _longest_waits(day)[: len(hours)], color="tab:red", linewidth=0.8)
    waits.axhline(SLO_SECONDS, color="tab:red", linestyle=":", linewidth=0.8)
    waits.set_yscale("symlog", linthresh=1)
    waits.set_ylim(0, 5000)
    waits.set_yticks(list(WAITS), labels=list(WAITS.values()))
    waits.minorticks_off()
    waits.set_ylabel("longest wait", color="tab:red")


def _longest_waits(day: Day) -> list[float]:
    """Of the jobs that arrived in each period of the plot."""
    seconds = EVERY * SYNC_SECONDS
    longest = [0.0] * (len(day.times) // EVERY + 1)
    for arrival, delay in day.delays:
        index = min(int(arrival / seconds), len(longest) - 1)
        longest[index] = max(longest[index], delay)
    return longest


if __name__ == "__main__":
    if "--windows" in sys.argv:
        asyncio.run(print_windows())
        sys.exit()
    results = asyncio.run(run_all())
    print(table(results))
    draw(results)
