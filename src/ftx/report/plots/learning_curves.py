"""A panel a factor: loss on validation by step, level by level."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ftx.analysis.outcomes import outcome
from ftx.config.values import shown
from ftx.effects.observations import Observation
from ftx.effects.table import EffectRow, StudyEffects
from ftx.record.history import read_history
from ftx.record.layout import RunDir
from ftx.report.plots.canvas import (
    COLOURS,
    INK,
    MUTED,
    PAPER,
    WIDTH,
    columns_of,
    fitting,
    label_y,
    legend,
    mark,
    panels_for,
    short,
    style,
)
from ftx.report.plots.runs import level_order, runs_of

MOST_CURVES = 400


@dataclass(frozen=True)
class Curve:
    """Loss on validation by step, of one run, up to its last finite value."""

    steps: tuple[int, ...]
    losses: tuple[float, ...]
    outcome: str
    status: str


def read_curve(run: Observation, root: Path = Path()) -> Curve | None:
    """A run's curve from its history.jsonl; None where it has none."""
    if run.run is None:
        return None
    events, _ = read_history(RunDir(root / run.run).history)
    points = [
        (event.step, float(loss))
        for event in events
        if event.split == "validation"
        and isinstance(loss := event.metrics.get("loss"), (int, float))
        and math.isfinite(loss)
    ]
    if not points:
        return None
    steps, losses = zip(*points, strict=True)
    return Curve(steps, losses, outcome(run.status, run.value), run.status)


def learning_curves_plot(effects: StudyEffects, root: Path = Path()) -> Figure | None:
    """A panel a factor: loss on validation by step, a thin line a seed, their mean, a band from lowest to highest.

    None too where there are more than MOST_CURVES runs: their lines would hide each other.
    """
    runs = effects.observations.rows
    if not runs or len(runs) > MOST_CURVES:
        return None
    curves = {id(run): curve for run in runs if (curve := read_curve(run, root)) is not None}
    if not curves:
        return None
    factors = [factor for factor in effects.observations.factors if effects.factor_rows(factor.name)]
    with style():
        figure, panels = panels_for(len(factors), height=2.9, share_y=True)
        tallest = 0
        for axes, factor in zip(panels, factors, strict=True):
            rows = sorted(effects.factor_rows(factor.name), key=lambda row: level_order(factor, row.level))
            others = [row.level for row in rows if not row.is_baseline]
            for row in rows:
                mine = [curves[id(run)] for run in runs_of(effects, row) if id(run) in curves]
                _curves_of_level(axes, mine, _level_style(row, others), _level_label(row))
            axes.set_title(fitting(axes, factor.name), loc="left")
            axes.set_xlabel("optimiser step")
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            longest = max(len(_level_label(row)) for row in rows)
            columns = max(1, min(len(rows), int(WIDTH / columns_of(axes) / 0.07 / (longest + 7))))
            tallest = max(tallest, math.ceil(len(rows) / columns))
            axes.legend(fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns)
        rows_of_panels = math.ceil(len(panels) / columns_of(panels[0]))
        figure.set_size_inches(WIDTH, figure.get_figheight() + 0.2 * tallest * rows_of_panels)
        _limit(panels, list(curves.values()))
        label_y(panels, "loss on validation")
        handles: list[Any] = [
            Line2D([], [], color=INK, linewidth=2.2, label="mean of the finished seeds"),
            Line2D([], [], color=INK, linewidth=0.7, alpha=0.5, label="a seed"),
            Patch(color=INK, alpha=0.15, linewidth=0, label="band: lowest to highest seed"),
        ]
        if any(curve.outcome != "ok" for curve in curves.values()):
            handles.append(mark("X", INK, "ends here: diverged, failed or not finished"))
        legend(figure, handles)
    return figure


def _level_style(row: EffectRow, others: Sequence[Hashable]) -> dict[str, Any]:
    if row.is_baseline:
        return {"color": MUTED, "linestyle": "-"}
    place = others.index(row.level)
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": ("-", "--", "-.", ":")[place // len(COLOURS) % 4],
    }


def _level_label(row: EffectRow) -> str:
    return short(shown(row.level), 22) + (" (baseline)" if row.is_baseline else "")


def _curves_of_level(axes: Axes, curves: Sequence[Curve], style: Mapping[str, Any], label: str) -> None:
    finished = [curve for curve in curves if curve.outcome == "ok"]
    for curve in curves:
        axes.plot(curve.steps, curve.losses, **style, linewidth=0.7, alpha=0.5, label="_seed")
        if curve.outcome != "ok":
            end: dict[str, Any] = {"markeredgecolor": PAPER, "clip_on": False, "zorder": 6, "label": "_ended"}
            axes.plot([curve.steps[-1]], [curve.losses[-1]], "X", color=style["color"], markersize=6, **end)
    steps = sorted(set.intersection(*(set(curve.steps) for curve in finished))) if finished else []
    at = [[dict(zip(curve.steps, curve.losses, strict=True))[step] for curve in finished] for step in steps]
    if len(finished) > 1:
        axes.fill_between(
            steps, [min(each) for each in at], [max(each) for each in at], color=style["color"], alpha=0.15, linewidth=0
        )
    # Where no seed has finished the label still needs a line.
    axes.plot(steps, [fmean(each) for each in at], **style, linewidth=2.2, label=label, zorder=4)


def _limit(panels: Sequence[Axes], curves: Sequence[Curve]) -> None:
    """Keep what finished readable where a diverged run leaves the scale: its mark stands at the upper edge."""
    kept = [loss for curve in curves if curve.outcome == "ok" for loss in curve.losses]
    if not kept or len(kept) == sum(len(curve.losses) for curve in curves):
        return
    low, high = min(kept), max(kept)
    top = high + 0.35 * ((high - low) or abs(high) or 1.0)
    if max(loss for curve in curves for loss in curve.losses) <= top:
        return
    for axes in panels:
        axes.set_ylim(low - 0.05 * (top - low), top)
        for line in axes.get_lines():
            if line.get_label() == "_ended":
                line.set_ydata([min(float(y), top) for y in np.asarray(line.get_ydata())])
