"""Which arms share a variance, and the effect of every arm: pooled, or by Welch's t where the guard objects."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from ftx.analysis.additive import AdditiveFit, fit_additive
from ftx.analysis.distributions import t_critical
from ftx.analysis.effects import Effect, Inference, simultaneous_effects
from ftx.analysis.guard import CochranTest, WelchComparison, holm, variance_guard, welch
from ftx.analysis.runs import ArmRuns


@dataclass(frozen=True)
class Pool:
    """The additive fit over the arms that share a variance."""

    fit: AdditiveFit
    guard: CochranTest | None
    """Of all arms, before any left."""
    noisy: tuple[Hashable, ...]
    """Arms to which the guard objects."""

    @property
    def baseline_noisy(self) -> bool:
        """Whether the guard objects to the baseline itself."""
        return self.fit.baseline in self.noisy

    def shares_variance(self, arm: Hashable) -> bool:
        """Whether `arm` is compared with the pooled variance."""
        return not self.baseline_noisy and arm not in self.noisy


def pool_arms(runs: Mapping[Hashable, ArmRuns], baseline: Hashable, left_out: Mapping[Hashable, str]) -> Pool | None:
    """Fit, and fit again without the noisiest arm while the guard objects. None: the baseline has no finished run."""
    if not runs[baseline].values:
        return None
    pooled = [arm for arm in runs if arm not in left_out]
    first: CochranTest | None = None
    noisy: list[Hashable] = []
    while True:
        labels = [arm for arm in pooled for _ in runs[arm].values]
        seeds = [seed for arm in pooled for seed in runs[arm].values]
        values = np.concatenate([runs[arm].array for arm in pooled])
        fit = fit_additive(labels, seeds, values, baseline=baseline)
        test = None if fit.s is None else variance_guard(labels, values, fit.residuals)
        first = first or test
        if test is None or not test.flagged:
            break
        noisy.append(test.arm)
        if test.arm == baseline:
            break
        pooled.remove(test.arm)
    return Pool(fit, first, tuple(noisy))


def welch_arms(
    runs: Mapping[Hashable, ArmRuns], pool: Pool, degenerate: Mapping[Hashable, str]
) -> tuple[Hashable, ...]:
    """Arms that have left the pool: the noisy ones, or, where the baseline is noisy, every arm."""
    if not pool.baseline_noisy:
        return pool.noisy
    return tuple(arm for arm in runs if arm != pool.fit.baseline and arm not in degenerate)


def arm_effects(
    runs: Mapping[Hashable, ArmRuns],
    baseline: Hashable,
    degenerate: Mapping[Hashable, str],
    pool: Pool | None,
    alpha: float,
    families: Mapping[Hashable, Hashable] | None,
) -> dict[Hashable, Effect]:
    """The effect of every arm that has one."""
    if pool is None:
        return {}
    found = simultaneous_effects(pool.fit, alpha=alpha, families=families)
    compared = {arm: welch(runs[arm].array, runs[baseline].array) for arm in welch_arms(runs, pool, degenerate)}
    for arm in compared.keys() & found.keys():
        found[arm] = Effect(found[arm].effect)  # the pool's variance does not hold for it
    found.update(_holm_effects({arm: test for arm, test in compared.items() if test is not None}, alpha))
    for arm in runs:
        shared = runs[arm].shared_with(runs[baseline])
        if arm != baseline and arm not in found and shared:
            gaps = [runs[arm].values[seed] - runs[baseline].values[seed] for seed in shared]
            found[arm] = Effect(float(np.mean(gaps)))
    return found


def _holm_effects(tests: Mapping[Hashable, WelchComparison], alpha: float) -> dict[Hashable, Effect]:
    """Welch's comparisons with Holm's p; each interval has the level of its step, so that it agrees with that p."""
    adjusted = holm([test.p for test in tests.values()])
    found: dict[Hashable, Effect] = {}
    for (arm, test), p in zip(tests.items(), adjusted, strict=True):
        factor = min(float(p) / test.p, float(len(tests))) if test.p > 0 and p < 1 else float(len(tests))
        c = t_critical(alpha / factor, test.df)
        inference = Inference(
            se=test.se,
            df=test.df,
            t=test.t,
            p=test.p,
            p_adjusted=float(p),
            critical_value=c,
            ci_low=test.effect - c * test.se,
            ci_high=test.effect + c * test.se,
            family_size=len(tests),
        )
        found[arm] = Effect(test.effect, inference)
    return found
