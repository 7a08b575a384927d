"""Intervals for a share of runs, such as the failure rate of an arm."""

import numpy as np

from ftx.analysis.distributions import normal_critical
from ftx.analysis.error import AnalysisError


def wilson_interval(count: int, total: int, *, alpha: float = 0.05) -> tuple[float, float]:
    """Wilson's score interval (1927), of level 1 - alpha. AnalysisError unless 0 <= count <= total and total > 0."""
    if total < 1 or not 0 <= count <= total:
        raise AnalysisError(f"needs 0 <= count <= total and a total of at least 1, got {count} of {total}")
    z = normal_critical(alpha)
    share, weight = count / total, z * z / total
    centre = (share + weight / 2.0) / (1.0 + weight)
    half = z * float(np.sqrt(share * (1.0 - share) / total + weight / (4.0 * total))) / (1.0 + weight)
    # At 0 and at all the bound is exact; rounding would leave 1e-17 of it.
    return (0.0 if count == 0 else centre - half), (1.0 if count == total else centre + half)
