"""The plots of a study: intervals, main effects, learning curves, cost. Nothing here touches pyplot or its state.

Every function returns a Figure, or None where there is nothing to draw. Colours are Okabe and Ito's, which people with
any colour vision tell apart; lightness, shape and words say the same again.
"""

import io
import math
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullLocator
from scipy.special import stdtrit

from ftx.analysis.outcomes import outcome
from ftx.config.values import shown
from ftx.design.plan import BASELINE
from ftx.effects.observations import FactorLevels, Observation, as_number, same_level
from ftx.effects.table import EffectRow, StudyEffects
from ftx.record.history import read_history
from ftx.record.layout import RunDir

INK, MUTED, PAPER = "#1f2329", "#767c84", "#fefefd"
"""Text, quiet text and background."""
BETTER_COLOUR, WORSE_COLOUR, NOISE_COLOUR = "#2a86c8", "#d55e00", "#868c93"
COLOURS = ("#2a86c8", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
WIDTH = 8.0
DOTS_PER_INCH = 100
MOST_CURVES = 400
MOST_LABELLED = 14
_MOST_TICKS = 24
_LONGEST = 34  # characters of a level in a plot
_CHARACTER = 0.078
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
_COSTS = {
    "trainable_parameters": ("trainable parameters", 1.0, 0.01),
    "seconds": ("seconds a run", 1.0, 0.05),
    "peak_memory_bytes": ("peak memory, MiB", 2.0**20, 0.02),
}
"""Label, unit, and the share by which two costs must differ not to count as the same."""


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
        with _style():
            figure.savefig(folder / f"{name}.png", dpi=2 * DOTS_PER_INCH, metadata={"Software": None})
        written += [folder / f"{name}.svg", folder / f"{name}.png"]
    return written


@lru_cache(maxsize=8)  # the file and the report show the same picture
def svg_of(figure: Figure, name: str) -> str:
    """The figure as SVG, the same text every time."""
    out = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with _style(), matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(out, format="svg", metadata=nothing)
    return out.getvalue()


@contextmanager
def _style() -> Iterator[None]:
    ours = {**matplotlib.rcParamsDefault, "backend": matplotlib.rcParams["backend"], **_STYLE}
    with matplotlib.rc_context(ours), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes; the tables have it in full.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _figure(height: float) -> Figure:
    figure = Figure(figsize=(WIDTH, height), dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    return figure


# --- intervals


def interval_plot(effects: StudyEffects) -> Figure | None:
    """A row an arm: difference from the baseline, its simultaneous interval, differences seed by seed, verdict, n."""
    groups = [
        (factor, [row for row in effects.factor_rows(factor.name) if not row.is_baseline])
        for factor in effects.observations.factors
    ]
    groups = [(factor, rows) for factor, rows in groups if rows]
    if not any(row.effect is not None for _, rows in groups for row in rows):
        return None
    with _style():
        return _interval_figure(effects, groups)


def _interval_figure(effects: StudyEffects, groups: Sequence[tuple[FactorLevels, list[EffectRow]]]) -> Figure:
    lines = sum(len(rows) + 1 for _, rows in groups)
    height = 1.25 + 0.27 * lines
    figure = _figure(height)
    labels = [shown(row.level) for _, rows in groups for row in rows]
    left = 0.35 + 0.077 * min(_LONGEST, max([6, *map(len, labels)]))
    right = 0.75 + 0.073 * max([6, *(len(_verdict_words(row)) for _, rows in groups for row in rows)])
    axes = figure.add_axes((left / WIDTH, 0.62 / height, (WIDTH - left - right) / WIDTH, (height - 1.1) / height))
    axes.axvline(0, color=MUTED, linewidth=1, zorder=1)
    position = 0
    ticks = []
    for factor, rows in groups:
        heading = f"{_short(factor.name, 40)}  (baseline {_short(shown(factor.baseline), 28)})"
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
            ticks.append((position, _short(shown(row.level))))
            _interval_row(axes, effects, row, position)
            position += 1
    axes.set_ylim(position - 0.5, -0.5)
    axes.set_yticks([at for at, _ in ticks], [label for _, label in ticks])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.margins(x=0.06)
    axes.set_xlabel(
        f"{_short(effects.observations.metric.name, 40)}: difference from the baseline ({_towards(effects)})"
    )
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
    return _short(row.verdict or ("no effect" if row.effect is None else "no verdict"))


def _verdict_colour(row: EffectRow) -> str:
    return {"better": BETTER_COLOUR, "worse": WORSE_COLOUR}.get(row.verdict or "", NOISE_COLOUR)


def _towards(effects: StudyEffects) -> str:
    return "higher is better" if effects.observations.metric.higher_is_better else "lower is better"


def runs_of(effects: StudyEffects, row: EffectRow) -> list[Observation]:
    """The planned runs that a row is about: one at a time the arm's, in a factorial all with that level."""
    observations = effects.observations
    mine = [each for each in observations.rows if same_level(each.levels[row.factor], row.level)]
    if observations.design == "factorial":
        return mine
    wanted = 0 if row.is_baseline else 1
    return [each for each in mine if len(observations.arm(each)) == wanted]


def paired_differences(effects: StudyEffects, row: EffectRow) -> list[float]:
    """Each finished run minus the baseline level's run that is otherwise equal and has the same replicate."""

    def identity(run: Observation) -> tuple[Hashable, ...]:
        others = (shown(level) for name, level in run.levels.items() if name != row.factor)
        return (str(run.replicate), *others)

    base = {
        identity(run): run.value
        for run in effects.observations.rows
        if same_level(run.levels[row.factor], row.baseline) and _ok(run)
    }
    found = []
    for run in runs_of(effects, row):
        reference = base.get(identity(run))
        if _ok(run) and run.value is not None and reference is not None:
            found.append(run.value - reference)
    return found


def _ok(run: Observation) -> bool:
    return outcome(run.status, run.value) == "ok"


def _short(text: str, longest: int = _LONGEST) -> str:
    """Long names lose their middle; beginning and end tell names apart."""
    text = " ".join(text.split())
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 2
    return f"{text[: longest - 1 - tail]}…{text[-tail:]}"


# --- main effects


def main_effects_plot(effects: StudyEffects) -> Figure | None:
    """A panel a factor on one y axis: marginal means with intervals, runs, grand mean, failures on the floor."""
    factors = [factor for factor in effects.observations.factors if effects.factor_rows(factor.name)]
    if not factors or not any(row.values for row in effects.rows):
        return None
    with _style():
        figure, panels = _panels(len(factors), height=2.7, share_y=True)
        grand = _grand_mean(effects)
        for axes, factor in zip(panels, factors, strict=True):
            _main_effect(axes, effects, factor)
            if grand is not None:
                axes.axhline(grand, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1, label="_grand_mean")
        _label_y(panels, _short(effects.observations.metric.name))
        handles: list[Any] = [
            _mark("o", BETTER_COLOUR, "mean, 95% interval of that mean alone", line=True),
            _mark("o", BETTER_COLOUR, "mean without interval", hollow=True),
            _mark(".", NOISE_COLOUR, "run"),
            Line2D([], [], color=MUTED, linestyle=(0, (4, 3)), label="grand mean"),
        ]
        if any(row.n_failed for row in effects.rows):
            handles.append(_mark("x", WORSE_COLOUR, "failed run"))
        _legend(figure, handles)
    return figure


def _main_effect(axes: Axes, effects: StudyEffects, factor: FactorLevels) -> None:
    rows = sorted(effects.factor_rows(factor.name), key=lambda row: _order(factor, row.level))
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
    axes.set_xlabel(_fitting(axes, factor.name))
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
    values = [run.value for run in effects.observations.rows if _ok(run) and run.value is not None]
    return fmean(values) if values else None


def _jitter(number: int) -> float:
    """A place within -0.5 .. 0.5 for the nth point, spread by the golden ratio: the same every time."""
    return (0.5 + 0.6180339887 * (number + 1)) % 1.0 - 0.5


def _order(factor: FactorLevels, level: Hashable) -> tuple[float, int]:
    """Numbers by size, everything else as the study has it."""
    numbers = [as_number(each) for each in factor.levels]
    place = next((n for n, each in enumerate(factor.levels) if same_level(each, level)), len(factor.levels))
    own = as_number(level)
    return (own if own is not None and None not in numbers else 0.0, place)


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
    short = [_short(label, 18) for label in labels]
    axes.set_xticks(places, short)
    across = axes.transAxes.inverted().transform(axes.transData.transform([(place, 0) for place in places]))[:, 0]
    room = (WIDTH / _columns(axes) - 0.8) / _CHARACTER
    pairs = pairwise(sorted(zip(across, short, strict=True)))
    if all((right - left) * room > (len(one) + len(other)) / 2 + 1 for (left, one), (right, other) in pairs):
        return
    axes.tick_params(axis="x", labelrotation=40, labelsize=8)
    for label in axes.get_xticklabels():
        label.set_horizontalalignment("right")
        label.set_rotation_mode("anchor")


def _columns(axes: Axes) -> int:
    spec = axes.get_subplotspec()
    return 1 if spec is None else spec.get_gridspec().ncols


def _fitting(axes: Axes, text: str) -> str:
    """No longer than a panel is wide."""
    return _short(text, int((WIDTH / _columns(axes) - 0.5) / _CHARACTER))


def _panels(count: int, *, height: float, share_y: bool) -> tuple[Figure, list[Axes]]:
    """Up to three panels a line; the figure finds room for its labels and legend."""
    columns = min(3, count) if count != 4 else 2
    lines = math.ceil(count / columns)
    figure = _figure(height * lines + 0.25)
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.08)
    grid = figure.subplots(lines, columns, sharey=share_y, squeeze=False)
    panels = list(grid.flat)
    for spare in panels[count:]:
        spare.remove()
    return figure, panels[:count]


def _label_y(panels: Sequence[Axes], label: str) -> None:
    for axes in panels:
        spec = axes.get_subplotspec()
        if spec is not None and spec.is_first_col():
            axes.set_ylabel(label)


def _mark(marker: str, colour: str, label: str, *, hollow: bool = False, line: bool = False) -> Line2D:
    return Line2D(
        [],
        [],
        color=colour,
        marker=marker,
        linestyle="-" if line else "",
        markerfacecolor=PAPER if hollow else colour,
        label=label,
    )


def _legend(figure: Figure, handles: Sequence[Any]) -> None:
    """Below the panels; the figure grows by it."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    fitting = max(1, min(len(handles), int(105 / (longest + 9))))
    lines = math.ceil(len(handles) / fitting)
    figure.set_size_inches(WIDTH, figure.get_figheight() + 0.18 * lines)
    figure.legend(handles=list(handles), loc="outside lower left", ncols=fitting, fontsize=8)


# --- learning curves


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
    with _style():
        figure, panels = _panels(len(factors), height=2.9, share_y=True)
        tallest = 0
        for axes, factor in zip(panels, factors, strict=True):
            rows = sorted(effects.factor_rows(factor.name), key=lambda row: _order(factor, row.level))
            others = [row.level for row in rows if not row.is_baseline]
            for row in rows:
                mine = [curves[id(run)] for run in runs_of(effects, row) if id(run) in curves]
                _curves_of_level(axes, mine, _level_style(row, others), _level_label(row))
            axes.set_title(_fitting(axes, factor.name), loc="left")
            axes.set_xlabel("optimiser step")
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            longest = max(len(_level_label(row)) for row in rows)
            columns = max(1, min(len(rows), int(WIDTH / _columns(axes) / 0.07 / (longest + 7))))
            tallest = max(tallest, math.ceil(len(rows) / columns))
            axes.legend(fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns)
        rows_of_panels = math.ceil(len(panels) / _columns(panels[0]))
        figure.set_size_inches(WIDTH, figure.get_figheight() + 0.2 * tallest * rows_of_panels)
        _limit(panels, list(curves.values()))
        _label_y(panels, "loss on validation")
        handles: list[Any] = [
            Line2D([], [], color=INK, linewidth=2.2, label="mean of the finished seeds"),
            Line2D([], [], color=INK, linewidth=0.7, alpha=0.5, label="a seed"),
            Patch(color=INK, alpha=0.15, linewidth=0, label="band: lowest to highest seed"),
        ]
        if any(curve.outcome != "ok" for curve in curves.values()):
            handles.append(_mark("X", INK, "ends here: diverged, failed or not finished"))
        _legend(figure, handles)
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
    return _short(shown(row.level), 22) + (" (baseline)" if row.is_baseline else "")


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


# --- cost


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
    with _style():
        figure, panels = _panels(len(varied), height=3.0, share_y=True)
        fronts = False
        for axes, (name, priced) in zip(panels, varied.items(), strict=True):
            fronts = _cost_panel(axes, effects, name, priced) or fronts
        metric = _short(effects.observations.metric.name)
        _label_y(panels, f"{metric} ({_towards(effects)})")
        _legend(figure, _cost_legend(next(iter(varied.values())), fronts))
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
            handles.append(_mark(marker, colour, _short(each.label, 44), hollow=each.low is None))
    else:
        names = {(BASELINE if each.label == BASELINE else each.row.factor): styles[each.label] for each in priced}
        for name, (colour, marker) in names.items():
            handles.append(_mark("*" if marker == "*" else "o", colour, _short(name, 44)))
    if fronts:
        ring = _mark("o", INK, "front: better than all that costs no more", hollow=True)
        ring.set_markersize(10)
        handles.append(ring)
    return handles
