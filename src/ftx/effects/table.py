"""From observations to the table of effects: one row a level of each factor, judged by `ftx.analysis`."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from ftx.analysis.effect_table import ArmRow, SeedsNeeded
from ftx.analysis.effects import Effect
from ftx.analysis.equivalence import equivalence_test
from ftx.analysis.factorial import FactorEffects, FactorialAnalysis, analyse_factorial
from ftx.analysis.interactions import SimpleEffects, matters
from ftx.analysis.looks import alpha_per_look, looks_note
from ftx.analysis.ofat import compare_arms
from ftx.analysis.outcomes import outcome
from ftx.analysis.power import detectable_noncentrality
from ftx.analysis.verdicts import NOT_ENOUGH_SEEDS, UNSTABLE, Evidence, verdict
from ftx.config.values import shown
from ftx.design.plan import BASELINE
from ftx.effects.observations import COSTS, FactorLevels, Observation, Observations, Problem, same_level

NO_VERDICT = "interaction"


@dataclass(frozen=True)
class Options:
    """How to judge. `looks`: times the table has been looked at; `family`: study, or factor."""

    margin: float | None = None
    alpha: float = 0.05
    family: str = "study"
    looks: int = 1


@dataclass(frozen=True, kw_only=True)
class EffectRow:
    """One level of one factor; unknown or withheld is None."""

    factor: str
    level: Hashable
    baseline: Hashable
    is_baseline: bool
    n_planned: int
    n_ok: int
    n_failed: int
    n_missing: int
    values: tuple[float, ...]
    mean: float | None
    sd: float | None
    effect: float | None
    se: float | None
    df: float | None
    ci_low: float | None
    ci_high: float | None
    p_adjusted: float | None
    verdict: str | None
    smallest_detectable_effect: float | None
    seeds_needed: SeedsNeeded
    cost: dict[str, float | None]
    """Means over the runs that have them, by the names in COSTS."""
    replicates: tuple[Hashable, ...]
    """Those of `values`, in the same order."""
    secondary: dict[str, dict[str, float | int | None]]
    """Mean, sd and n of each secondary metric; not tested."""
    reason: str | None = None
    """Why there is no effect or no verdict, in words."""


@dataclass(frozen=True, kw_only=True)
class StudyEffects:
    """The whole answer."""

    observations: Observations
    options: Options
    rows: tuple[EffectRow, ...]
    f_tests: tuple[dict[str, Any], ...] = ()
    s: float | None = None
    df: int | None = None
    seed_correlation: float | None = None
    sd_ratio: float | None = None
    seeds_for_margin: SeedsNeeded = None
    problems: tuple[Problem, ...] = ()
    marginal_means: Mapping[str, Mapping[Hashable, tuple[float, float | None]]] = field(default_factory=dict)
    """Mean and standard error of each level, for plots."""

    def factor_rows(self, name: str) -> list[EffectRow]:
        """The rows of one factor, the baseline first."""
        return sorted((row for row in self.rows if row.factor == name), key=lambda row: not row.is_baseline)


def effects_of(observations: Observations, options: Options) -> StudyEffects:
    """Compute the table. AnalysisError where nothing can be computed."""
    if observations.design == "factorial" or not observations.blocked:
        return _factorial(observations, options)
    return _one_at_a_time(observations, options)


def _one_at_a_time(observations: Observations, options: Options) -> StudyEffects:
    """Every arm against the baseline; a baseline row stands in each factor."""
    arms = [_label(observations.arm(row)) for row in observations.rows]
    families: dict[Hashable, Hashable] | None = None
    if options.family == "factor":
        families = {
            _label(((factor.name, level),)): factor.name for factor in observations.factors for level in factor.levels
        }
    found = compare_arms(
        arms,
        [row.replicate for row in observations.rows],
        [row.value for row in observations.rows],
        baseline=BASELINE,
        higher_is_better=observations.metric.higher_is_better,
        statuses=[row.status for row in observations.rows],
        final_train_losses=[row.final_train_loss for row in observations.rows],
        margin=options.margin,
        alpha=options.alpha,
        looks=options.looks,
        families=families,
        crossed=observations.crossed,
    )
    by_arm = {row.arm: row for row in found.rows}
    rows = []
    for factor in observations.factors:
        for level in factor.levels:
            is_baseline = same_level(level, factor.baseline)
            arm = BASELINE if is_baseline else _label(((factor.name, level),))
            if arm in by_arm:
                mine = [row for row, its in zip(observations.rows, arms, strict=True) if its == arm]
                rows.append(_row_of_arm(factor, level, by_arm[arm], mine, observations))
    problems = [Problem(each.kind, each.detail, tuple(map(str, each.arms))) for each in found.findings]
    several = sorted({_label(each) for row in observations.rows if len(each := observations.arm(row)) > 1})
    if several:
        detail = f"in the model but in no row, because they differ in several factors: {', '.join(several)}"
        problems.append(Problem("several_factors", detail, tuple(several)))
    return StudyEffects(
        observations=observations,
        options=options,
        rows=tuple(rows),
        s=found.s,
        df=found.df,
        seed_correlation=found.seed_correlation,
        sd_ratio=found.sd_ratio,
        seeds_for_margin=found.seeds_for_margin,
        problems=(*observations.problems, *problems, *_looks(observations, options)),
        marginal_means=_plain_means(rows),
    )


def _row_of_arm(
    factor: FactorLevels, level: Hashable, arm: ArmRow, runs: Sequence[Observation], observations: Observations
) -> EffectRow:
    baseline = arm.is_baseline
    return EffectRow(
        factor=factor.name,
        level=level,
        baseline=factor.baseline,
        is_baseline=baseline,
        n_planned=arm.n_planned,
        n_ok=arm.n_ok,
        n_failed=arm.n_failed,
        n_missing=arm.n_missing,
        values=arm.values,
        mean=arm.mean,
        sd=arm.sd,
        effect=arm.effect,
        se=arm.se,
        df=arm.df,
        ci_low=arm.ci_low,
        ci_high=arm.ci_high,
        p_adjusted=arm.p_adjusted,
        verdict=arm.verdict,
        smallest_detectable_effect=arm.smallest_detectable_effect,
        seeds_needed=arm.seeds_needed,
        cost=_cost(runs),
        replicates=arm.replicates,
        secondary=_secondary(runs, observations.secondary_names),
        reason=arm.reason,
    )


def _factorial(observations: Observations, options: Options) -> StudyEffects:
    """Marginal means of every factor and their contrasts, from the finished runs of any design."""
    runs = [(row, outcome(row.status, row.value)) for row in observations.rows]
    ok = [(row, float(row.value)) for row, what in runs if what == "ok" and row.value is not None]
    replicates = [row.replicate for row, _ in ok]
    references = {factor.name: factor.baseline for factor in observations.factors}
    found = analyse_factorial(
        {factor.name: [row.levels[factor.name] for row, _ in ok] for factor in observations.factors},
        [value for _, value in ok],
        seeds=replicates if observations.blocked and len(set(replicates)) > 1 else None,
        references={
            name: level for name, level in references.items() if any(row.levels[name] == level for row, _ in ok)
        },
        alpha=alpha_per_look(options.alpha, options.looks),
        family=options.family,
    )
    by_name = {each.factor: each for each in found.factors}
    rows = [
        _factorial_row(factor, level, by_name.get(factor.name), found, observations, options)
        for factor in observations.factors
        for level in factor.levels
    ]
    problems = [Problem("design", words) for words in found.problems]
    problems += [
        Problem(
            "interaction", f"{test.term}: the effect of one depends on the other (p {test.p:.2g}); no single verdict"
        )
        for test in found.interactions
        if matters(test)
    ]
    problems += [Problem("simple_effects", _simple_in_words(each)) for each in found.simple_effects]
    problems += [Problem("not_estimable", f"{test.term}: {test.note}") for test in found.interactions if test.note]
    return StudyEffects(
        observations=observations,
        options=options,
        rows=tuple(rows),
        f_tests=tuple(
            {"term": test.term, "f": test.f, "df1": test.df1, "df2": test.df2, "p": test.p}
            for test in (*found.f_tests, *found.interactions)
        ),
        s=found.s,
        df=found.df,
        problems=(*observations.problems, *problems, *_looks(observations, options)),
        marginal_means={
            each.factor: {mean.level: (mean.mean, mean.se) for mean in each.marginal_means} for each in found.factors
        },
    )


def _factorial_row(
    factor: FactorLevels,
    level: Hashable,
    found: FactorEffects | None,
    analysis: FactorialAnalysis,
    observations: Observations,
    options: Options,
) -> EffectRow:
    """One level over all runs that have it; mean and effect are adjusted for the other factors."""
    runs = [row for row in observations.rows if same_level(row.levels[factor.name], level)]
    base_runs = [row for row in observations.rows if same_level(row.levels[factor.name], factor.baseline)]
    outcomes = [outcome(row.status, row.value) for row in runs]
    values = [(row.replicate, float(row.value)) for row in runs if _ok(row) and row.value is not None]
    effect = None if found is None else found.contrasts.get(level)
    is_baseline = same_level(level, factor.baseline)
    problem = f"factor {factor.name} has one level" if found is None else found.problem
    evidence = Evidence(
        n_planned=len(runs),
        n_failed=outcomes.count("failed"),
        baseline_planned=len(base_runs),
        baseline_failed=sum(outcome(row.status, row.value) == "failed" for row in base_runs),
        shared_seeds=_shared(runs, base_runs, observations.blocked),
        ci_low=None if effect is None or effect.inference is None else effect.inference.ci_low,
        ci_high=None if effect is None or effect.inference is None else effect.inference.ci_high,
        margin=options.margin,
        equivalence_p=_equivalence_p(effect, options),
    )
    word: str | None = verdict(evidence, higher_is_better=observations.metric.higher_is_better, alpha=options.alpha)
    if is_baseline or problem is not None:
        word, effect = None, None
    elif effect is not None and effect.inference is None:
        word, problem = None, "the model leaves no residual: nothing is known about noise"
    elif factor.name in analysis.withheld:
        word, problem = NO_VERDICT, "it depends on another factor, see the simple effects"
    withheld = word is None or word == NOT_ENOUGH_SEEDS or word.startswith(UNSTABLE)
    noise = None if effect is None or withheld else effect.inference
    means = {} if found is None else {mean.level: mean.mean for mean in found.marginal_means}
    numbers = [value for _, value in values]
    return EffectRow(
        factor=factor.name,
        level=level,
        baseline=factor.baseline,
        is_baseline=is_baseline,
        n_planned=len(runs),
        n_ok=len(values),
        n_failed=outcomes.count("failed"),
        n_missing=outcomes.count("missing"),
        values=tuple(numbers),
        mean=means.get(level, fmean(numbers) if numbers else None),
        sd=stdev(numbers) if len(numbers) > 1 else None,
        effect=None if effect is None else effect.effect,
        se=None if noise is None else noise.se,
        df=None if noise is None else noise.df,
        ci_low=None if noise is None else noise.ci_low,
        ci_high=None if noise is None else noise.ci_high,
        p_adjusted=None if noise is None else noise.p_adjusted,
        verdict=word,
        smallest_detectable_effect=(
            None if noise is None else detectable_noncentrality(noise.critical_value, noise.df) * noise.se
        ),
        seeds_needed=None,
        cost=_cost(runs),
        replicates=tuple(replicate for replicate, _ in values),
        secondary=_secondary(runs, observations.secondary_names),
        reason=problem,
    )


def _shared(runs: Sequence[Observation], base: Sequence[Observation], blocked: bool) -> int:
    """Finished seeds that both have; without seeds, the finished runs of the one that has fewer."""
    mine, theirs = ([row.replicate for row in rows if _ok(row)] for rows in (runs, base))
    return len(set(mine) & set(theirs)) if blocked else min(len(mine), len(theirs))


def _ok(row: Observation) -> bool:
    return outcome(row.status, row.value) == "ok"


def _equivalence_p(effect: Effect | None, options: Options) -> float | None:
    if effect is None or effect.inference is None or options.margin is None:
        return None
    noise = effect.inference
    return equivalence_test(effect.effect, noise.se, noise.df, margin=options.margin, alpha=options.alpha).p


def _cost(runs: Sequence[Observation]) -> dict[str, float | None]:
    known = {name: [run.cost[name] for run in runs if run.cost.get(name) is not None] for name in COSTS}
    return {name: fmean(float(value or 0) for value in values) if values else None for name, values in known.items()}


def _secondary(runs: Sequence[Observation], names: Sequence[str]) -> dict[str, dict[str, float | int | None]]:
    found: dict[str, dict[str, float | int | None]] = {}
    for name in names:
        values = [float(v) for run in runs if (v := run.secondary.get(name)) is not None and math.isfinite(v)]
        found[name] = {
            "mean": fmean(values) if values else None,
            "sd": stdev(values) if len(values) > 1 else None,
            "n": len(values),
        }
    return found


def _looks(observations: Observations, options: Options) -> list[Problem]:
    """What looking again costs, where that was not allowed for."""
    if observations.looks <= options.looks:
        return []
    return [Problem("looks", f"{looks_note(observations.looks)} (--looks {observations.looks})")]


def _label(arm: Hashable) -> str:
    """An arm as people call it; arms are tuples of factor and level."""
    if isinstance(arm, tuple):
        return " ".join(f"{factor}={_apart(level)}" for factor, level in arm) or BASELINE
    return str(arm)


def _apart(level: Hashable) -> str:
    """A level, so that a text that reads like something else is told from it."""
    return f"'{level}'" if level in ("null", "true", "false") else shown(level)


def _simple_in_words(found: SimpleEffects) -> str:
    parts = [f"{shown(level)} {effect.effect:+.4g}" for level, effect in found.contrasts.items()]
    return f"{found.factor} where {found.at}={shown(found.at_level)}: {', '.join(parts) or 'not run'}"


def _plain_means(rows: Sequence[EffectRow]) -> dict[str, dict[Hashable, tuple[float, float | None]]]:
    found: dict[str, dict[Hashable, tuple[float, float | None]]] = {}
    for row in rows:
        if row.mean is not None:
            error = None if row.sd is None else row.sd / math.sqrt(row.n_ok)
            found.setdefault(row.factor, {})[row.level] = (row.mean, error)
    return found
