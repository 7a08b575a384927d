"""Many arms against one baseline: the two-sided distribution of max |T| (Dunnett 1955), without random numbers.

With T_i = (sqrt(1 - b_i^2) Z_i + b_i Z_0) / S the correlation of two arms is b_i b_j. Balanced designs, unequal group
sizes and blocks with one incomplete arm all have this form, and the probability is a double integral over Z_0 and S.
The factors of a balanced factorial design are blocks of this form that share S alone.
Other correlations go to scipy's multivariate t, or, with many arms or far out in the tail, to the nearest correlation
of this form.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ftx.analysis.distributions import Array, normal_cdf, root, t_critical, t_two_sided
from ftx.analysis.error import AnalysisError
from ftx.analysis.scale import scale_nodes

Blocks = npt.NDArray[np.int64]

_PRODUCT_TOLERANCE = 1e-9
_MOST_LOADING = 0.995  # a hundred runs for each of the baseline's; nearer to 1 the steps are too steep to integrate
_MOST_ARMS_SAMPLED = 8  # a multivariate t of 8 arms takes 0.3 s, and a table needs one for every arm
_SAMPLED_FROM = 1e-3  # below, the sample's error of 1e-5 is worse than that of the nearest one-factor correlation
_SAMPLED_POINTS = 200_000
_RANDOM_STATE = 20


def tail_probability(c: float, loadings: Array, df: float, blocks: Blocks | None = None) -> float:
    """P(max |T_i| >= c), where T_i and T_j correlate by loadings[i] * loadings[j] (m,), to about ten digits.

    Given `blocks` (m,), arms of different blocks correlate by 0: factors of a balanced design share S alone.
    The tail itself is integrated (expm1, log1p), so that tiny probabilities keep their relative precision.
    """
    if loadings.size == 1:
        return t_two_sided(c, df)
    groups = [loadings] if blocks is None else [loadings[blocks == block] for block in np.unique(blocks)]
    scale, weights = scale_nodes(df, c)
    with np.errstate(divide="ignore"):  # log1p(-1): at c = 0 nothing lies inside
        log_inside = [np.log1p(-np.minimum(_outside(c * scale, group, c, df), 1.0)) for group in groups]
    return float(weights @ -np.expm1(np.sum(log_inside, axis=0)))


def _outside(reach: Array, loadings: Array, c: float, df: float) -> Array:
    """P(max |X_i| >= reach) of normals that correlate by their loadings, for each of `reach`."""
    squares, counts = np.unique(np.round(np.minimum(np.abs(loadings), _MOST_LOADING) ** 2, 12), return_counts=True)
    ratios = squares / (1.0 - squares)
    z, weights = _normal_nodes(c, df, float(np.sum(counts * ratios)))
    log_inside = np.zeros((reach.size, z.size))
    for ratio, count in zip(ratios, counts, strict=True):
        stretched, shift = np.sqrt(1.0 + ratio) * reach[:, None], np.sqrt(ratio) * z[None, :]
        outside = normal_cdf(shift - stretched) + normal_cdf(-shift - stretched)
        log_inside += count * np.log1p(-np.minimum(outside, 1.0))
    probability: Array = -np.expm1(log_inside) @ weights
    return probability


def balanced_loadings(arms: int, ratio: float = 1.0) -> Array:
    """Loadings of `arms` arms that each have `ratio` times the baseline's replicates (correlation 1/2 at 1)."""
    return np.full(arms, np.sqrt(ratio / (1.0 + ratio)))


@lru_cache(maxsize=4096)
def balanced_critical_value(arms: int, df: float, alpha: float = 0.05, ratio: float = 1.0) -> float:
    """The c with P(max |T| >= c) = alpha for `arms` arms beside the baseline; cached, a few milliseconds."""
    if arms < 1 or df <= 0 or not 0 < alpha < 1:
        raise AnalysisError(f"needs an arm, df above 0 and alpha in (0, 1); got {arms} arms, df {df}, alpha {alpha}")
    return critical_value(_equicorrelated(arms, ratio), df, alpha)


def adjusted_p_values(t: Array, correlation: Array, df: float) -> Array:
    """P(max |T| >= |t_i|) for each statistic (m,), given the correlation (m, m) of the effects and s's `df`."""
    loadings, blocks, exact = factor_structure(correlation)
    integrate = exact or t.size > _MOST_ARMS_SAMPLED

    def tail(c: float) -> float:
        if integrate or t.size * t_two_sided(c, df) < _SAMPLED_FROM:
            return _clipped(tail_probability(c, loadings, df, blocks), c, t.size, df)
        return _sampled_tail(c, correlation, df)

    return np.array([tail(abs(float(statistic))) for statistic in t])


def critical_value(correlation: Array, df: float, alpha: float = 0.05) -> float:
    """The c with P(max |T| >= c) = alpha, by root search between the unadjusted and the Bonferroni value."""
    arms = correlation.shape[0]
    low, high = t_critical(alpha, df), t_critical(alpha / arms, df)
    if arms == 1:
        return low
    loadings, blocks, exact = factor_structure(correlation)

    def excess(c: float) -> float:
        return float(np.log(tail_probability(c, loadings, df, blocks) / alpha))

    c = low if excess(low) <= 0 else high if excess(high) >= 0 else root(excess, low, high, tolerance=1e-9)
    if exact or arms > _MOST_ARMS_SAMPLED:
        return c
    return _sampled_critical_value(correlation, df, alpha, c)


def factor_structure(correlation: Array) -> tuple[Array, Blocks, bool]:
    """Loadings (m,), blocks (m,) of arms that correlate at all, and whether these reproduce the correlation (m, m)."""
    joined = np.abs(correlation) > _PRODUCT_TOLERANCE
    blocks: Blocks = np.arange(correlation.shape[0], dtype=np.int64)
    while np.any(blocks != (lowest := np.where(joined, blocks, blocks.size).min(axis=1))):
        blocks = lowest
    loadings, exact = np.zeros(blocks.size), True
    for block in np.unique(blocks):
        members = np.flatnonzero(blocks == block)
        loadings[members], fits = one_factor(correlation[np.ix_(members, members)])
        exact = exact and fits
    return loadings, blocks, exact


def one_factor(correlation: Array) -> tuple[Array, bool]:
    """Loadings (m,) whose products are nearest to the correlations off the diagonal, and whether they match exactly.

    Alternating least squares (the MINRES factor analysis); signs do not matter to |T|.
    """
    arms = correlation.shape[0]
    off = correlation - np.diag(np.diag(correlation))
    if arms == 1:
        return np.zeros(1), True
    if arms == 2:
        return np.full(2, np.sqrt(min(abs(off[0, 1]), 1.0))), True
    loadings = np.sqrt(np.clip(np.abs(off).sum(axis=1) / (arms - 1), 1e-6, _MOST_LOADING))
    for _ in range(500):
        before = loadings.copy()
        for arm in range(arms):
            weight = float(loadings @ loadings - loadings[arm] ** 2)
            loadings[arm] = np.clip(off[arm] @ loadings / weight, -_MOST_LOADING, _MOST_LOADING) if weight > 0 else 0.0
        if np.max(np.abs(loadings - before)) < 1e-13:
            break
    gap = np.outer(loadings, loadings) - correlation
    np.fill_diagonal(gap, 0.0)
    return loadings, bool(np.max(np.abs(gap)) < _PRODUCT_TOLERANCE)


def _clipped(p: float, t: float, arms: int, df: float) -> float:
    """Between the unadjusted p and Bonferroni's, where every adjusted p lies."""
    raw = t_two_sided(t, df)
    return float(np.clip(p, raw, min(1.0, arms * raw)))


def _sampled_tail(c: float, correlation: Array, df: float) -> float:
    """The tail of a general correlation by quasi Monte Carlo, the same on every call, to about four decimals."""
    # Loading scipy.stats takes longer than everything else that a plan or a balanced table needs.
    from scipy.stats import multivariate_t

    arms = correlation.shape[0]
    inside = multivariate_t.cdf(
        np.full(arms, c),
        shape=correlation,
        df=df,
        lower_limit=np.full(arms, -c),
        allow_singular=True,
        maxpts=_SAMPLED_POINTS,
        random_state=np.random.default_rng(_RANDOM_STATE),
    )
    return _clipped(1.0 - float(inside), c, arms, df)


def _sampled_critical_value(correlation: Array, df: float, alpha: float, guess: float) -> float:
    """Root search on the sampled tail, from the nearest one-factor correlation's value, which is already close."""

    def excess(c: float) -> float:
        return float(np.log(_sampled_tail(c, correlation, df) / alpha))

    width = 0.02
    low, high = excess(guess - width), excess(guess + width)
    while low < 0 or high > 0:
        width *= 4
        if width > guess:
            raise AnalysisError(f"no critical value near {guess:.4f} for these correlations and df {df}")
        low, high = excess(guess - width), excess(guess + width)
    if width > 0.02:
        return root(excess, guess - width, guess + width, tolerance=1e-4)
    # Over so short a step the log of the tail is straight to 1e-5, below the sample's own error.
    return guess - width + 2.0 * width * low / (low - high)


def _equicorrelated(arms: int, ratio: float) -> Array:
    correlation = np.full((arms, arms), ratio / (1.0 + ratio))
    np.fill_diagonal(correlation, 1.0)
    return correlation


def _normal_nodes(c: float, df: float, total_ratio: float) -> tuple[Array, Array]:
    """Nodes and weights for E over a standard normal, the trapezoid rule; finer where the arms' steps are steep."""
    # Given |T| >= c, the shared normal is drawn out to at most c S at the S that matters.
    reach = 9.0 + min(c, float(np.sqrt(df)))
    step = min(0.1, 0.5 / float(np.sqrt(1.0 + total_ratio)))
    z = np.arange(-np.ceil(reach / step), np.ceil(reach / step) + 1.0) * step
    return z, step * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
