"""Plots as SVG that fits into a page: its text is text, its colours follow the page's, its ids are its own.

Matplotlib draws with the colours of the light page. Each of them stands for one variable of the page's style sheet and
is replaced by it, so that one drawing serves light, dark and paper.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from cycler import cycler
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, MUTED, GRID = "#1c2128", "#57606a", "#d5dae0"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#b8860b", "#56b4e9", "#661100")
"""Told apart with any kind of colour vision (Okabe and Ito, Tol), and by brightness enough for grey paper."""
DASHES = ("-", "--", ":", "-.")
VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid", **{colour: f"series-{n}" for n, colour in enumerate(SERIES)}}

WIDTH, HEIGHT = 6.4, 3.4
"""Inches of 72 points; the page scales them."""
LEGEND_ROW = 0.19
"""What each row of a legend but the first adds to the height, so that it takes no room from the plot."""
_STYLE: dict[Any, Any] = {
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.prop_cycle": cycler(color=SERIES),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "sans-serif",
    "font.size": 10,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.8,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,  # a "$" in a name is a "$"
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@contextmanager
def style() -> Iterator[None]:
    """Whatever is drawn or saved inside looks alike, and like nothing that the user's own files say."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def new_figure(num_rows: int = 1, height: float = HEIGHT) -> Figure:
    return Figure(figsize=(WIDTH, height * (1 + 0.6 * (num_rows - 1))), layout="constrained")


def colour(number: int) -> str:
    return SERIES[number % len(SERIES)]


def dashes(number: int) -> str:
    """Changes from line to line, for paper without colour, and so that no line of a later round of colours is like
    one of an earlier round."""
    return DASHES[(number + 2 * (number // len(SERIES))) % len(DASHES)]


@dataclass(frozen=True, slots=True)
class Scale:
    """Of an axis of seconds."""

    factor: float
    unit: str


def scale_for(greatest_seconds: float) -> Scale:
    return Scale(1000, "ms") if greatest_seconds < 1 else Scale(1, "s")


def label(name: str) -> str:
    """A name as a legend takes it: matplotlib hides those that begin with an underscore."""
    return f"\N{ZERO WIDTH SPACE}{name}" if name.startswith("_") else name


def add_legend(axes: Axes) -> None:
    """Below the plot, where it hides nothing; left out for one line, which the title names. Once for a figure."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        columns = 1 if max(map(len, labels)) > 34 else 2 if max(map(len, labels)) > 16 else 3
        figure = axes.get_figure(root=True)
        assert figure is not None
        figure.set_figheight(figure.get_figheight() + LEGEND_ROW * (-(-len(labels) // columns) - 1))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def to_svg(figure: Figure, name: str, title: str) -> Markup:
    """``name`` must be unique on the page, and ``title`` is what a screen reader says."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata=_NO_METADATA)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'<svg ([^>]*?)width="[^"]*" height="[^"]*"', r"<svg \1", text, count=1)
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)  # it would be the whole page's
    text = re.sub(r" (?:d|x|y|transform)=\"[^\"]*\"", lambda match: _rounded(match[0]), text)
    text = re.sub(r"(?<= style=\")[^\"]*", lambda match: _page_style(match[0]), text)
    text = _with_own_ids(text, name)
    return Markup(text.replace("<svg ", Markup('<svg role="img" aria-label="{}" ').format(title), 1))


def _rounded(attribute: str) -> str:
    """A hundredth of a point is as fine as anybody sees."""
    return re.sub(r"(\.\d\d)\d+", r"\1", attribute).replace("\n", "")


def _page_style(declarations: str) -> str:
    declarations = re.sub(r"font-family: [^;]*", "font-family: inherit", declarations)
    return re.sub(r"#[0-9a-f]{6}", lambda match: _variable(match[0]), declarations)


def _variable(colour: str) -> str:
    return f"var(--{VARIABLES[colour]})" if colour in VARIABLES else colour


def _with_own_ids(text: str, name: str) -> str:
    text = re.sub(r'(<[^<>]* id=")', rf"\g<1>{name}-", text)
    return re.sub(r'(xlink:href="|url\()#', rf"\g<1>#{name}-", text)
