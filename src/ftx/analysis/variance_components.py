"""Seeds and items as sources of noise in a score: their variance components from mean squares."""

from dataclasses import dataclass

import numpy as np

from ftx.analysis.distributions import Array
from ftx.analysis.error import AnalysisError


@dataclass(frozen=True)
class VarianceComponents:
    """Crossed seeds and items, one score each: score = mean + seed + item + rest."""

    mean: float
    seed: float
    item: float
    rest: float
    """Variances, in squared units of the score, truncated at 0; `rest` is seed-by-item and everything else."""
    se_new_seeds: float
    """Standard error of the mean for the question: what would new seeds score on this test set?"""
    se_new_items: float
    """... what would these seeds score on new items?"""
    se_new_both: float
    """... what would new seeds score on new items?"""


def variance_components(scores: Array) -> VarianceComponents:
    """Components of `scores` (seeds, items), e.g. graded answers or differences of two arms.

    Two-way random model without replication: E MS_seed = rest + I seed, E MS_item = rest + S item, E MS_rest = rest.
    AnalysisError: fewer than two seeds or items, or a score missing.
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or min(table.shape) < 2:
        raise AnalysisError(f"scores must be (seeds, items) with at least 2 of each, got shape {table.shape}")
    if not np.all(np.isfinite(table)):
        raise AnalysisError("a score is not finite: leave out the seeds or items that are not complete")
    seeds, items = table.shape
    mean = float(table.mean())
    by_seed, by_item = table.mean(axis=1) - mean, table.mean(axis=0) - mean
    left = table - mean - by_seed[:, None] - by_item[None, :]
    rest = float(np.sum(left**2)) / ((seeds - 1) * (items - 1))
    seed = max(0.0, (items * float(by_seed @ by_seed) / (seeds - 1) - rest) / items)
    item = max(0.0, (seeds * float(by_item @ by_item) / (items - 1) - rest) / seeds)
    shared = rest / (seeds * items)
    return VarianceComponents(
        mean=mean,
        seed=seed,
        item=item,
        rest=rest,
        se_new_seeds=float(np.sqrt(seed / seeds + shared)),
        se_new_items=float(np.sqrt(item / items + shared)),
        se_new_both=float(np.sqrt(seed / seeds + item / items + shared)),
    )
