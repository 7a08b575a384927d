"""The rows of a table of effects, and what is said beside them."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

from ftx.analysis.guard import CochranTest
from ftx.analysis.power import MOST_SEEDS, seeds_to_detect

SeedsNeeded = int | str | None
"""A number of seeds, or in words that it is more than MOST_SEEDS; None: unknown."""


@dataclass(frozen=True, kw_only=True)
class ArmRow:
    """One line of the table. Unknown, or withheld because it would mislead, is None."""

    arm: Hashable
    is_baseline: bool
    n_planned: int
    n_ok: int
    n_failed: int
    n_missing: int
    replicates: tuple[Hashable, ...]
    """Those that are ok, in the order of `values`."""
    values: tuple[float, ...]
    mean: float | None
    """Over the n_ok finished runs; no estimate of the arm where some failed."""
    sd: float | None
    """Over the n_ok finished runs, with n_ok - 1; None below two."""
    failure_low: float | None
    failure_high: float | None
    """Wilson's 95% interval for the failure rate among ok and failed runs."""
    shared_seeds: int = 0
    effect: float | None = None
    se: float | None = None
    df: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    p_adjusted: float | None = None
    verdict: str | None = None
    smallest_detectable_effect: float | None = None
    seeds_needed: SeedsNeeded = None
    """To find the effect seen, with 80% power: an estimate."""
    method: Literal["additive", "welch"] | None = None
    """Which variance se and interval rest on."""
    reason: str | None = None
    """Why the verdict is degenerate, or the effect unknown, in words."""


@dataclass(frozen=True)
class Finding:
    """Something to say above or below the table."""

    kind: str
    detail: str
    arms: tuple[Hashable, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EffectTable:
    """All rows, in the order in which the arms appear, and what they share."""

    rows: tuple[ArmRow, ...]
    s: float | None
    """Residual standard deviation of the pool."""
    df: int | None
    alpha: float
    """Level of each simultaneous family, after division by the number of looks."""
    seed_correlation: float | None
    sd_ratio: float | None
    """Largest over smallest sd of an arm; None: fewer than two arms have one, or the smallest is 0."""
    guard: CochranTest | None
    """Of the whole pool, before any arm left it."""
    welch_arms: tuple[Hashable, ...]
    seeds_for_margin: SeedsNeeded
    """To find an effect as large as the declared margin."""
    findings: tuple[Finding, ...]


def seeds_needed(effect: float, s: float, *, arms: int, alpha: float, blocked: bool = True) -> SeedsNeeded:
    """`seeds_to_detect` as the table shows it: ">50" beyond 50."""
    return seeds_to_detect(effect, s, arms=arms, alpha=alpha, blocked=blocked) or f">{MOST_SEEDS}"
