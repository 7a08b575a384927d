"""What a design can find: smallest detectable effect and seeds needed, for arms against a baseline.

Power is P(|T'| > c) with T' noncentral t and c Dunnett's critical value: the chance that the simultaneous interval of
one arm, whose true effect is given, excludes 0. Arms count the baseline; s is the residual sd of one run.
"""

import numpy as np

from ftx.analysis.distributions import normal_cdf, root
from ftx.analysis.dunnett import balanced_critical_value
from ftx.analysis.error import AnalysisError
from ftx.analysis.scale import scale_nodes

MOST_SEEDS = 50
"""Beyond this many seeds, "seeds needed" is shown as more than so many."""
FEWEST_SEEDS = 3
"""A verdict needs as many finished seeds shared by arm and baseline."""


def noncentral_t_beyond(c: float, df: float, noncentrality: float) -> float:
    """P(|T'| > c) of the noncentral t: the mean of Phi(d - c S) + Phi(-d - c S) over S."""
    # The integrand is a step of width 1/c in S, which the nodes must resolve.
    s, weights = scale_nodes(df, finest=min(0.08, 0.3 / max(c, 1.0)))
    return float(weights @ (normal_cdf(noncentrality - c * s) + normal_cdf(-noncentrality - c * s)))


def detectable_noncentrality(c: float, df: float, power: float = 0.8) -> float:
    """The effect, in standard errors, that a test with critical value `c` finds with this power."""
    _check_share("power", power)
    high = c + 1.0
    while noncentral_t_beyond(c, df, high) < power:
        high *= 1.5

    def shortfall(noncentrality: float) -> float:
        return noncentral_t_beyond(c, df, noncentrality) - power

    return 0.0 if shortfall(0.0) >= 0 else root(shortfall, 0.0, high, tolerance=1e-10)


def smallest_detectable_effect(
    s: float, *, arms: int, seeds: int, alpha: float = 0.05, power: float = 0.8, blocked: bool = True
) -> float:
    """The true difference from the baseline that this design finds with the given power, in the unit of `s`.

    AnalysisError: s not positive, fewer than two arms or seeds, alpha or power outside (0, 1).
    """
    _check(s, arms, seeds, alpha)
    df = _degrees_of_freedom(arms, seeds, blocked)
    c = balanced_critical_value(arms - 1, df, alpha)
    return detectable_noncentrality(c, df, power) * s * float(np.sqrt(2.0 / seeds))


def detection_power(
    effect: float, s: float, *, arms: int, seeds: int, alpha: float = 0.05, blocked: bool = True
) -> float:
    """The chance that a true `effect` (any sign) is told from 0 with this many seeds. Errors as above."""
    _check(s, arms, seeds, alpha)
    df = _degrees_of_freedom(arms, seeds, blocked)
    c = balanced_critical_value(arms - 1, df, alpha)
    return noncentral_t_beyond(c, df, abs(effect) / (s * float(np.sqrt(2.0 / seeds))))


def seeds_to_detect(
    effect: float,
    s: float,
    *,
    arms: int,
    alpha: float = 0.05,
    power: float = 0.8,
    blocked: bool = True,
    fewest: int = FEWEST_SEEDS,
) -> int | None:
    """The fewest seeds, from `fewest` on, that find a true `effect` with this power; None: more than MOST_SEEDS.

    Computed for an effect just seen it is an estimate with that effect's noise; for a declared margin it is a plan.
    """
    _check_share("power", power)
    _check(s, arms, fewest, alpha)
    if not np.isfinite(effect):
        raise AnalysisError(f"effect must be a finite number, got {effect}")

    def enough(seeds: int) -> bool:
        return detection_power(effect, s, arms=arms, seeds=seeds, alpha=alpha, blocked=blocked) >= power

    if not enough(MOST_SEEDS):
        return None
    low, high = fewest - 1, MOST_SEEDS  # power grows with seeds: too few at low, enough at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _degrees_of_freedom(arms: int, seeds: int, blocked: bool) -> int:
    return (arms - 1) * (seeds - 1) if blocked else arms * (seeds - 1)


def _check(s: float, arms: int, seeds: int, alpha: float) -> None:
    _check_share("alpha", alpha)
    if not (np.isfinite(s) and s > 0):
        raise AnalysisError(f"s must be a positive number, got {s}; take it from runs that differ by the seed alone")
    if arms < 2:
        raise AnalysisError(f"arms must be at least 2, the baseline and one other, got {arms}")
    if seeds < 2:
        raise AnalysisError(f"seeds must be at least 2, got {seeds}: one seed shows no noise")


def _check_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise AnalysisError(f"{name} must lie between 0 and 1, got {value}")
