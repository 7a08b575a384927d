"""A panel a factor: the means of its levels, and the runs behind them."""

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator
from scipy.special import stdtrit

from ftx.config.values import shown
from ftx.effects.observations import FactorLevels, as_number
from ftx.effects.table import EffectRow, StudyEffects
from ftx.report.plots.canvas import (
    BETTER_COLOUR,
    CHARACTER,
    MUTED,
    NOISE_COLOUR,
    PAPER,
    WIDTH,
    WORSE_COLOUR,
    columns_of,
    fitting,
    label_y,
    legend,
    mark,
    panels_for,
    short,
    style,
)
from ftx.report.plots.runs import is_ok, level_order

_MOST_TICKS = 24


def main_effects_plot(effects: StudyEffects) -> Figure | None:
    """A panel a factor on one y axis: marginal means with intervals, runs, grand mean, failures on the floor."""
    factors = [factor for factor in effects.observations.factors if effects.factor_rows(factor.name)]
    if not factors or not any(row.values for row in effects.rows):
        return None
    with style():
        figure, panels = panels_for(len(factors), height=2.7, share_y=True)
        grand = _grand_mean(effects)
        for axes, factor in zip(panels, factors, strict=True):
            _main_effect(axes, effects, factor)
            if grand is not None:
                axes.axhline(grand, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1, label="_grand_mean")
        label_y(panels, short(effects.observations.metric.name))
        handles: list[Any] = [
            mark("o", BETTER_COLOUR, "mean, 95% interval of that mean alone", line=True),
            mark("o", BETTER_COLOUR, "mean without interval", hollow=True),
            mark(".", NOISE_COLOUR, "run"),
            Line2D([], [], color=MUTED, linestyle=(0, (4, 3)), label="grand mean"),
        ]
        if any(row.n_failed for row in effects.rows):
            handles.append(mark("x", WORSE_COLOUR, "failed run"))
        legend(figure, handles)
    return figure


def _main_effect(axes: Axes, effects: StudyEffects, factor: FactorLevels) -> None:
    rows = sorted(effects.factor_rows(factor.name), key=lambda row: level_order(factor, row.level))
    places = _scale(axes, factor, [row.level for row in rows])
    means = effects.marginal_means.get(factor.name, {})
    points = []
    for row, place in zip(rows, places, strict=True):
        spread = [place(_jitter(number)) for number in range(max(len(row.values), row.n_failed))]
        if row.values:
            places_of_runs = spread[: len(row.values)]
            axes.plot(places_of_runs, row.values, ".", color=NOISE_COLOUR, alpha=0.55, markersize=5, label="_run")
        if row.n_failed:
            axes.plot(
                spread[: row.n_failed],
                [0.03] * row.n_failed,
                "x",
                color=WORSE_COLOUR,
                markersize=6,
                transform=axes.get_xaxis_transform(),
                zorder=5,
                label="_failed",
            )
        if row.level in means:
            points.append((place(0.0), *means[row.level], row))
    if None not in map(as_number, factor.levels):  # a line between names would say that they have an order
        whole = [(at, mean) for at, mean, _, row in points if not row.n_failed]
        axes.plot([at for at, _ in whole], [mean for _, mean in whole], "-", color=BETTER_COLOUR, alpha=0.5, zorder=2)
    for at, mean, error, row in points:
        half = _half_width(effects, row, error)
        if half is not None:
            axes.plot([at, at], [mean - half, mean + half], "-", color=BETTER_COLOUR, linewidth=1.8, label="_interval")
        face = PAPER if half is None else BETTER_COLOUR
        axes.plot([at], [mean], "o", color=BETTER_COLOUR, markerfacecolor=face, markersize=6, zorder=4, label="_mean")
    axes.set_xlabel(fitting(axes, factor.name))
    axes.margins(y=0.12)


def _half_width(effects: StudyEffects, row: EffectRow, error: float | None) -> float | None:
    """Of the interval of one mean; None where it would mislead: failed runs, one run, unknown noise."""
    df = effects.df if effects.observations.design == "factorial" else row.n_ok - 1
    if error is None or row.n_failed or row.n_ok < 2 or not df or df < 1:
        return None
    return float(stdtrit(df, 0.975)) * error


def _grand_mean(effects: StudyEffects) -> float | None:
    """Of all finished runs; in a factorial of one factor's marginal means, where every level counts the same."""
    if effects.observations.design == "factorial":
        means = next(iter(effects.marginal_means.values()), None)
        return fmean(mean for mean, _ in means.values()) if means else None
    values = [run.value for run in effects.observations.rows if is_ok(run) and run.value is not None]
    return fmean(values) if values else None


def _jitter(number: int) -> float:
    """A place within -0.5 .. 0.5 for the nth point, spread by the golden ratio: the same every time."""
    return (0.5 + 0.6180339887 * (number + 1)) % 1.0 - 0.5


def _scale(axes: Axes, factor: FactorLevels, levels: Sequence[Hashable]) -> list[Callable[[float], float]]:
    """Set the x axis up, and return where each level stands, given a jitter."""
    base = _log_base(factor.name)
    numbers = [number for level in levels if (number := as_number(level)) is not None and number > 0]
    labels = [shown(level) for level in levels]
    if base is None or len(numbers) < len(levels):
        axes.set_xlim(-0.6, len(levels) - 0.4)
        _ticks(axes, list(range(len(levels))), labels)
        return [_linear(place) for place in range(len(levels))]
    axes.set_xscale("log", base=base)
    axes.xaxis.set_minor_locator(NullLocator())
    logs = sorted(math.log(number, base) for number in numbers)
    gap = min([1.0, *(high - low for low, high in pairwise(logs) if high > low)])
    edge = max(0.6 * gap, 0.12 * (logs[-1] - logs[0]))
    axes.set_xlim(base ** (logs[0] - edge), base ** (logs[-1] + edge))
    _ticks(axes, numbers, labels)
    return [_logarithmic(number, base, gap) for number in numbers]


def _log_base(name: str) -> int | None:
    """2 for ranks, 10 for learning rates, None for everything else."""
    last = name.replace("=", ".").rpartition(".")[2].lower()
    if last in ("rank", "r", "lora_rank", "lora_r"):
        return 2
    return 10 if last == "lr" or last.endswith(("_lr", "learning_rate")) else None


def _linear(place: int) -> Callable[[float], float]:
    return lambda jitter: place + 0.3 * jitter


def _logarithmic(number: float, base: int, gap: float) -> Callable[[float], float]:
    return lambda jitter: number * base ** (0.3 * gap * jitter)


def _ticks(axes: Axes, places: Sequence[float], labels: Sequence[str]) -> None:
    """Labels stand slanted where they would touch; of very many, some are left out."""
    every = math.ceil(len(places) / _MOST_TICKS)
    places, labels = places[::every], labels[::every]
    shortened = [short(label, 18) for label in labels]
    axes.set_xticks(places, shortened)
    across = axes.transAxes.inverted().transform(axes.transData.transform([(place, 0) for place in places]))[:, 0]
    room = (WIDTH / columns_of(axes) - 0.8) / CHARACTER
    pairs = pairwise(sorted(zip(across, shortened, strict=True)))
    if all((right - left) * room > (len(one) + len(other)) / 2 + 1 for (left, one), (right, other) in pairs):
        return
    axes.tick_params(axis="x", labelrotation=40, labelsize=8)
    for label in axes.get_xticklabels():
        label.set_horizontalalignment("right")
        label.set_rotation_mode("anchor")
