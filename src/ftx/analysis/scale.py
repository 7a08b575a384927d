"""Expectations over S = sqrt(chi2(df) / df), the estimated standard deviation over the true one."""

import numpy as np

from ftx.analysis.distributions import Array, log_gamma

_LOG_NEGLIGIBLE = 40.0  # e^-40 of the integrand's peak is left out


def scale_nodes(df: float, c: float = 0.0, *, finest: float = 0.08) -> tuple[Array, Array]:
    """Nodes s and weights w with E[g(S)] = sum w g(s): the trapezoid rule in log S, of step `finest` at most.

    The density falls off on both sides, so the rule converges exponentially. For a g(s) that falls like the normal
    tail beyond c s, the range also covers the peak of density times tail, near s^2 = df / (df + c^2).
    """
    lowest = 0.5 * np.log(df / (df + c * c)) - _LOG_NEGLIGIBLE / df - min(0.5, np.sqrt(_LOG_NEGLIGIBLE / df))
    highest = np.sqrt(_LOG_NEGLIGIBLE / df)
    step = min(1.0 / np.sqrt(2.0 * df) / 3.0, finest)
    log_s = np.arange(lowest, highest + step, step)
    half = df / 2.0
    log_density = np.log(2.0) + half * np.log(half) - log_gamma(half) + df * log_s - half * np.exp(2.0 * log_s)
    return np.exp(log_s), step * np.exp(log_density)
