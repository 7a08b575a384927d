"""Equivalence within a declared margin: two one-sided t tests (Schuirmann 1987)."""

from dataclasses import dataclass

import numpy as np

from ftx.analysis.distributions import t_critical, t_upper
from ftx.analysis.error import AnalysisError


@dataclass(frozen=True)
class Equivalence:
    """How well an effect is known to lie within +-margin."""

    margin: float
    p: float
    """The larger of the two one-sided p-values; not adjusted for the number of arms."""
    ci_low: float
    ci_high: float
    """The interval of level 1 - 2 alpha, which lies inside the margin exactly where p < alpha."""


def equivalence_test(effect: float, se: float, df: float, *, margin: float, alpha: float = 0.05) -> Equivalence:
    """Test |effect| < margin, all in the metric's unit. AnalysisError if the margin is not a positive number."""
    check_margin(margin)
    reach = t_critical(2.0 * alpha, df) * se
    p = max(t_upper((effect + margin) / se, df), t_upper((margin - effect) / se, df))
    return Equivalence(margin=margin, p=p, ci_low=effect - reach, ci_high=effect + reach)


def check_margin(margin: float) -> None:
    """AnalysisError if the margin is not a positive number."""
    if not (np.isfinite(margin) and margin > 0):
        raise AnalysisError(f"margin must be a positive number in the metric's unit, got {margin}")
