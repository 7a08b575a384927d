"""Two runs compared example by example: right against wrong, graded scores, and rows that belong together."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from ftx.analysis.distributions import Array, binomial_lower, normal_critical, normal_two_sided, t_critical, t_two_sided
from ftx.analysis.error import AnalysisError
from ftx.analysis.least_squares import checked_values, indicators, levels_of

FEW_CLUSTERS = 40


@dataclass(frozen=True)
class PairedDifference:
    """Mean of b minus a over the same examples."""

    difference: float
    se: float
    df: int | None
    """Of Student's t; None: normal."""
    p: float | None
    """None where the differences do not vary."""
    ci_low: float
    ci_high: float


@dataclass(frozen=True)
class McNemar:
    """Right and wrong answers of two runs on the same `n` examples."""

    exact_p: float
    difference: float
    """Share right of b minus that of a."""
    se: float
    normal_p: float | None
    """From difference / se, to compare; the exact p decides."""


def mcnemar(only_a_right: int, only_b_right: int, n: int) -> McNemar:
    """Exact two-sided McNemar test on the discordant examples. AnalysisError unless they are counts within `n`.

    The standard error is that of the mean of n differences of -1, 0 or 1 (variance with n - 1).
    """
    discordant = only_a_right + only_b_right
    if min(only_a_right, only_b_right) < 0 or n < 2 or discordant > n:
        raise AnalysisError(f"needs counts with a + b <= n and n >= 2, got a {only_a_right}, b {only_b_right}, n {n}")
    difference = (only_b_right - only_a_right) / n
    se = float(np.sqrt((discordant - n * difference**2) / (n - 1) / n))
    exact = 2.0 * binomial_lower(min(only_a_right, only_b_right), discordant, 0.5) if discordant else 1.0
    return McNemar(
        exact_p=min(1.0, exact),
        difference=difference,
        se=se,
        normal_p=normal_two_sided(difference / se) if se > 0 else None,
    )


def paired_mean_difference(
    a: Sequence[float] | Array, b: Sequence[float] | Array, *, alpha: float = 0.05
) -> PairedDifference:
    """Mean of b - a over pairs (n,), Student's t with n - 1. AnalysisError: unequal lengths, one pair, not finite."""
    differences = _differences(a, b)
    n = differences.size
    se = float(differences.std(ddof=1) / np.sqrt(n))
    return _with_interval(float(differences.mean()), se, n - 1, alpha)


def clustered_mean_difference(
    a: Sequence[float] | Array, b: Sequence[float] | Array, clusters: Sequence[Hashable], *, alpha: float = 0.05
) -> PairedDifference:
    """Mean of b - a where pairs of one cluster belong together; the variance is between clusters (Liang, Zeger 1986).

    Fewer than 40 clusters: se times sqrt(G / (G - 1)), and t with G - 1; otherwise normal.
    AnalysisError as above, and for a single cluster.
    """
    differences = _differences(a, b)
    return clustered_mean(differences, clusters, alpha=alpha)


def clustered_mean(
    values: Sequence[float] | Array, clusters: Sequence[Hashable], *, alpha: float = 0.05
) -> PairedDifference:
    """`clustered_mean_difference` for differences (n,) already taken."""
    differences = checked_values(values, {"clusters": clusters})
    groups = levels_of(clusters)
    if len(groups) < 2:
        raise AnalysisError("one cluster only: it says nothing about other clusters; needs at least 2")
    few = len(groups) < FEW_CLUSTERS
    correction = len(groups) / (len(groups) - 1) if few else 1.0
    se = uncorrected_cluster_se(differences, clusters) * float(np.sqrt(correction))
    return _with_interval(float(differences.mean()), se, len(groups) - 1 if few else None, alpha)


def uncorrected_cluster_se(values: Array, clusters: Sequence[Hashable]) -> float:
    """Standard error of the mean from the sums of deviations within each cluster, without small-sample correction."""
    sums = indicators(clusters, levels_of(clusters)).T @ (values - values.mean())
    return float(np.sqrt(sums @ sums)) / values.size


def _differences(a: Sequence[float] | Array, b: Sequence[float] | Array) -> Array:
    left, right = checked_values(a, {}), checked_values(b, {})
    if left.size != right.size:
        raise AnalysisError(f"a has {left.size} examples and b has {right.size}; both need the same ones, in one order")
    if left.size < 2:
        raise AnalysisError("one pair only: its difference has no standard error; needs at least 2")
    return right - left


def _with_interval(difference: float, se: float, df: int | None, alpha: float) -> PairedDifference:
    reach = se * (normal_critical(alpha) if df is None else t_critical(alpha, df))
    p = None
    if se > 0:
        p = normal_two_sided(difference / se) if df is None else t_two_sided(difference / se, df)
    return PairedDifference(difference, se, df, p, difference - reach, difference + reach)
