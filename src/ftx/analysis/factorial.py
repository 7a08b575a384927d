"""Several factors at once: estimated marginal means, contrasts, type II F and interactions, in any design.

The model is additive in the factors and, where seeds are given, in the seeds: least squares, so that missing cells do
not reverse signs as bare group means do. Marginal means weigh the levels of all other factors, and the seeds, equally.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ftx.analysis import least_squares
from ftx.analysis.distributions import Array
from ftx.analysis.effects import Effect, adjusted_effects
from ftx.analysis.error import AnalysisError
from ftx.analysis.f_tests import FTest, f_test, residual_sd
from ftx.analysis.factorial_design import Design, confounded_factors, contrast_rows, factorial_design, first_column
from ftx.analysis.interactions import SimpleEffects, interaction_test, matters, simple_effects
from ftx.analysis.least_squares import LeastSquares, checked_values


@dataclass(frozen=True)
class MarginalMean:
    """The mean of one level, as if every combination of the other factors had been run equally often."""

    level: Hashable
    mean: float
    se: float | None


@dataclass(frozen=True)
class FactorEffects:
    """What is known of one factor; no figures where `problem` says why."""

    factor: str
    levels: tuple[Hashable, ...]
    reference: Hashable
    marginal_means: tuple[MarginalMean, ...]
    contrasts: dict[Hashable, Effect]
    """Each other level minus the reference, Dunnett-adjusted."""
    problem: str | None = None


@dataclass(frozen=True)
class FactorialAnalysis:
    """The whole design."""

    s: float | None
    df: int
    factors: tuple[FactorEffects, ...]
    f_tests: tuple[FTest, ...]
    interactions: tuple[FTest, ...]
    simple_effects: tuple[SimpleEffects, ...]
    """Of every pair whose interaction has p < .05; a single verdict per level would mislead there."""
    withheld: tuple[str, ...]
    """Factors whose levels get no single verdict for that reason."""
    problems: tuple[str, ...]


def analyse_factorial(
    factors: Mapping[str, Sequence[Hashable]],
    values: Sequence[float] | Array,
    *,
    seeds: Sequence[Hashable] | None = None,
    references: Mapping[str, Hashable] | None = None,
    alpha: float = 0.05,
    family: str = "study",
) -> FactorialAnalysis:
    """Analyse finished runs: a label per run (n,) for every factor, and the metric (n,).

    `references` names the level that a factor's others are compared with (default: its first). `family` "study" adjusts
    over the contrasts of all factors together, "factor" within each. AnalysisError: no values, one not finite, labels
    of another length, an unknown reference or family, no factor with two levels.
    """
    y = checked_values(values, {**factors, **({} if seeds is None else {"the seed block": seeds})})
    if family not in ("study", "factor"):
        raise AnalysisError(f"family must be study or factor, got {family!r}")
    design, problems = factorial_design(factors, seeds, references or {})
    centre = float(y.mean())
    fit = least_squares.fit(design.matrix(), y - centre)
    s = residual_sd(fit, y)
    confounded = confounded_factors(design)
    names = list(design.factors)
    pairs = [pair for pair in combinations(names, 2) if not confounded.get(pair[0]) and not confounded.get(pair[1])]
    interactions = tuple(interaction_test(design, y, pair, pairs) for pair in pairs)
    at_work = [pair for pair, test in zip(pairs, interactions, strict=True) if matters(test)]
    contrasts = _contrasts(design, fit, s, [name for name in names if name not in confounded], alpha, family)
    return FactorialAnalysis(
        s=s,
        df=fit.df,
        factors=tuple(_factor(design, fit, s, centre, name, contrasts, confounded.get(name)) for name in names),
        f_tests=tuple(_factor_test(design, y, fit, name, confounded.get(name)) for name in names),
        interactions=interactions,
        simple_effects=tuple(effect for pair in at_work for effect in simple_effects(design, y, pair, at_work, alpha)),
        withheld=tuple(name for name in names if any(name in pair for pair in at_work)),
        problems=(*problems, *dict.fromkeys(confounded.values())),
    )


def _contrasts(
    design: Design, fit: LeastSquares, s: float | None, names: Sequence[str], alpha: float, family: str
) -> dict[tuple[str, Hashable], Effect]:
    """All estimable factors' contrasts, adjusted together or by factor."""
    if not names:
        return {}
    keys = [(name, level) for name in names for level in design.levels[name][1:]]
    effects, covariance = fit.estimate(np.vstack([contrast_rows(design, name) for name in names]))
    families: dict[Hashable, Hashable] | None = {key: key[0] for key in keys} if family == "factor" else None
    found = adjusted_effects(keys, effects, covariance, s=s, df=fit.df, alpha=alpha, families=families)
    return {key: found[key] for key in keys}


def _factor(
    design: Design,
    fit: LeastSquares,
    s: float | None,
    centre: float,
    name: str,
    contrasts: Mapping[tuple[str, Hashable], Effect],
    problem: str | None,
) -> FactorEffects:
    levels = design.levels[name]
    if problem is not None:
        return FactorEffects(name, levels, levels[0], (), {}, problem)
    own = {level: contrasts[(name, level)] for level in levels[1:]}
    return FactorEffects(name, levels, levels[0], _marginal_means(design, fit, s, centre, name), own)


def _marginal_means(
    design: Design, fit: LeastSquares, s: float | None, centre: float, factor: str
) -> tuple[MarginalMean, ...]:
    """Estimated marginal means; none where another factor's levels cannot be averaged over."""
    shares = [np.full(len(design.levels[name]) - 1, 1.0 / len(design.levels[name])) for name in design.factors]
    blocks = design.seed_columns().shape[1]
    average = np.concatenate([[1.0], *shares, np.full(blocks, 1.0 / (blocks + 1))])
    levels, start = design.levels[factor], first_column(design, factor)
    rows = np.tile(average, (len(levels), 1))
    rows[:, start : start + len(levels) - 1] = np.eye(len(levels))[:, 1:]
    if not all(fit.estimable(rows)):
        return ()
    means, covariance = fit.estimate(rows)
    errors = [None if s is None else s * float(np.sqrt(scale)) for scale in np.diag(covariance)]
    return tuple(
        MarginalMean(level, centre + float(mean), se) for level, mean, se in zip(levels, means, errors, strict=True)
    )


def _factor_test(design: Design, y: Array, fit: LeastSquares, name: str, problem: str | None) -> FTest:
    """Type II: what the factor adds to all other factors, over the additive model's residual variance."""
    if problem is not None:
        return FTest(name, None, 0, fit.df, None, problem)
    reduced = least_squares.fit(design.matrix(without=name), y - y.mean())
    return f_test(name, reduced, fit, y)
