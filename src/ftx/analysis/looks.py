"""What looking at a study again, after adding seeds, does to its error rate."""

from ftx.analysis.error import AnalysisError

FAMILY_WISE_ERROR = {1: 0.051, 2: 0.087, 3: 0.119, 4: 0.145}
"""Chance of a false effect by number of looks, simulated: 4 null arms, tested at .05 with 3, then 5, 8, 12 seeds."""


def alpha_per_look(alpha: float, looks: int) -> float:
    """The level at which each of `looks` looks is tested, so that all together keep `alpha` (Bonferroni)."""
    if not 0 < alpha < 1:
        raise AnalysisError(f"alpha must lie between 0 and 1, got {alpha}")
    if looks < 1:
        raise AnalysisError(f"looks must be at least 1, got {looks}")
    return alpha / looks


def looks_note(looks: int) -> str:
    """Words for a study that was looked at `looks` times with no correction."""
    error = FAMILY_WISE_ERROR[min(max(looks, 1), max(FAMILY_WISE_ERROR))]
    least = "at least " if looks > max(FAMILY_WISE_ERROR) else ""
    return (
        f"seeds were added after a look: over {looks} looks at alpha .05 a study without any effect shows one "
        f"in {least}{error:.1%} of cases; testing each look at alpha/{looks} keeps it below 5%"
    )
