"""Pairs of factors whose effects depend on each other, and the simple effects to show for them."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ftx.analysis import least_squares
from ftx.analysis.distributions import Array
from ftx.analysis.effects import Effect, adjusted_effects
from ftx.analysis.f_tests import FTest, f_test, residual_sd
from ftx.analysis.factorial_design import Design
from ftx.analysis.least_squares import rank_of

INTERACTION_ALPHA = 0.05


@dataclass(frozen=True)
class SimpleEffects:
    """The contrasts of `factor` at one level of another, for a pair that interacts."""

    factor: str
    at: str
    at_level: Hashable
    contrasts: dict[Hashable, Effect]
    """Levels that were run there; each at 1 - alpha over the levels at this place."""


def interaction_test(design: Design, y: Array, pair: tuple[str, str], pairs: Sequence[tuple[str, str]]) -> FTest:
    """What a pair's interaction adds to the factors and to the other pairs' interactions."""
    term = f"{pair[0]}:{pair[1]}"
    others = [other for other in pairs if other != pair]
    full = least_squares.fit(design.matrix(pairs=[*others, pair]), y - y.mean())
    reduced = least_squares.fit(design.matrix(pairs=others), y - y.mean())
    wanted = design.product(*pair).shape[1]
    if full.rank == reduced.rank:
        cells = design.matrix(pairs=[*others, pair], blocks=False)
        note = f"not estimable: design rank {rank_of(cells)} of {cells.shape[1]}"
        return FTest(term, None, 0, full.df, None, note)
    test = f_test(term, reduced, full, y)
    if test.df1 == wanted or test.note is not None:
        return test
    return FTest(term, test.f, test.df1, test.df2, test.p, f"{test.df1} of {wanted} degrees of freedom: cells missing")


def matters(test: FTest) -> bool:
    """Whether the factors of an interaction get simple effects in place of one verdict per level."""
    return test.p is not None and test.p < INTERACTION_ALPHA


def simple_effects(
    design: Design, y: Array, pair: tuple[str, str], pairs: Sequence[tuple[str, str]], alpha: float
) -> list[SimpleEffects]:
    """Contrasts of each of the pair at every level of the other, in the model with the interactions at work."""
    fit = least_squares.fit(design.matrix(pairs=pairs), y - y.mean())
    s = residual_sd(fit, y)
    found: list[SimpleEffects] = []
    for factor, at in (pair, pair[::-1]):
        for level in design.levels[at]:
            rows = _simple_rows(design, pairs, factor, at, level)
            fine = np.array(fit.estimable(rows), dtype=bool)
            names = [name for name, known in zip(design.levels[factor][1:], fine, strict=True) if known]
            effects, covariance = fit.estimate(rows[fine])
            contrasts = adjusted_effects(names, effects, covariance, s=s, df=fit.df, alpha=alpha)
            found.append(SimpleEffects(factor, at, level, contrasts))
    return found


def _simple_rows(design: Design, pairs: Sequence[tuple[str, str]], factor: str, at: str, at_level: Hashable) -> Array:
    """(levels - 1, p): level minus reference of `factor` at `at_level`, over the other factors with equal weights."""
    weights = {name: np.full(len(levels), 1.0 / len(levels)) for name, levels in design.levels.items()}
    weights[at] = np.array([float(level == at_level) for level in design.levels[at]])
    count = len(design.levels[factor])
    rows = []
    for chosen in np.eye(count)[1:]:
        high = _mean_row(design, pairs, weights | {factor: chosen})
        rows.append(high - _mean_row(design, pairs, weights | {factor: np.eye(count)[0]}))
    return np.vstack(rows)


def _mean_row(design: Design, pairs: Sequence[tuple[str, str]], weights: Mapping[str, Array]) -> Array:
    """(p,): the expected value under given weights of every factor's levels."""
    mains = [weights[name][1:] for name in design.factors]
    blocks = design.seed_columns().shape[1]
    products = [np.outer(weights[a][1:], weights[b][1:]).ravel() for a, b in pairs]
    return np.concatenate([[1.0], *mains, np.full(blocks, 1.0 / (blocks + 1)), *products])
