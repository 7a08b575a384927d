"""What stands where in the plots."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ftx.effects.observations import FactorLevels, Metric, Observation, Observations
from ftx.effects.table import Options, StudyEffects, effects_of
from ftx.report.plots.canvas import PAPER
from ftx.report.plots.cost import Priced, cost_plot, front, priced_arms
from ftx.report.plots.files import figures, svg_of, write_plots
from ftx.report.plots.intervals import interval_plot
from ftx.report.plots.learning_curves import learning_curves_plot, read_curve
from ftx.report.plots.main_effects import main_effects_plot
from ftx.report.plots.runs import paired_differences

BASE = [0.700, 0.704, 0.696, 0.702, 0.698]
BETTER = [0.750, 0.756, 0.745, 0.752, 0.747]
FAILED = [0.720, 0.730, "diverged", "out_of_memory", 0.710]


def judged(
    arms: Sequence[tuple[dict[str, object], Sequence[object]]],
    factors: Sequence[FactorLevels],
    design: str = "ofat",
    parameters: dict[object, float] | None = None,
) -> StudyEffects:
    """A table of arms: the levels that differ from the baseline, and a value or a status by seed."""
    rows = []
    for levels, results in arms:
        for seed, result in enumerate(results):
            whole: dict[str, Hashable] = {each.name: levels.get(each.name, each.baseline) for each in factors}
            cost = {"trainable_parameters": parameters[next(iter(whole.values()))]} if parameters else {}
            ok = isinstance(result, float)
            rows.append(
                Observation(
                    levels=whole,
                    replicate=seed,
                    status="finished" if ok else str(result),
                    value=result if isinstance(result, float) else None,
                    cost=cost,
                )
            )
    observations = Observations(
        name="t", design=design, metric=Metric("accuracy", "max"), factors=tuple(factors), rows=tuple(rows)
    )
    return effects_of(observations, Options())


RANK = FactorLevels("lora.rank", (8, 16, 32), 16)
RATE = FactorLevels("optim.lr", ("2e-4", "1e-4"), "2e-4")


@pytest.fixture
def two_factors() -> StudyEffects:
    return judged(
        [({}, BASE), ({"lora.rank": 8}, FAILED), ({"lora.rank": 32}, BETTER), ({"optim.lr": "1e-4"}, BASE[::-1])],
        [RANK, RATE],
    )


def lines(axes: Axes, label: str) -> list[Line2D]:
    return [line for line in axes.get_lines() if line.get_label() == f"_{label}"]


def panel(figure: Figure | None, number: int = 0) -> Axes:
    assert figure is not None
    return figure.axes[number]


def hollow(line: Line2D) -> bool:
    return same_color(line.get_markerfacecolor(), PAPER)


def texts(axes: Axes) -> str:
    return "\n".join(text.get_text() for text in axes.texts)


def test_intervals_stand_at_the_effects(two_factors: StudyEffects) -> None:
    axes = panel(interval_plot(two_factors))
    rows = [row for row in two_factors.rows if not row.is_baseline]
    assert [line.get_xdata()[0] for line in lines(axes, "effect")] == pytest.approx([row.effect for row in rows])
    whiskers = [tuple(line.get_xdata()) for line in lines(axes, "interval")]
    assert whiskers == [(row.ci_low, row.ci_high) for row in rows if row.ci_low is not None]
    assert "baseline 16" in texts(axes)
    assert "better  n=5/5" in texts(axes)
    assert "unstable 2/5  n=3/5" in texts(axes)


def test_an_effect_without_an_interval_is_hollow(two_factors: StudyEffects) -> None:
    marks = lines(panel(interval_plot(two_factors)), "effect")
    assert [hollow(mark) for mark in marks] == [True, False, False]
    single = judged([({}, [0.7]), ({"lora.rank": 8}, [0.6])], [RANK])
    axes = panel(interval_plot(single))
    assert hollow(lines(axes, "effect")[0])
    assert not lines(axes, "interval")
    assert "not enough seeds  n=1/1" in texts(axes)


def test_differences_are_paired_by_seed(two_factors: StudyEffects) -> None:
    row = next(row for row in two_factors.rows if row.level == 8)
    assert paired_differences(two_factors, row) == pytest.approx([0.02, 0.026, 0.012])
    seeds = lines(panel(interval_plot(two_factors)), "seeds")[0]
    assert list(seeds.get_xdata()) == pytest.approx([0.02, 0.026, 0.012])


def test_in_a_factorial_pairs_agree_in_the_other_factors() -> None:
    cells = [
        ({"lora.rank": rank, "optim.lr": rate}, [value, value + 0.01, value - 0.005])
        for rank, rate, value in ((16, "2e-4", 0.5), (16, "1e-4", 0.4), (32, "2e-4", 0.6), (32, "1e-4", 0.47))
    ]
    effects = judged(cells, [replace(RANK, levels=(16, 32)), RATE], design="factorial")
    row = next(row for row in effects.rows if row.level == 32)
    assert sorted(paired_differences(effects, row)) == pytest.approx([0.07] * 3 + [0.1] * 3)
    means = lines(panel(main_effects_plot(effects)), "mean")
    assert [mean.get_ydata()[0] for mean in means] == pytest.approx([0.45 + 0.005 / 3, 0.535 + 0.005 / 3])


def test_main_effects_have_scales_means_runs_and_crosses(two_factors: StudyEffects) -> None:
    figure = main_effects_plot(two_factors)
    rank, rate = panel(figure), panel(figure, 1)
    assert (rank.get_xscale(), rate.get_xscale()) == ("log", "log")
    assert [vars(axes.xaxis.get_transform())["base"] for axes in (rank, rate)] == [2, 10]
    assert rank.get_ylim() == rate.get_ylim()
    means = {line.get_xdata()[0]: line for line in lines(rank, "mean")}
    assert list(means) == pytest.approx([8, 16, 32])
    assert means[16].get_ydata()[0] == pytest.approx(0.7)
    assert [hollow(mean) for mean in means.values()] == [True, False, False]
    assert sorted(lines(rank, "run")[1].get_ydata()) == sorted(BASE)
    assert [tick.get_text() for tick in rate.get_xticklabels()] == ["1e-4", "2e-4"]
    crosses = lines(rank, "failed")
    assert len(crosses) == 1
    assert list(crosses[0].get_ydata()) == [0.03, 0.03]
    assert np.abs(np.log2(np.asarray(crosses[0].get_xdata(), float)) - 3).max() < 0.2
    assert crosses[0].get_transform() == rank.get_xaxis_transform()
    grand = np.mean([*BASE, *BETTER, *BASE, 0.72, 0.73, 0.71])
    assert lines(rank, "grand_mean")[0].get_ydata()[0] == pytest.approx(grand)


def test_names_stand_side_by_side() -> None:
    factor = FactorLevels("scheduler", ("linear", "cosine"), "linear")
    axes = panel(main_effects_plot(judged([({}, BASE), ({"scheduler": "cosine"}, BETTER)], [factor])))
    assert axes.get_xscale() == "linear"
    assert [line.get_xdata()[0] for line in lines(axes, "mean")] == [0, 1]


def test_long_names_do_not_touch() -> None:
    levels = tuple(f"/prepared/corpora/version-{n}/mixture_{n}.jsonl" for n in range(12))
    factor = FactorLevels("data.$train_{path}$", levels, levels[0])
    arms = [({"data.$train_{path}$": level}, BASE) for level in levels]
    figure = main_effects_plot(judged(arms, [factor]))
    assert figure is not None
    figure.draw_without_rendering()
    labels = panel(figure).get_xticklabels()
    assert {label.get_rotation() for label in labels} == {40}
    intervals = interval_plot(judged(arms, [factor]))
    assert intervals is not None
    intervals.draw_without_rendering()
    boxes = [label.get_window_extent() for label in panel(intervals).get_yticklabels()]
    assert min(box.x0 for box in boxes) >= 0
    assert all(not one.overlaps(other) for one, other in pairwise(boxes))
    words = [text.get_window_extent() for text in panel(intervals).texts]
    assert max(box.x1 for box in words) <= intervals.bbox.x1


def with_curves(effects: StudyEffects, root: Path, curves: Sequence[Sequence[object]]) -> StudyEffects:
    rows = []
    for number, (row, curve) in enumerate(zip(effects.observations.rows, curves, strict=True)):
        (root / f"r{number}").mkdir()
        events = [
            {"step": 10 * n, "epoch": None, "split": "validation", "metrics": {"loss": loss}, "time": None}
            for n, loss in enumerate(curve)
        ]
        text = "".join(json.dumps(event) + "\n" for event in events)
        (root / f"r{number}" / "history.jsonl").write_text(text, encoding="utf-8")
        rows.append(replace(row, run=f"r{number}"))
    return replace(effects, observations=replace(effects.observations, rows=tuple(rows)))


def test_learning_curves_show_seeds_their_mean_and_a_diverged_end(tmp_path: Path) -> None:
    effects = judged([({}, [0.7, 0.8]), ({"lora.rank": 8}, [0.6, "diverged"])], [RANK])
    curves = [[1.0, 0.5, 0.4], [1.0, 0.7, 0.6], [1.0, 0.6, 0.5], [1.0, 40.0, "NaN"]]
    effects = with_curves(effects, tmp_path, curves)
    axes = panel(learning_curves_plot(effects, tmp_path))
    assert len(lines(axes, "seed")) == 4
    means = {str(line.get_label()): list(line.get_ydata()) for line in axes.get_lines() if line.get_linewidth() > 2}
    assert means["16 (baseline)"] == pytest.approx([1.0, 0.6, 0.5])
    assert means["8"] == pytest.approx([1.0, 0.6, 0.5])
    (end,) = lines(axes, "ended")
    assert list(end.get_xdata()) == [10]
    assert list(end.get_ydata()) == [axes.get_ylim()[1]]
    assert axes.get_ylim()[1] < 2
    curve = read_curve(effects.observations.rows[3], tmp_path)
    assert curve is not None
    assert curve.losses == (1.0, 40.0)
    assert "band: lowest to highest seed" in [text.get_text() for text in axes.figure.legends[0].get_texts()]


def test_cost_shows_arms_and_the_front() -> None:
    arms = [({}, BASE), ({"lora.rank": 8}, BASE[::-1]), ({"lora.rank": 32}, BETTER)]
    effects = judged(arms, [RANK], parameters={8: 1e5, 16: 2e5, 32: 4e5})
    axes = panel(cost_plot(effects))
    assert axes.get_xscale() == "log"
    assert [line.get_xdata()[0] for line in lines(axes, "arm")] == [2e5, 1e5, 4e5]
    assert [line.get_xdata()[0] for line in lines(axes, "front")] == [1e5, 4e5]
    assert priced_arms(effects, "trainable_parameters")[0].label == "baseline"
    assert cost_plot(judged(arms, [RANK], parameters={8: 2e5, 16: 2e5, 32: 2e5})) is None


@pytest.mark.parametrize(
    ("intervals", "names"),
    [
        ([(1, 0.5, 0.6), (2, 0.7, 0.8)], "ab"),
        ([(1, 0.5, 0.7), (2, 0.6, 0.8)], "a"),
        ([(1, 0.5, 0.6), (1, 0.7, 0.8)], "b"),
        ([(1, 0.5, 0.6), (1, 0.5, 0.6)], ""),
        ([(1, None, None), (2, 0.7, 0.8)], ""),
    ],
    ids=["apart", "touching", "same cost", "alike", "no interval"],
)
def test_the_front_needs_intervals_apart(
    two_factors: StudyEffects, intervals: list[tuple[float, float | None, float | None]], names: str
) -> None:
    row = two_factors.rows[0]
    arms = [Priced(name, row, cost, 0.0, low, high) for name, (cost, low, high) in zip("ab", intervals, strict=True)]
    assert "".join(each.label for each in front(arms, higher_is_better=True, tolerance=0.01)) == names


def test_files_are_what_they_say(two_factors: StudyEffects, tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    files = write_plots(two_factors, tmp_path / "plots")
    assert dict(matplotlib.rcParams) == before
    assert [path.name for path in files] == ["intervals.svg", "intervals.png", "main_effects.svg", "main_effects.png"]
    for path in files:
        if path.suffix == ".svg":
            assert ET.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        else:
            assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    figure = interval_plot(two_factors)
    assert figure is not None
    assert svg_of(figure, "intervals") == files[0].read_text(encoding="utf-8")


def test_nothing_to_draw() -> None:
    nothing = judged([({}, BASE)], [FactorLevels("lora.rank", (16,), 16)])
    assert interval_plot(nothing) is None
    assert list(figures(nothing)) == ["main_effects"]
    assert learning_curves_plot(nothing) is None
