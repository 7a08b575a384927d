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
    x, y = _deviations(a[shared]), _deviations(b[shared])
    return float((x / np.linalg.norm(x)) @ (y / np.linalg.norm(y))) if x.any() and y.any() else None


def _deviations(values: Array) -> Array:
    """From the mean; all 0 where the values are constant, whose rounding error would correlate with anything."""
    deviations = values - values.mean()
    constant = float(np.max(np.abs(deviations))) <= 1e-12 * float(np.max(np.abs(values)))
    return np.zeros_like(deviations) if constant else deviations
