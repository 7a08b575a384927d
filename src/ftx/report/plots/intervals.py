"""A row an arm: its difference from the baseline, with interval, seeds, verdict and n."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ftx.config.values import shown
from ftx.effects.observations import FactorLevels
from ftx.effects.table import EffectRow, StudyEffects
from ftx.report.plots.canvas import (
    BETTER_COLOUR,
    INK,
    LONGEST,
    MUTED,
    NOISE_COLOUR,
    PAPER,
    WIDTH,
    WORSE_COLOUR,
    new_figure,
    short,
    style,
)
from ftx.report.plots.runs import paired_differences, towards


def interval_plot(effects: StudyEffects) -> Figure | None:
    """A row an arm: difference from the baseline, its simultaneous interval, differences seed by seed, verdict, n."""
    groups = [
        (factor, [row for row in effects.factor_rows(factor.name) if not row.is_baseline])
        for factor in effects.observations.factors
    ]
    groups = [(factor, rows) for factor, rows in groups if rows]
    if not any(row.effect is not None for _, rows in groups for row in rows):
        return None
    with style():
        return _interval_figure(effects, groups)


def _interval_figure(effects: StudyEffects, groups: Sequence[tuple[FactorLevels, list[EffectRow]]]) -> Figure:
    lines = sum(len(rows) + 1 for _, rows in groups)
    height = 1.25 + 0.27 * lines
    figure = new_figure(height)
    labels = [shown(row.level) for _, rows in groups for row in rows]
    left = 0.35 + 0.077 * min(LONGEST, max([6, *map(len, labels)]))
    right = 0.75 + 0.073 * max([6, *(len(_verdict_words(row)) for _, rows in groups for row in rows)])
    axes = figure.add_axes((left / WIDTH, 0.62 / height, (WIDTH - left - right) / WIDTH, (height - 1.1) / height))
    axes.axvline(0, color=MUTED, linewidth=1, zorder=1)
    position = 0
    ticks = []
    for factor, rows in groups:
        heading = f"{short(factor.name, 40)}  (baseline {short(shown(factor.baseline), 28)})"
        axes.text(
            -(left - 0.12) / (WIDTH - left - right),
            position,
            heading,
            transform=axes.get_yaxis_transform(),
            va="center",
            weight="bold",
            zorder=5,
            bbox={"facecolor": PAPER, "linewidth": 0, "pad": 1.5},
        )
        if position:
            axes.axhline(position - 0.5, color=MUTED, linewidth=0.4, alpha=0.5, xmin=-1, xmax=2)
        position += 1
        for row in rows:
            ticks.append((position, short(shown(row.level))))
            _interval_row(axes, effects, row, position)
            position += 1
    axes.set_ylim(position - 0.5, -0.5)
    axes.set_yticks([at for at, _ in ticks], [label for _, label in ticks])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.margins(x=0.06)
    axes.set_xlabel(f"{short(effects.observations.metric.name, 40)}: difference from the baseline ({towards(effects)})")
    level = 1 - effects.options.alpha / effects.options.looks
    figure.text(
        0.12 / WIDTH,
        1 - 0.12 / height,
        f"Difference and simultaneous {_percent(level)} interval; small: seed by seed; hollow: no interval",
        va="top",
        fontsize=8,
        color=MUTED,
    )
    return figure


def _percent(level: float) -> str:
    return f"{100 * level:.3g}%"


def _interval_row(axes: Axes, effects: StudyEffects, row: EffectRow, y: float) -> None:
    colour = _verdict_colour(row)
    seeds = paired_differences(effects, row)
    if row.effect is not None:
        axes.plot(seeds, [y] * len(seeds), "|", color=NOISE_COLOUR, alpha=0.75, markersize=12, zorder=2, label="_seeds")
        known = row.ci_low is not None and row.ci_high is not None
        if row.ci_low is not None and row.ci_high is not None:
            axes.plot([row.ci_low, row.ci_high], [y, y], "-", color=colour, linewidth=2, zorder=3, label="_interval")
        axes.plot(
            [row.effect],
            [y],
            "o",
            color=colour,
            markerfacecolor=colour if known else PAPER,
            markersize=6,
            markeredgewidth=1.4,
            zorder=4,
            label="_effect",
        )
    axes.text(
        1.02,
        y,
        f"{_verdict_words(row)}  n={row.n_ok}/{row.n_planned}",
        transform=axes.get_yaxis_transform(),
        va="center",
        fontsize=8,
        color=colour if row.verdict in ("better", "worse") else INK,
    )


def _verdict_words(row: EffectRow) -> str:
    return short(row.verdict or ("no effect" if row.effect is None else "no verdict"))


def _verdict_colour(row: EffectRow) -> str:
    return {"better": BETTER_COLOUR, "worse": WORSE_COLOUR}.get(row.verdict or "", NOISE_COLOUR)
