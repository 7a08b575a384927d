"""A panel a cost: what an arm takes against what it is worth, and the front where it is known."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from ftx.config.values import shown
from ftx.design.plan import BASELINE
from ftx.effects.table import EffectRow, StudyEffects
from ftx.report.plots.canvas import COLOURS, INK, MARKERS, MUTED, PAPER, label_y, legend, mark, panels_for, short, style
from ftx.report.plots.runs import towards

MOST_LABELLED = 14
_COSTS = {
    "trainable_parameters": ("trainable parameters", 1.0, 0.01),
    "seconds": ("seconds a run", 1.0, 0.05),
    "peak_memory_bytes": ("peak memory, MiB", 2.0**20, 0.02),
}
"""Label, unit, and the share by which two costs must differ not to count as the same."""


@dataclass(frozen=True)
class Priced:
    """An arm, what it costs and what it is worth."""

    label: str
    row: EffectRow
    cost: float
    value: float
    low: float | None
    """Of its simultaneous interval, on the metric's own scale; the baseline's is its mean."""
    high: float | None


def cost_plot(effects: StudyEffects) -> Figure | None:
    """A panel for each cost in which arms differ, on a log axis against the metric; the front where it is known."""
    arms = {name: priced_arms(effects, name) for name in _COSTS}
    varied = {name: priced for name, priced in arms.items() if _varies(priced, _COSTS[name][2])}
    if not varied:
        return None
    with style():
        figure, panels = panels_for(len(varied), height=3.0, share_y=True)
        fronts = False
        for axes, (name, priced) in zip(panels, varied.items(), strict=True):
            fronts = _cost_panel(axes, effects, name, priced) or fronts
        metric = short(effects.observations.metric.name)
        label_y(panels, f"{metric} ({towards(effects)})")
        legend(figure, _cost_legend(next(iter(varied.values())), fronts))
    return figure


def _varies(priced: Sequence[Priced], tolerance: float) -> bool:
    costs = [each.cost for each in priced]
    return len(costs) > 1 and max(costs) > min(costs) * (1 + tolerance)


def priced_arms(effects: StudyEffects, name: str) -> list[Priced]:
    """Every arm whose cost and mean are known; the baseline once where one serves all factors."""
    found: list[Priced] = []
    unit = _COSTS[name][1]
    one_baseline = effects.observations.design == "ofat"
    bases = {row.factor: row.mean for row in effects.rows if row.is_baseline}
    for row in sorted(effects.rows, key=lambda row: one_baseline and not row.is_baseline):
        cost, base = row.cost.get(name), bases.get(row.factor)
        if cost is None or cost <= 0 or row.mean is None or row.n_failed:
            continue
        if row.is_baseline and one_baseline:
            if any(each.row.is_baseline for each in found):
                continue
            found.append(Priced(BASELINE, row, cost / unit, row.mean, row.mean, row.mean))
            continue
        known = base is not None and row.ci_low is not None and row.ci_high is not None
        low = base + row.ci_low if known and base is not None and row.ci_low is not None else None
        high = base + row.ci_high if known and base is not None and row.ci_high is not None else None
        found.append(Priced(f"{row.factor}={shown(row.level)}", row, cost / unit, row.mean, low, high))
    return found


def front(priced: Sequence[Priced], *, higher_is_better: bool, tolerance: float) -> list[Priced]:
    """Arms better than every arm that costs no more, by intervals that do not touch.

    Args:
        priced: the arms; one without an interval is on no front and keeps off it whatever is not cheaper.
        higher_is_better: of the metric.
        tolerance: share below which two costs count as the same.
    """

    def beats(one: Priced, other: Priced) -> bool:
        if one.low is None or one.high is None or other.low is None or other.high is None:
            return False
        return one.low > other.high if higher_is_better else one.high < other.low

    return [
        one
        for one in priced
        if one.low is not None
        and all(beats(one, other) for other in priced if other is not one and other.cost <= one.cost * (1 + tolerance))
    ]


def _cost_panel(axes: Axes, effects: StudyEffects, name: str, priced: Sequence[Priced]) -> bool:
    """Draw one cost; returns whether a front is shown."""
    label, _, tolerance = _COSTS[name]
    axes.set_xscale("log")
    styles = _arm_styles(priced)
    for each in priced:
        colour, marker = styles[each.label]
        if each.low is not None and each.high is not None and not each.row.is_baseline:
            axes.plot(
                [each.cost, each.cost], [each.low, each.high], "-", color=colour, linewidth=1.4, label="_interval"
            )
        face = PAPER if each.low is None else colour
        axes.plot([each.cost], [each.value], marker, color=colour, markerfacecolor=face, markersize=7, label="_arm")
    best: list[Priced] = []
    if effects.observations.design == "ofat":
        better_up = effects.observations.metric.higher_is_better
        best = front(priced, higher_is_better=better_up, tolerance=tolerance)
    for each in best:
        axes.plot(
            [each.cost],
            [each.value],
            "o",
            markersize=14,
            markerfacecolor="none",
            color=INK,
            linewidth=1,
            label="_front",
        )
    costs = [each.cost for each in priced]
    _cost_ticks(axes, min(costs), max(costs))
    axes.set_xlabel(f"{label} (log)")
    axes.margins(y=0.12)
    return bool(best)


def _cost_ticks(axes: Axes, low: float, high: float) -> None:
    """Three or so round numbers: a log axis of less than a decade has too few of its own."""
    pad = max((high / low) ** 0.15, 1.02)
    axes.set_xlim(low / pad, high * pad)
    ends = [low, math.sqrt(low * high), high] if high / low > 1.02 else [math.sqrt(low * high)]
    digits = 2 if high / low > 1.3 else 3
    rounded = list(dict.fromkeys(float(f"{each:.{digits}g}") for each in ends))
    axes.set_xticks(rounded, [_amount(each) for each in rounded])
    axes.xaxis.set_minor_locator(NullLocator())


def _amount(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if letter == 'k' else size):.4g}{letter}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _arm_styles(priced: Sequence[Priced]) -> dict[str, tuple[str, str]]:
    """Colour and marker by arm: a colour a factor, a marker a level."""
    factors = list(dict.fromkeys(each.row.factor for each in priced if each.label != BASELINE))
    seen: dict[str, int] = {}
    styles = {}
    for each in priced:
        if each.label == BASELINE:
            styles[each.label] = (MUTED, "*")
            continue
        place = seen[each.row.factor] = seen.get(each.row.factor, -1) + 1
        styles[each.label] = (COLOURS[factors.index(each.row.factor) % len(COLOURS)], MARKERS[place % len(MARKERS)])
    return styles


def _cost_legend(priced: Sequence[Priced], fronts: bool) -> list[Any]:
    """Every arm; of many, the factors by their colours."""
    styles = _arm_styles(priced)
    handles: list[Any] = []
    if len(priced) <= MOST_LABELLED:
        for each in priced:
            colour, marker = styles[each.label]
            handles.append(mark(marker, colour, short(each.label, 44), hollow=each.low is None))
    else:
        names = {(BASELINE if each.label == BASELINE else each.row.factor): styles[each.label] for each in priced}
        for name, (colour, marker) in names.items():
            handles.append(mark("*" if marker == "*" else "o", colour, short(name, 44)))
    if fronts:
        ring = mark("o", INK, "front: better than all that costs no more", hollow=True)
        ring.set_markersize(10)
        handles.append(ring)
    return handles
