"""report.html: one file that answers first, then shows what the answer rests on, and works without a network."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from ftx.analysis.verdicts import BETTER, DEGENERATE, NOT_ENOUGH_SEEDS, UNSTABLE, WITHIN_NOISE, WORSE
from ftx.config.values import shown
from ftx.effects.observations import COSTS
from ftx.effects.suggestions import Suggestion, suggestions
from ftx.effects.table import EffectRow, StudyEffects
from ftx.record.study_record import StudyRecord
from ftx.report.effects import COST_HEADINGS, HEADINGS, cells_of, cost_in_words, footer, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_OPEN_RUNS = 40
"""Longer lists of runs start folded."""
_PLOTS = {
    "intervals": (
        "Differences from the baseline",
        "Each arm's difference from the baseline with an interval; all intervals hold together. One that does not "
        "touch 0 is an effect. Without an interval the mark is hollow.",
    ),
    "main_effects": (
        "Main effects",
        "The mean at each level, and every run. These intervals are of one mean alone: use the plot above to compare.",
    ),
    "learning_curves": (
        "Learning curves",
        "Loss on validation while training. A run that did not finish is drawn to its end, and is in no mean.",
    ),
    "cost": ("What it costs", "Cost against result. A ring: clearly better than everything that costs no more."),
}


@dataclass(frozen=True)
class Section:
    """One plot on the page."""

    name: str
    title: str
    caption: str
    svg: Markup


@dataclass(frozen=True)
class Line:
    """A row of a table on the page; `kind` chooses its colour."""

    cells: Sequence[str]
    kind: str = ""


def html_report(
    effects: StudyEffects,
    study: StudyRecord | None,
    *,
    root: Path = Path(),
    drawn: "Mapping[str, Figure] | None" = None,
) -> str:
    """The page as text.

    Args:
        effects: the judged table.
        study: its record, for the commands; None: observations from a table or from loose runs.
        root: what run directories are relative to.
        drawn: the plots, where they are there already; else they are drawn.
    """
    from ftx.report.plots.files import figures, svg_of

    plots = figures(effects, root) if drawn is None else drawn
    observations = effects.observations
    return _template().render(
        title=f"{observations.name}: {observations.metric.name}",
        study=observations.name,
        metric=observations.metric.name,
        direction="higher is better" if observations.metric.higher_is_better else "lower is better",
        split=observations.split,
        design="all combinations" if observations.design == "factorial" else "one factor at a time",
        sentences=[(factor.name, answer(effects, factor.name)) for factor in observations.factors],
        sections=[
            Section(name, *_PLOTS[name], Markup(_inline(svg_of(figure, name), name))) for name, figure in plots.items()
        ],
        headings=HEADINGS,
        rows=_table(effects),
        cost_headings=["factor", "level", *(COST_HEADINGS[name] for name in _known_costs(effects))],
        cost_rows=_costs(effects),
        f_headings=["term", "F", "df", "p"],
        f_rows=_f_tests(effects),
        notes=list(footer(effects)),
        run_headings=_run_headings(effects),
        runs=_runs(effects),
        fold_runs=len(observations.rows) > MOST_OPEN_RUNS,
        problems=effects.problems,
        suggestions=[(each, _command(each)) for each in suggestions(effects, study)],
        launches=[(launch["date"], shlex.join(launch["command"])) for launch in study.launches] if study else [],
        aggregate=_aggregate(effects, study),
    )


# --- the answer


def answer(effects: StudyEffects, factor: str) -> str:
    """What is known of one factor, in one sentence."""
    rows = effects.factor_rows(factor)
    base = next((row for row in rows if row.is_baseline), None)
    others = [row for row in rows if not row.is_baseline]
    if not others:
        return f"{factor} has one level, so nothing can be said about it."
    baseline = shown(others[0].baseline) if base is None else shown(base.level)
    higher = effects.observations.metric.higher_is_better
    judged = sorted(others, key=lambda row: _rank(row, higher))
    parts = [
        _judgement(row, effects, f"the baseline {baseline}" if n == 0 else "the baseline")
        for n, row in enumerate(judged)
    ]
    return f"{'; '.join(parts)}."


_ORDER = (BETTER, WORSE, "equivalent", WITHIN_NOISE, UNSTABLE, DEGENERATE)


def _rank(row: EffectRow, higher_is_better: bool) -> tuple[int, float]:
    """Effects first, the best one foremost."""
    word = row.verdict or ""
    place = next((n for n, each in enumerate(_ORDER) if word.startswith(each)), len(_ORDER))
    gain = (row.effect or 0.0) * (1 if higher_is_better else -1)
    return place, -gain


def _judgement(row: EffectRow, effects: StudyEffects, baseline: str) -> str:
    """One level against the baseline, which is named once."""
    level, word, metric = shown(row.level), row.verdict or "", effects.observations.metric.name
    seen = "" if row.effect is None else f" (difference {row.effect:+.4g}, n {row.n_ok})"
    if word in (BETTER, WORSE):
        return f"{level} is {word} than {baseline}: {metric} {_moved(row, effects)}"
    if word.startswith("equivalent"):
        return f"{level} and {baseline} are equivalent within {effects.options.margin or 0:g}{seen}"
    if word == WITHIN_NOISE:
        could = row.smallest_detectable_effect
        power = "" if could is None else f"; this study finds differences from about {could:.2g} on"
        return f"{level} cannot be told from {baseline}{seen}{power}"
    if word.startswith(UNSTABLE):
        who = level if row.n_failed else f"the baseline {shown(row.baseline)}, and so the comparison with {level},"
        share = word.removeprefix(UNSTABLE).removesuffix("(baseline)").strip().replace("/", " of ")
        return f"{who} is unstable: {share} runs failed, so no effect is claimed"
    if word == DEGENERATE:
        return f"{level} and {baseline} gave the very same results: {row.reason or 'the same setting'}"
    if word == NOT_ENOUGH_SEEDS:
        return f"{level} has not enough seeds for a verdict{seen}"
    return f"nothing is claimed about {level}: {row.reason or 'no run of it finished'}"


def _moved(row: EffectRow, effects: StudyEffects) -> str:
    """By how much, with the interval; the sign in words."""
    effect = row.effect or 0.0
    direction = "higher" if effect > 0 else "lower"
    if row.ci_low is None or row.ci_high is None:
        return f"is {direction} by {number(abs(effect))}"
    low, high = sorted((abs(row.ci_low), abs(row.ci_high)))
    level = 1 - effects.options.alpha / effects.options.looks
    interval = f"{100 * level:.3g}% interval {number(low)} to {number(high)}"
    return f"is {direction} by {number(abs(effect))} ({interval}, n {row.n_ok})"


# --- tables


def _table(effects: StudyEffects) -> list[Line]:
    return [Line(cells_of(row), _kind(row)) for row in _rows(effects)]


def _kind(row: EffectRow) -> str:
    if row.is_baseline:
        return "baseline"
    return row.verdict if row.verdict in (BETTER, WORSE) else ""


def _rows(effects: StudyEffects) -> list[EffectRow]:
    return [row for factor in effects.observations.factors for row in effects.factor_rows(factor.name)]


def _known_costs(effects: StudyEffects) -> list[str]:
    return [name for name in COSTS if any(row.cost.get(name) is not None for row in effects.rows)]


def _costs(effects: StudyEffects) -> list[Line]:
    names = _known_costs(effects)
    if not names:
        return []
    return [
        Line(
            [row.factor, shown(row.level), *(cost_in_words(name, row.cost.get(name)) for name in names)],
            "baseline" if row.is_baseline else "",
        )
        for row in _rows(effects)
    ]


def _f_tests(effects: StudyEffects) -> list[Line]:
    return [
        Line(
            [
                str(test["term"]),
                number(test["f"]),
                f"{test['df1']}, {test['df2']}",
                "" if test["p"] is None else f"{test['p']:.2g}",
            ]
        )
        for test in effects.f_tests
    ]


def _run_headings(effects: StudyEffects) -> list[str]:
    observations = effects.observations
    names = [factor.name for factor in observations.factors]
    return [*names, "replicate", "status", observations.metric.name, "run directory"]


def _runs(effects: StudyEffects) -> list[Line]:
    observations = effects.observations
    return [
        Line(
            [
                *(shown(run.levels[factor.name]) for factor in observations.factors),
                shown(run.replicate),
                run.status,
                number(run.value),
                run.run or "",
            ],
            "" if run.status in ("finished", "ok") else "unsuccessful",
        )
        for run in observations.rows
    ]


# --- commands


def _command(suggestion: Suggestion) -> str:
    return "" if suggestion.command is None else shlex.join(suggestion.command)


def _aggregate(effects: StudyEffects, study: StudyRecord | None) -> str:
    """The command that makes this table again; empty where it is not known."""
    if study is None:
        return ""
    options = effects.options
    words = ["python", "scripts/aggregate.py", "--study", study.study]
    words += [] if options.margin is None else ["--margin", f"{options.margin:g}"]
    words += [] if options.alpha == 0.05 else ["--alpha", f"{options.alpha:g}"]
    words += [] if options.family == "study" else ["--family", options.family]
    words += [] if options.looks == 1 else ["--looks", str(options.looks)]
    return shlex.join(words)


# --- the page


@cache
def _template() -> Template:
    text = (resources.files("ftx.report") / "report.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(text)


def _inline(svg: str, name: str) -> str:
    """An SVG file as part of a page: ids of its own, nothing that names a server.

    Its colours stay as drawn, on paper of its own also on a dark page: not every viewer resolves a page's variables
    in a picture.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\s(?:xmlns(?::\w+)?)="[^"]*"', "", svg)
    svg = svg.replace("xlink:href=", "href=")
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    return re.sub(r'<svg\b[^>]*?(viewBox="[^"]*")[^>]*>', rf'<svg \1 role="img" aria-label="{_PLOTS[name][0]}">', svg)
