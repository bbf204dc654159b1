"""Draws docs/engine-step.svg, and writes the tables about GPUs in docs/engine.md.

    .venv/bin/pip install -e '.[local,bench,dev]'
    PYTHONPATH=. .venv/bin/python docs/engine.py

Tables: what the attention kernels became when they were compiled ahead of time (half a minute; no GPU is needed); the
floors, which are arithmetic; and what `python -m loadtest.gpu_check --json docs/gpu.json` has measured, as far as that
file is there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from loadtest.gpu.bench import Bench, BenchSettings, Sizes
from loadtest.gpu.checks import Verdict
from loadtest.gpu.deadline import Deadline
from loadtest.gpu.parts import PARTS
from loadtest.gpu.report import shown, title, to_json
from loadtest.gpu.run import planned

FOLDER = Path(__file__).parent
PAGE = FOLDER / "engine.md"
PICTURE = FOLDER / "engine-step.svg"
MEASURED = FOLDER / "gpu.json"
H200_BYTES_PER_S = 4.8e12
H200_FLOPS_PER_S = 989e12
"""Of dense bfloat16 products. Both as NVIDIA publishes them."""
SUMMED_UP = "correctness"
"""A part whose many items make one row."""

Report = Mapping[str, Any]


# -- tables ----------------------------------------------------------------------------------------------------------


def kernel_table() -> Iterable[str]:
    from tests.engine.triton_kernels.ahead_of_time import compile_launch

    yield (
        "| capability | work | width | rows × keys | warps | stages | registers | spilled | shared KiB | instruction |"
    )
    yield "|---" * 10 + "|"
    for capability in (90, 80):
        for work, launches in _launches(capability).items():
            for width, launch in launches.items():
                kernel = compile_launch(launch, capability)
                constants = launch.constants
                name = "HGMMA" if kernel.count("HGMMA") else "HMMA"
                cells = (
                    f"{capability / 10:.1f}",
                    work,
                    width,
                    f"{constants['BLOCK_ROWS']} × {constants['BLOCK_KEYS']}",
                    launch.num_warps,
                    launch.num_stages,
                    kernel.num_registers,
                    kernel.num_spills,
                    f"{kernel.shared_bytes / 1024:.0f}",
                    f"{kernel.count(name)} {name}",
                )
                yield "| " + " | ".join(map(str, cells)) + " |"


def _launches(capability: int) -> dict[str, dict[int, Any]]:
    """Of bfloat16, 32 query heads to 8 key heads, pages of 16, contexts split."""
    from headway.engine.triton_kernels.attend import decode_launches, mixed_launch
    from headway.engine.triton_kernels.launch import Chip
    from tests.engine.triton_kernels.shapes import unreal_batch, unreal_output

    chip = Chip(capability, 132)
    batches = {dim: unreal_batch(num_tokens=8, num_sequences=8, max_keys=32_768, dim=dim) for dim in (64, 128, 256)}
    return {
        "mixed": {
            dim: mixed_launch(batch, unreal_output(batch), chip, skip_decodes=True) for dim, batch in batches.items()
        },
        "decode": {dim: decode_launches(batch, unreal_output(batch), chip)[0] for dim, batch in batches.items()},
    }


def floor_table() -> Iterable[str]:
    sizes = Sizes()
    floor = sizes.model.floor(H200_BYTES_PER_S, H200_FLOPS_PER_S)
    yield "| sequences × context | weights | keys and values | reading all | products | output tokens/s at the most |"
    yield "|---" * 6 + "|"
    for size in sizes.batch_sizes:
        kv_bytes = size * sizes.context_len * floor.kv_bytes_per_token
        products = 2 * floor.num_weights * size / H200_FLOPS_PER_S
        cells = (
            f"{size} × {sizes.context_len:,}",
            f"{floor.weight_bytes / 1e9:.1f} GB",
            f"{kv_bytes / 1e9:.1f} GB",
            f"{1e3 * floor.read_seconds(size, sizes.context_len):.2f} ms",
            f"{1e3 * products:.2f} ms",
            f"{size / floor.decode_step_seconds(size, sizes.context_len):,.0f}",
        )
        yield "| " + " | ".join(cells) + " |"


def measured_table(report: Report) -> Iterable[str]:
    if not report["machine"]:
        yield (
            "No GPU was at hand: the cells are empty. `python -m loadtest.gpu_check --json docs/gpu.json; "
            "PYTHONPATH=. python docs/engine.py` fills them."
        )
    else:
        machine = report["machine"]
        yield f"{machine['gpu']}, torch {machine['torch']}, Triton {machine['triton']}; {report['seconds']:.0f} s."
        yield from (f"Engine: {stage}." for stage in machine.get("engine", ()))
    yield ""
    yield "| part | what | aim | found | |"
    yield "|---|---|---|---|---|"
    for part in PARTS:
        checks = [check for check in report["checks"] if check["part"] == part]
        yield from [_summed_up(checks)] if part == SUMMED_UP else map(_row, checks)


def _row(check: Mapping[str, Any]) -> str:
    first, *others = check["figures"].items()
    rest = "; ".join(f"{title(name)} {shown(name, value)}" for name, value in others if value is not None)
    found = "" if first[1] is None else shown(*first)
    return f"| {check['part']} | {check['name']} | {_aim(check)} | {found} | {rest or check['note']} |"


def _aim(check: Mapping[str, Any]) -> str:
    if check["aim"] is None:
        return ""
    sign, limit = check["aim"].split()
    return f"{sign} {shown(next(iter(check['figures'])), float(limit))}"


def _summed_up(checks: Sequence[Mapping[str, Any]]) -> str:
    """How many of them passed; nothing if none was run."""
    num_passed = sum(check["verdict"] == Verdict.PASSED for check in checks)
    was_run = any(check["verdict"] != Verdict.NOT_RUN for check in checks)
    found = f"{num_passed} passed" if was_run else ""
    kinds = "the op against float64, writing pages, a captured decode, a nucleus, an engine's tokens"
    what = f"{len(checks)} checks: {kinds}"
    return f"| {SUMMED_UP} | {what} | within rounding | {found} | |"


def not_measured() -> Report:
    """What gpu_check would say without having run anything."""
    return to_json({}, planned(Bench(BenchSettings(torch.device("cuda"), Sizes()), Deadline(0)), list(PARTS.values())))


def tables(report: Report) -> dict[str, Callable[[], Iterable[str]]]:
    """By the mark in the page."""
    return {"floors": floor_table, "measured": lambda: measured_table(report), "kernels": kernel_table}


def page(contents: Mapping[str, Callable[[], Iterable[str]]], text: str) -> str:
    """With these tables made anew."""
    for name, table in contents.items():
        content = "\n".join(table())
        marked = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        text, count = re.subn(marked, lambda at, content=content: f"{at[1]}{content}\n{at[2]}", text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"the page has {count} places for {name}")
    return text


# -- picture ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """Something that takes a while, in made-up units."""

    lane: str
    start: float
    length: float
    label: str
    color: str
    step: int

    @property
    def end(self) -> float:
        return self.start + self.length


LANES = ("host", "device")
STEP = 10.0
HOST, COPY, LAYERS, SAMPLE, WAIT = "#a6cee3", "#fdbf6f", "#d9f0d3", "#7fbf7b", "#f7f7f7"


def bars_of(step: int) -> list[Bar]:
    """One step: what the host does for it before and after, and what the device does."""
    begin, end = step * STEP, (step + 1) * STEP
    planned, launched = begin - STEP + 2.2, begin - STEP + 5.3
    return [
        Bar("host", planned, 0.8, "plan", HOST, step),
        Bar("host", planned + 0.8, 1.2, "inputs", HOST, step),
        Bar("host", planned + 2.0, 1.1, "launch", HOST, step),
        Bar("host", launched, begin - launched + 0.2, "wait for tokens", WAIT, step - 1),
        Bar("device", begin, 0.4, "", COPY, step),
        Bar("device", begin + 0.4, 7.2, "layers", LAYERS, step),
        Bar("device", begin + 7.6, 0.8, "head", LAYERS, step),
        Bar("device", begin + 8.4, 1.3, "sample", SAMPLE, step),
        Bar("device", begin + 9.7, 0.3, "", COPY, step),
        Bar("host", end + 0.2, 1.1, "read", HOST, step),
        Bar("host", end + 1.3, 0.9, "apply", HOST, step),
    ]


def _name(step: int) -> str:
    return "k" if step == 0 else f"k{step:+d}".replace("-", "−")


def draw(path: Path) -> None:
    from matplotlib import pyplot

    pyplot.rcParams.update({"svg.hashsalt": "headway", "svg.fonttype": "none", "font.size": 9})
    figure, axes = pyplot.subplots(figsize=(11, 2.3), layout="constrained")
    for bar in (bar for step in (-1, 0, 1, 2) for bar in bars_of(step)):
        row = LANES.index(bar.lane)
        axes.barh(row, bar.length, 0.5, left=bar.start, color=bar.color, edgecolor="0.4", linewidth=0.5)
        if bar.label:
            place = (bar.start + bar.length / 2, row)
            axes.annotate(f"{bar.label}\n{_name(bar.step)}", place, ha="center", va="center", fontsize=7)
    for step in (0, 1):
        _draw_tokens(axes, (step + 1) * STEP)
    axes.set_yticks(range(len(LANES)), labels=list(LANES))
    axes.set_ylim(1.75, -0.4)
    axes.set_xlim(0, 2.45 * STEP)
    axes.set_xticks([])
    axes.set_xlabel("time, not to scale; orange: copies of inputs in and of tokens out")
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def _draw_tokens(axes: Any, end: float) -> None:
    """What was sampled goes into the next step on the device, and to the host beside it."""
    style = {"arrowstyle": "->", "color": "tab:red"}
    axes.annotate("", (end + 0.2, 0.25), (end - 0.15, 0.75), arrowprops=style)
    bow = {**style, "connectionstyle": "arc3,rad=0.5"}
    axes.annotate("", (end + 0.6, 1.27), (end - 0.9, 1.27), arrowprops=bow)
    axes.annotate("tokens, on the device", (end - 0.15, 1.62), ha="center", color="tab:red", fontsize=7)


def main() -> None:
    report = json.loads(MEASURED.read_text()) if MEASURED.exists() else not_measured()
    PAGE.write_text(page(tables(report), PAGE.read_text()))
    draw(PICTURE)


if __name__ == "__main__":
    main()
