"""How much seeds agree between arms: pairing helps only as far as they do."""

from itertools import combinations

import numpy as np

from ftx.analysis.distributions import Array

_FEWEST_SHARED = 3


def mean_seed_correlation(table: Array) -> float | None:
    """Mean Pearson correlation over all pairs of arms, of values (arms, seeds) with NaN where no run finished.

    A pair needs three shared seeds and some variance in both; None: no such pair.
    """
    found = [pair for a, b in combinations(table, 2) if (pair := _correlation(a, b)) is not None]
    return float(np.mean(found)) if found else None


def _correlation(a: Array, b: Array) -> float | None:
    shared = np.isfinite(a) & np.isfinite(b)
    if shared.sum() < _FEWEST_SHARED:
        return None
    x, y = a[shared] - a[shared].mean(), b[shared] - b[shared].mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    # Constant values leave a rounding error that correlates with anything.
    floor = 1e-24 * x.size * float(np.max(np.abs(a[shared]))) * float(np.max(np.abs(b[shared])))
    return float(x @ y) / scale if scale > floor else None
