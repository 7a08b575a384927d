"""What all plots share: paper and ink, panels, legends, and names that fit."""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

INK, MUTED, PAPER = "#1f2329", "#767c84", "#fefefd"
"""Text, quiet text and background."""
BETTER_COLOUR, WORSE_COLOUR, NOISE_COLOUR = "#2a86c8", "#d55e00", "#868c93"
COLOURS = ("#2a86c8", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
WIDTH = 8.0
DOTS_PER_INCH = 100
LONGEST = 34  # characters of a level in a plot
CHARACTER = 0.078
"""Width of a character in inches, at the size of labels."""
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "font.family": ["DejaVu Sans"],
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": PAPER,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.usetex": False,
    "text.parse_math": False,
    "axes.unicode_minus": False,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "path.simplify": True,
}


@contextmanager
def style() -> Iterator[None]:
    """Draw and save in our style, whatever the person's matplotlib settings are."""
    ours = {**matplotlib.rcParamsDefault, "backend": matplotlib.rcParams["backend"], **_STYLE}
    with matplotlib.rc_context(ours), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes; the tables have it in full.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def new_figure(height: float) -> Figure:
    """An empty figure of the common width; `height` in inches."""
    figure = Figure(figsize=(WIDTH, height), dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    return figure


def panels_for(count: int, *, height: float, share_y: bool) -> tuple[Figure, list[Axes]]:
    """Up to three panels a line; the figure finds room for its labels and legend."""
    columns = min(3, count) if count != 4 else 2
    lines = math.ceil(count / columns)
    figure = new_figure(height * lines + 0.25)
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.08)
    grid = figure.subplots(lines, columns, sharey=share_y, squeeze=False)
    panels = list(grid.flat)
    for spare in panels[count:]:
        spare.remove()
    return figure, panels[:count]


def columns_of(axes: Axes) -> int:
    """How many panels stand side by side in the figure of these axes."""
    spec = axes.get_subplotspec()
    return 1 if spec is None else spec.get_gridspec().ncols


def fitting(axes: Axes, text: str) -> str:
    """No longer than a panel is wide."""
    return short(text, int((WIDTH / columns_of(axes) - 0.5) / CHARACTER))


def label_y(panels: Sequence[Axes], label: str) -> None:
    """Name the y axis once a line of panels."""
    for axes in panels:
        spec = axes.get_subplotspec()
        if spec is not None and spec.is_first_col():
            axes.set_ylabel(label)


def mark(marker: str, colour: str, label: str, *, hollow: bool = False, line: bool = False) -> Line2D:
    """What a marker looks like in a legend."""
    return Line2D(
        [],
        [],
        color=colour,
        marker=marker,
        linestyle="-" if line else "",
        markerfacecolor=PAPER if hollow else colour,
        label=label,
    )


def legend(figure: Figure, handles: Sequence[Any]) -> None:
    """Below the panels; the figure grows by it."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    fitting = max(1, min(len(handles), int(105 / (longest + 9))))
    lines = math.ceil(len(handles) / fitting)
    figure.set_size_inches(WIDTH, figure.get_figheight() + 0.18 * lines)
    figure.legend(handles=list(handles), loc="outside lower left", ncols=fitting, fontsize=8)


def short(text: str, longest: int = LONGEST) -> str:
    """Long names lose their middle; beginning and end tell names apart."""
    text = " ".join(text.split())
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 2
    return f"{text[: longest - 1 - tail]}…{text[-tail:]}"
