"""Draws docs/waterfall.svg: the trace of one job that lost its engine on the way, made of real spans.

    .venv/bin/pip install -e '.[local,docs]' && PYTHONPATH=. .venv/bin/python docs/waterfall.py

It runs `headway up` with one slot, sends its spans to a collector over OTLP, kills the engine (SIGKILL) in the middle
of a job beside which two others wait, and draws that job's trace once both roles have exported what they have. It
prints the table of docs/tracing.md as well. A minute, most of which the model takes to load, twice.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from headway import Client
from tests.otlp_collector import CollectedSpan, Collector

PLOT = Path(__file__).with_suffix(".svg")
COLORS = {"submit": "0.75", "queue": "tab:orange", "prefill": "tab:blue", "decode": "tab:green"}
ENGINE_MODULE = b"headway.engine.main"
PROMPT, JOB_ID, TENANT = "Write a story about a tram driver.", "story", "acme"
OTHER_TOKENS, TRACED_TOKENS = 48, 96
"""Output of the other jobs, and of the one that is traced; the engine dies after a third of that."""


def main() -> None:
    with Collector() as collector, tempfile.TemporaryDirectory() as folder:
        headway = _start(collector.endpoint, folder)
        try:
            asyncio.run(_run_jobs(_address(headway), headway.pid))
        finally:
            headway.send_signal(signal.SIGTERM)
            headway.communicate()
        spans = [span for span in collector.spans if span.attributes.get("headway.job.id") == JOB_ID]
    print(table(spans))
    draw(spans)


def _start(endpoint: str, folder: str) -> subprocess.Popen[str]:
    places = ("--data-folder", folder, "--nats-port", "0", "--lease-listen", "127.0.0.1:0")
    slots = ("--max-num-seqs", "1", "--prefetch", "0", "--kv-memory", "64MiB", "--drain-seconds", "0")
    return subprocess.Popen(
        [sys.executable, "-m", "headway", "up", *places, *slots, "--otlp-endpoint", endpoint],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _address(headway: subprocess.Popen[str]) -> str:
    """Of its NATS, once it is ready; what it says afterwards is read at its end."""
    assert headway.stdout is not None
    said = ""
    for line in headway.stdout:
        said += line
        if "Ctrl-C ends it" in line and (found := re.search(r"NATS at (nats://[^\s,]+)", said)):
            return found[1]
    raise RuntimeError(f"headway up ended:\n{said}")


async def _run_jobs(url: str, pid: int) -> None:
    async with Client.connect(url, tenant=TENANT) as client:
        others = [client.submit(PROMPT, max_tokens=OTHER_TOKENS, ignore_eos=True) for _ in range(2)]
        waiting = [asyncio.create_task(job.result()) for job in others]
        num_tokens = 0
        async for chunk in client.submit(PROMPT, id=JOB_ID, max_tokens=TRACED_TOKENS, ignore_eos=True):
            before, num_tokens = num_tokens, num_tokens + len(chunk.token_ids)
            if before < TRACED_TOKENS // 3 <= num_tokens:
                os.kill(_engine_of(pid), signal.SIGKILL)
        await asyncio.gather(*waiting)


def _engine_of(pid: int) -> int:
    """The child of ``headway up`` that runs the model."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (engine,) = [child for child in children if ENGINE_MODULE in Path(f"/proc/{child}/cmdline").read_bytes()]
    return int(engine)


def table(spans: list[CollectedSpan]) -> str:
    start = min(span.start for span in spans)
    rows = [
        f"| `{span.name}` | {span.service} | {span.attributes.get('headway.attempt', '')} "
        f"| {span.start - start:.2f} s | {span.seconds:.2f} s | {_note(span)} |"
        for span in spans
    ]
    return "\n".join(["| span | from | attempt | begins | lasts | |", "|---|---|---|---|---|---|", *rows])


def _note(span: CollectedSpan) -> str:
    if span.is_error:
        return "lost: the engine was killed"
    if span.name == "decode":
        return f"{span.attributes['gen_ai.usage.output_tokens']} tokens so far"
    return "links to the attempt before" if span.links else ""


def draw(spans: list[CollectedSpan]) -> None:
    from matplotlib import pyplot
    from matplotlib.patches import ConnectionPatch

    pyplot.rcParams["svg.hashsalt"] = "headway"
    figure, axes = pyplot.subplots(figsize=(9, 0.5 * len(spans) + 1.2), layout="constrained")
    start = min(span.start for span in spans)
    rows = {span.span_id: row for row, span in enumerate(spans)}
    for row, span in enumerate(spans):
        hatch, edge = ("////", "tab:red") if span.is_error else (None, "none")
        axes.barh(row, span.seconds, left=span.start - start, color=COLORS[span.name], hatch=hatch, edgecolor=edge)
        axes.annotate(_caption(span), (span.end - start, row), (4, 0), textcoords="offset points", va="center", size=8)
    by_id = {span.span_id: span for span in spans}
    for span in spans:
        for before in (by_id[link] for link in span.links if link in by_id and span.name == "prefill"):
            axes.add_artist(
                ConnectionPatch(
                    (span.start - start, rows[span.span_id]),
                    (before.end - start, rows[before.span_id]),
                    "data",
                    arrowstyle="->",
                    linestyle=":",
                    color="tab:red",
                )
            )
    axes.set_yticks(range(len(spans)), labels=[_label(span) for span in spans])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * max(span.end - start for span in spans))
    axes.set_xlabel("seconds since the job was stored")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PLOT, metadata={"Date": None})


def _label(span: CollectedSpan) -> str:
    attempt = span.attributes.get("headway.attempt")
    return span.name if attempt is None else f"{span.name}, attempt {attempt}"


def _caption(span: CollectedSpan) -> str:
    return f"{span.seconds:.2f} s" + (f", {_note(span)}" if _note(span) else "")


if __name__ == "__main__":
    main()
