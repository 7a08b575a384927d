"""The table of effects for people, papers and machines."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ftx.config.values import shown
from ftx.effects.observations import COSTS
from ftx.effects.table import EffectRow, StudyEffects
from ftx.record.strict_json import dumps
from ftx.report.console import say

FORMATS = ("terminal", "json", "csv", "markdown", "latex")
_COUNTED = ("left_out: of no trial of this study", "left_out: foreign")  # their number is enough on a terminal
HEADINGS = ("factor", "level", "n", "mean", "difference", "interval", "p", "verdict", "could find, seeds")
_MARKS = {"better": "$\\uparrow$", "worse": "$\\downarrow$", "within noise": "$\\approx$", "not enough seeds": "?"}


def print_effects(found: Sequence[StudyEffects], kind: str, console: Console) -> None:
    """Print every table in the given format; only that on stdout."""
    if kind == "terminal":
        say(console, *(part for effects in found for part in terminal(effects)))
        return
    if kind == "json":
        data = [as_json(effects) for effects in found]
        print(dumps(data[0] if len(data) == 1 else data, indent=2))
        return
    if kind == "csv":
        texts = [effects_csv(effects) for effects in found]
        rest = (text.partition("\n")[2] for text in texts[1:])  # one heading for all studies
        print(texts[0], *rest, sep="", end="")
        return
    print("\n".join({"markdown": markdown, "latex": latex}[kind](effects) for effects in found), end="")


def write_effects(effects: StudyEffects, folder: Path) -> list[Path]:
    """Write tables in every format; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "effects.json": dumps(as_json(effects), indent=2) + "\n",
        "effects.csv": effects_csv(effects),
        "runs.csv": runs_csv(effects),
        "report.md": markdown(effects),
        "table.tex": latex(effects),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def as_json(effects: StudyEffects) -> dict[str, Any]:
    """Everything, unrounded; null where unknown."""
    observations = effects.observations
    return {
        "study": observations.name,
        "design": observations.design,
        "metric": {**asdict(observations.metric), "split": observations.split},
        "alpha": effects.options.alpha,
        "family": effects.options.family,
        "looks": effects.options.looks,
        "margin": effects.options.margin,
        "s": effects.s,
        "df": effects.df,
        "effects": [_row_as_json(row) for row in effects.rows],
        "f_tests": [dict(test) for test in effects.f_tests],
        "seed_correlation": effects.seed_correlation,
        "sd_ratio": effects.sd_ratio,
        "problems": [{"kind": p.kind, "detail": p.detail, "runs": list(p.runs)} for p in effects.problems],
    }


def _row_as_json(row: EffectRow) -> dict[str, Any]:
    return {entry.name: _plain(getattr(row, entry.name)) for entry in fields(row)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def terminal(effects: StudyEffects) -> Iterator[Any]:
    """What is not comparable first, then the table, then how to read it."""
    yield from (f"{problem.kind}: {problem.detail}" for problem in effects.problems if problem.kind not in _COUNTED)
    yield _table(effects)
    if any(value is not None for row in effects.rows for value in row.cost.values()):
        yield _cost_table(effects)
    yield from footer(effects)


def _table(effects: StudyEffects) -> Table:
    observations = effects.observations
    direction = "higher is better" if observations.metric.higher_is_better else "lower is better"
    where = f" on {observations.split}" if observations.split else ""
    table = Table(
        title=Text(f"{observations.name}: {observations.metric.name}{where}, {direction}"), title_justify="left"
    )
    for heading in HEADINGS:
        text = heading in ("factor", "level", "verdict")
        table.add_column(heading, justify="left" if text else "right", overflow="fold")
    for factor in observations.factors:
        for row in effects.factor_rows(factor.name):
            table.add_row(*map(Text, cells_of(row)), style="dim" if row.is_baseline else None)
        table.add_section()
    return table


def _cost_table(effects: StudyEffects) -> Table:
    """What each level costs: means over its runs."""
    table = Table(title="What it costs, a run", title_justify="left")
    table.add_column("factor", overflow="fold")
    table.add_column("level", overflow="fold")
    costs = [name for name in COSTS if any(row.cost[name] is not None for row in effects.rows)]
    for name in costs:
        table.add_column(COST_HEADINGS[name], justify="right")
    for factor in effects.observations.factors:
        for row in effects.factor_rows(factor.name):
            cells = (row.factor, shown(row.level), *(cost_in_words(name, row.cost[name]) for name in costs))
            table.add_row(*map(Text, cells), style="dim" if row.is_baseline else None)
        table.add_section()
    return table


COST_HEADINGS = {
    "train_rows": "training rows",
    "seconds": "seconds",
    "tokens_per_second": "tokens/s",
    "peak_memory_bytes": "peak MiB",
    "trainable_parameters": "trainable parameters",
}


def cells_of(row: EffectRow) -> list[str]:
    """The cells under HEADINGS, rounded for people."""
    counts = f"{row.n_ok}/{row.n_planned}"
    if row.n_failed or row.n_missing:
        counts += f" ({row.n_failed} failed, {row.n_missing} missing)"
    interval = "" if row.ci_low is None or row.ci_high is None else f"{number(row.ci_low)} .. {number(row.ci_high)}"
    return [
        row.factor,
        shown(row.level),
        counts,
        number(row.mean),
        "" if row.effect is None else f"{row.effect:+.4g}",
        interval,
        "" if row.p_adjusted is None else p_value(row.p_adjusted),
        "baseline" if row.is_baseline else verdict_in_words(row),
        power_in_words(row),
    ]


def verdict_in_words(row: EffectRow) -> str:
    """The verdict, or why there is none."""
    return f"{row.verdict}: {row.reason}" if row.verdict and row.reason else row.verdict or row.reason or ""


def power_in_words(row: EffectRow) -> str:
    """Of a row within noise: the smallest effect that this study could have found, and seeds that find the one seen."""
    if row.verdict != "within noise" or row.smallest_detectable_effect is None:
        return ""
    return f"{row.smallest_detectable_effect:.2g}, {row.seeds_needed if row.seeds_needed is not None else '?'} seeds"


def number(value: float | None) -> str:
    """Four significant digits."""
    return "" if value is None else f"{value:.4g}"


def p_value(p: float) -> str:
    """Two digits; tiny ones as a bound."""
    return "<1e-4" if p < 1e-4 else f"{p:.2g}"


def cost_in_words(name: str, value: float | None) -> str:
    """A cost in the unit of its heading."""
    if value is None:
        return ""
    return (
        f"{value / 2**20:,.0f}"
        if name == "peak_memory_bytes"
        else f"{value:,.1f}"
        if name == "seconds"
        else f"{value:,.0f}"
    )


def footer(effects: StudyEffects) -> Iterator[str]:
    """How many runs, how intervals were made, and what to know of the noise."""
    observations = effects.observations
    with_run = {row.run for row in observations.rows if row.run}
    runs = with_run or [row for row in observations.rows if row.status != "missing"]
    comparisons = sum(not row.is_baseline for row in effects.rows)
    family = "all" if effects.options.family == "study" else "within each factor"
    level = effects.options.alpha / effects.options.looks
    yield (
        f"{len(runs)} different runs (the baseline is shared by the factors). Intervals hold together with "
        f"{1 - level:.1%} ({comparisons} comparisons, adjusted {family}); p is adjusted alike."
    )
    if effects.s is not None and effects.df is not None:
        parts = [f"Noise: residual sd {effects.s:.4g} with {effects.df} degrees of freedom"]
        if effects.seed_correlation is not None:
            parts.append(f"seeds correlate by {effects.seed_correlation:.2f}")
        if effects.sd_ratio is not None:
            parts.append(f"largest arm sd over smallest {effects.sd_ratio:.1f}")
        yield "; ".join(parts) + "."
    if observations.split == "validation":
        yield "No test split: checkpoints were selected and measured on the same rows."
    arms = sum(not row.is_baseline for row in effects.rows)
    if arms > 1 and any(row.verdict == "better" for row in effects.rows):
        yield f"The best of {arms} arms is chosen among {arms}: its value is too good by chance."
    if effects.seeds_for_margin is not None:
        yield f"Seeds to find an effect as large as the margin: {effects.seeds_for_margin}."


def effects_csv(effects: StudyEffects) -> str:
    """One line a row of the table, unrounded; lists and costs in columns of their own."""
    out = io.StringIO()
    names = [
        entry.name for entry in fields(EffectRow) if entry.name not in ("cost", "secondary", "values", "replicates")
    ]
    secondary = effects.observations.secondary_names
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["study", *names, "values", *COSTS, *(f"{name}_{what}" for name in secondary for what in ("mean", "sd", "n"))]
    )
    for row in effects.rows:
        more = [row.secondary[name][what] for name in secondary for what in ("mean", "sd", "n")]
        values = json.dumps(list(row.values))
        writer.writerow(
            [
                effects.observations.name,
                *(_cell(getattr(row, name)) for name in names),
                values,
                *(_cell(row.cost[c]) for c in COSTS),
                *map(_cell, more),
            ]
        )
    return out.getvalue()


def runs_csv(effects: StudyEffects) -> str:
    """One line a planned run."""
    observations = effects.observations
    factors = [factor.name for factor in observations.factors]
    secondary = observations.secondary_names
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*factors, "replicate", "status", observations.metric.name, *secondary, *COSTS, "run"])
    for row in observations.rows:
        writer.writerow(
            [
                *(_cell(row.levels[name]) for name in factors),
                _cell(row.replicate),
                row.status,
                _cell(row.value),
                *(_cell(row.secondary.get(name)) for name in secondary),
                *(_cell(row.cost.get(name)) for name in COSTS),
                _cell(row.run),
            ]
        )
    return out.getvalue()


def _cell(value: Any) -> Any:
    return "" if value is None else shown(value) if isinstance(value, bool) else value


def markdown(effects: StudyEffects) -> str:
    """The table and what stands around it."""
    observations = effects.observations
    lines = [f"# {observations.name}: {observations.metric.name} ({observations.metric.direction})", ""]
    lines += [f"- {problem.kind}: {problem.detail}" for problem in effects.problems]
    lines += [""] if effects.problems else []
    headings = HEADINGS
    lines += [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    for factor in observations.factors:
        for row in effects.factor_rows(factor.name):
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells_of(row))} |")
    return "\n".join([*lines, "", *footer(effects), ""])


def latex(effects: StudyEffects) -> str:
    """Arms by metrics as papers print them: mean and sd, n in the caption, the verdict as a mark."""
    observations = effects.observations
    metrics = [observations.metric.name, *observations.secondary_names]
    counts = sorted({row.n_ok for row in effects.rows})
    n = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    level = f"{1 - effects.options.alpha / effects.options.looks:.4g}"
    level = f"{float(level):.1%}"
    marks = ", ".join(f"{mark} {word}" for word, mark in _MARKS.items())
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{_tex(observations.name)}: mean and standard deviation over n = {n} runs; {marks} against the "
        f"baseline in {_tex(metrics[0])} (Dunnett, simultaneous {_tex(level)}).}}",
        f"\\begin{{tabular}}{{ll{'r' * len(metrics)}c}}",
        "\\toprule",
        " & ".join(["factor", "level", *map(_tex, metrics), ""]) + r" \\",
        "\\midrule",
    ]
    for factor in observations.factors:
        for row in effects.factor_rows(factor.name):
            values = [
                _mean_sd(row.mean, row.sd),
                *(_mean_sd(row.secondary[m]["mean"], row.secondary[m]["sd"]) for m in metrics[1:]),
            ]
            mark = "base" if row.is_baseline else _MARKS.get(row.verdict or "", _tex(row.verdict or ""))
            lines.append(" & ".join([_tex(row.factor), _tex(shown(row.level)), *values, mark]) + r" \\")
        lines.append("\\midrule")
    lines[-1] = "\\bottomrule"
    return "\n".join([*lines, "\\end{tabular}", "\\end{table}", ""])


def _mean_sd(mean: float | None, sd: float | None) -> str:
    if mean is None:
        return "--"
    return f"${mean:.4g}$" if sd is None else f"${mean:.4g} \\pm {sd:.2g}$"


_TEX = str.maketrans(
    {char: f"\\{char}" for char in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
)


def _tex(text: str) -> str:
    return text.translate(_TEX)
