"""The variance guard: an arm much noisier than the rest leaves the pool and is compared by Welch's t."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from ftx.analysis.distributions import Array, f_upper, t_two_sided
from ftx.analysis.least_squares import levels_of

GUARD_ALPHA = 0.01


@dataclass(frozen=True)
class CochranTest:
    """Whether the noisiest arm is too noisy to share a variance with the others."""

    arm: Hashable
    """The arm with the largest variance."""
    c: float
    """Its share of the sum of the arms' variances."""
    p: float

    @property
    def flagged(self) -> bool:
        """Whether the arm leaves the pool."""
        return self.p < GUARD_ALPHA


@dataclass(frozen=True)
class WelchComparison:
    """Arm minus baseline, each with its own variance, not paired by seed."""

    effect: float
    se: float
    t: float
    df: float
    p: float


def cochran_test(arms: Sequence[Hashable], deviations: Array) -> CochranTest | None:
    """Cochran's C on each run's deviation from its arm's mean (n,), over the arms with two runs or more.

    p is min(1, A F.sf((A-1) C / (1-C); k-1, (A-1)(k-1))), with the smallest k where the arms differ in their number of
    runs (Cochran 1941). None: fewer than two such arms, or no deviation at all.
    """
    groups = {arm: deviations[[other == arm for other in arms]] for arm in levels_of(arms)}
    groups = {arm: values for arm, values in groups.items() if values.size >= 2}
    variances = np.array([float(values @ values) / (values.size - 1) for values in groups.values()])
    if variances.size < 2 or variances.sum() <= 0:
        return None
    count, k = variances.size, min(values.size for values in groups.values())
    largest = int(np.argmax(variances))
    rest = float(variances.sum() - variances[largest])
    ratio = np.inf if rest <= 0 else (count - 1) * float(variances[largest]) / rest
    return CochranTest(
        arm=list(groups)[largest],
        c=float(variances[largest] / variances.sum()),
        p=min(1.0, count * f_upper(ratio, k - 1, (count - 1) * (k - 1))),
    )


def variance_guard(arms: Sequence[Hashable], values: Array, residuals: Array) -> CochranTest | None:
    """The more suspicious of two looks: residuals after the seed blocks, and values about their arm's mean, all (n,).

    Blocks take out what the seeds share, which hides a noisy arm in the values; but they spread an arm's noise over the
    others, so that among four arms with three seeds no residual could reach p < .01. Both tests are conservative.
    """
    means = {arm: float(values[[other == arm for other in arms]].mean()) for arm in levels_of(arms)}
    tests = (cochran_test(arms, residuals), cochran_test(arms, values - np.array([means[arm] for arm in arms])))
    return min((test for test in tests if test is not None), key=lambda test: test.p, default=None)


def welch(arm: Array, baseline: Array) -> WelchComparison | None:
    """Welch's t of two groups of values; None: a group of fewer than two, or no variance in either."""
    if min(arm.size, baseline.size) < 2:
        return None
    parts = np.array([arm.var(ddof=1) / arm.size, baseline.var(ddof=1) / baseline.size])
    if parts.sum() <= 0:
        return None
    effect, se = float(arm.mean() - baseline.mean()), float(np.sqrt(parts.sum()))
    df = float(parts.sum() ** 2 / np.sum(parts**2 / np.array([arm.size - 1, baseline.size - 1])))
    return WelchComparison(effect=effect, se=se, t=effect / se, df=df, p=t_two_sided(effect / se, df))


def holm(p_values: Sequence[float] | Array) -> Array:
    """Holm's step-down adjusted p (m,), in the order given."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted
