"""From evidence to one word per arm; the order is the meaning, the first match wins."""

from dataclasses import dataclass

from ftx.analysis.power import FEWEST_SEEDS

DEGENERATE = "degenerate"
UNSTABLE = "unstable"
"""Followed by failed/planned."""
NOT_ENOUGH_SEEDS = "not enough seeds"
BETTER = "better"
WORSE = "worse"
WITHIN_NOISE = "within noise"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known about one arm against its baseline."""

    degenerate: bool = False
    n_planned: int
    n_failed: int = 0
    baseline_planned: int
    baseline_failed: int = 0
    shared_seeds: int
    """Finished seeds that the arm shares with the baseline."""
    ci_low: float | None = None
    ci_high: float | None = None
    """The simultaneous interval of the effect; None: unknown."""
    margin: float | None = None
    equivalence_p: float | None = None
    """Of the two one-sided tests; None: no margin was declared."""


def verdict(evidence: Evidence, *, higher_is_better: bool, alpha: float = 0.05) -> str:
    """The verdict in words. The direction is that of the declared metric."""
    if evidence.degenerate:
        return DEGENERATE
    if evidence.n_failed > 0:
        return f"{UNSTABLE} {evidence.n_failed}/{evidence.n_planned}"
    if evidence.baseline_failed > 0:
        return f"{UNSTABLE} {evidence.baseline_failed}/{evidence.baseline_planned} (baseline)"
    if evidence.shared_seeds < FEWEST_SEEDS or evidence.ci_low is None or evidence.ci_high is None:
        return NOT_ENOUGH_SEEDS
    if evidence.ci_low > 0 or evidence.ci_high < 0:
        return BETTER if (evidence.ci_low > 0) == higher_is_better else WORSE
    if evidence.margin is not None and evidence.equivalence_p is not None and evidence.equivalence_p < alpha:
        return f"equivalent (+-{evidence.margin:g})"
    return WITHIN_NOISE
