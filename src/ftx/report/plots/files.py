"""Every plot that can be drawn, and the files that they are written to."""

import io
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from ftx.effects.table import StudyEffects
from ftx.report.plots.canvas import DOTS_PER_INCH, style
from ftx.report.plots.cost import cost_plot
from ftx.report.plots.intervals import interval_plot
from ftx.report.plots.learning_curves import learning_curves_plot
from ftx.report.plots.main_effects import main_effects_plot


def figures(effects: StudyEffects, root: Path = Path()) -> dict[str, Figure]:
    """Every plot that can be drawn, by name; run directories are relative to `root`."""
    drawn = {
        "intervals": interval_plot(effects),
        "main_effects": main_effects_plot(effects),
        "learning_curves": learning_curves_plot(effects, root),
        "cost": cost_plot(effects),
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def write_plots(
    effects: StudyEffects, folder: Path, root: Path = Path(), drawn: Mapping[str, Figure] | None = None
) -> list[Path]:
    """Write each plot that can be drawn, or those of `drawn`, as SVG and PNG; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in (figures(effects, root) if drawn is None else drawn).items():
        (folder / f"{name}.svg").write_text(svg_of(figure, name), encoding="utf-8")
        with style():
            figure.savefig(folder / f"{name}.png", dpi=2 * DOTS_PER_INCH, metadata={"Software": None})
        written += [folder / f"{name}.svg", folder / f"{name}.png"]
    return written


@lru_cache(maxsize=8)  # the file and the report show the same picture
def svg_of(figure: Figure, name: str) -> str:
    """The figure as SVG, the same text every time."""
    out = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with style(), matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(out, format="svg", metadata=nothing)
    return out.getvalue()
