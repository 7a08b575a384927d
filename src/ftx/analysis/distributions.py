"""Tails and quantiles of the usual distributions, typed; the only module that imports scipy's functions."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

Array = npt.NDArray[np.float64]


def t_two_sided(t: float, df: float) -> float:
    """P(|T| >= |t|) of Student's t with `df` degrees of freedom."""
    return float(2.0 * special.stdtr(df, -abs(t)))


def t_upper(t: float, df: float) -> float:
    """P(T >= t) of Student's t."""
    return float(special.stdtr(df, -t))


def t_critical(alpha: float, df: float) -> float:
    """The c with P(|T| >= c) = alpha."""
    return float(-special.stdtrit(df, alpha / 2.0))


def f_upper(f: float, df1: float, df2: float) -> float:
    """P(F >= f)."""
    return float(special.fdtrc(df1, df2, f))


def normal_two_sided(z: float) -> float:
    """P(|Z| >= |z|) of the standard normal."""
    return float(2.0 * special.ndtr(-abs(z)))


def normal_critical(alpha: float) -> float:
    """The c with P(|Z| >= c) = alpha."""
    return float(-special.ndtri(alpha / 2.0))


def normal_cdf(z: Array) -> Array:
    """P(Z <= z), element by element."""
    values: Array = special.ndtr(z)
    return values


def binomial_lower(successes: int, trials: int, probability: float) -> float:
    """P(X <= successes)."""
    return float(special.bdtr(successes, trials, probability))


def log_gamma(x: float) -> float:
    """Logarithm of the gamma function."""
    return float(special.gammaln(x))


def root(function: Callable[[float], float], low: float, high: float, *, tolerance: float) -> float:
    """The zero of a monotone `function` between `low` and `high` (Brent's method)."""
    return float(optimize.brentq(function, low, high, xtol=tolerance))
