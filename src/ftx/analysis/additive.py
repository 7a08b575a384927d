"""The model of a one-factor-at-a-time study: y[arm, seed] = mu + arm + seed + error, arms against one baseline.

One fit serves balanced designs, missing seeds and arms with a single seed: it pairs by seed where it can and pools the
variance over all arms.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from ftx.analysis import least_squares
from ftx.analysis.distributions import Array
from ftx.analysis.error import AnalysisError
from ftx.analysis.least_squares import checked_values, indicators, levels_of, vanishes


@dataclass(frozen=True)
class AdditiveFit:
    """Effects of the arms that can be compared with the baseline, and the noise they share."""

    baseline: Hashable
    arms: tuple[Hashable, ...]
    """The m arms whose effect is estimable, without the baseline."""
    inestimable: tuple[tuple[Hashable, str], ...]
    """Arms that no chain of common seeds joins to the baseline, with the reason in words."""
    effects: Array
    """(m,): arm minus baseline, in the metric's unit."""
    unscaled_covariance: Array
    """(m, m): covariance of the effects divided by s^2."""
    residuals: Array
    """(n,): in the order of the values given."""
    df: int
    s: float | None
    """Residual standard deviation; None without degrees of freedom, or where the residuals vanish."""
    exact: bool
    """There are degrees of freedom, and the model leaves no residual: nothing is known about noise."""

    @property
    def correlation(self) -> Array:
        """(m, m) correlation of the estimated effects."""
        scale = np.sqrt(np.diag(self.unscaled_covariance))
        correlation: Array = self.unscaled_covariance / np.outer(scale, scale)
        return correlation

    @property
    def standard_errors(self) -> Array | None:
        """(m,) standard errors of the effects; None where s is unknown."""
        return None if self.s is None else self.s * np.sqrt(np.diag(self.unscaled_covariance))

    @property
    def t(self) -> Array | None:
        """(m,) effects over their standard errors; None where s is unknown."""
        errors = self.standard_errors
        return None if errors is None else self.effects / errors


def fit_additive(
    arms: Sequence[Hashable],
    seeds: Sequence[Hashable],
    values: Sequence[float] | Array,
    *,
    baseline: Hashable,
    blocked: bool = True,
) -> AdditiveFit:
    """Fit the finished runs, one entry each in `arms`, `seeds` and `values`; `blocked=False` leaves the seeds out.

    AnalysisError: no values, a value that is not finite, a run given twice, or no run of the baseline.
    """
    y = checked_values(values, {"arms": arms, "seeds": seeds})
    others = _compared(arms, seeds, baseline)
    blocks = levels_of(seeds)[1:] if blocked else ()
    design = np.hstack([np.ones((y.size, 1)), indicators(arms, others), indicators(seeds, blocks)])
    fit = least_squares.fit(design, y - y.mean())
    contrasts = np.eye(len(others), design.shape[1], k=1)
    fine = fit.estimable(contrasts)
    effects, covariance = fit.estimate(contrasts[np.array(fine, dtype=bool)])
    exact = fit.df > 0 and vanishes(fit.residual_ss, y)
    return AdditiveFit(
        baseline=baseline,
        arms=tuple(arm for arm, known in zip(others, fine, strict=True) if known),
        inestimable=tuple((arm, _reason(arm)) for arm, known in zip(others, fine, strict=True) if not known),
        effects=effects,
        unscaled_covariance=covariance,
        residuals=fit.residuals,
        df=fit.df,
        s=None if exact or fit.variance is None else float(np.sqrt(fit.variance)),
        exact=exact,
    )


def _compared(arms: Sequence[Hashable], seeds: Sequence[Hashable], baseline: Hashable) -> list[Hashable]:
    """The arms other than the baseline, in order of appearance, once the labels are known to be sound."""
    present = levels_of(arms)
    if baseline not in present:
        listed = ", ".join(str(arm) for arm in present)
        raise AnalysisError(f"baseline {baseline!r} has no finished run; the arms with runs are {listed}")
    seen: set[tuple[Hashable, Hashable]] = set()
    for run in zip(arms, seeds, strict=True):
        if run in seen:
            raise AnalysisError(f"arm {run[0]!r} has two runs of seed {run[1]!r}; keep one of them")
        seen.add(run)
    return [arm for arm in present if arm != baseline]


def _reason(arm: Hashable) -> str:
    return f"{arm}: cannot be separated from the seeds, no chain of common seeds joins it to the baseline"
