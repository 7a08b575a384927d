"""How much too good the best of several looks when it is chosen and measured on the same rows."""

import numpy as np

from ftx.analysis.distributions import Array, normal_cdf
from ftx.analysis.error import AnalysisError


def expected_maximum(m: int) -> float:
    """c_m, the mean of the largest of `m` independent standard normals: the bias of the best of m, in sd.

    The best of m checkpoints of one run, which correlate, is too good by at most this.
    """
    if m < 1:
        raise AnalysisError(f"m must be at least 1, got {m}")
    step = 0.02
    z: Array = np.arange(-500.0, 501.0) * step
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    return float(step * np.sum(z * m * density * normal_cdf(z) ** (m - 1)))
