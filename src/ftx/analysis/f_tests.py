"""F tests between nested fits."""

from dataclasses import dataclass

import numpy as np

from ftx.analysis.distributions import Array, f_upper
from ftx.analysis.least_squares import LeastSquares, vanishes


@dataclass(frozen=True)
class FTest:
    """One line of the table of F tests; None where the design or the noise gives no test."""

    term: str
    f: float | None
    df1: int
    df2: int
    p: float | None
    note: str | None = None


def f_test(term: str, reduced: LeastSquares, full: LeastSquares, y: Array) -> FTest:
    """What the columns of `full` add to those of `reduced`, over the residual variance of `full`."""
    df1 = full.rank - reduced.rank
    s = residual_sd(full, y)
    if s is None:
        note = "no degrees of freedom left" if full.df == 0 else "the model leaves no residual"
        return FTest(term, None, df1, full.df, None, note)
    f = max(0.0, reduced.residual_ss - full.residual_ss) / df1 / s**2
    return FTest(term, f, df1, full.df, f_upper(f, df1, full.df))


def residual_sd(fit: LeastSquares, y: Array) -> float | None:
    """Residual sd; None without degrees of freedom or where the residuals vanish."""
    if fit.variance is None or vanishes(fit.residual_ss, y):
        return None
    return float(np.sqrt(fit.variance))
