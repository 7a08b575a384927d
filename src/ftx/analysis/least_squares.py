"""Ordinary least squares on a design matrix that may lack rank, without ever inventing an answer.

A contrast that the design cannot estimate is refused; where it can, the answer does not depend on which of the
dependent columns were left out.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from ftx.analysis.distributions import Array
from ftx.analysis.error import AnalysisError

_RANK_TOLERANCE = 1e-9
_ESTIMABLE_TOLERANCE = 1e-7


@dataclass(frozen=True)
class LeastSquares:
    """A fit of `n` responses on `p` columns, of which `rank` are independent."""

    kept: tuple[int, ...]
    """The independent columns, ascending; the others have coefficient 0."""
    coefficients: Array
    """(p,)."""
    unscaled_covariance: Array
    """(rank, rank): the inverse of X'X over the kept columns; times s^2 it is their covariance."""
    dependence: Array
    """(rank, p): every column as a combination of the kept ones."""
    residuals: Array
    """(n,)."""
    df: int
    """n - rank."""

    @property
    def rank(self) -> int:
        """Number of independent columns."""
        return len(self.kept)

    @property
    def residual_ss(self) -> float:
        """Residual sum of squares."""
        return float(self.residuals @ self.residuals)

    @property
    def variance(self) -> float | None:
        """Residual mean square s^2; None without degrees of freedom."""
        return self.residual_ss / self.df if self.df > 0 else None

    def estimable(self, contrasts: Array) -> list[bool]:
        """Say for each row of `contrasts` (q, p) whether it is a combination of the design's rows."""
        implied = contrasts[:, self.kept] @ self.dependence
        gap = np.max(np.abs(implied - contrasts), axis=1, initial=0.0)
        return [bool(small) for small in gap <= _ESTIMABLE_TOLERANCE]

    def estimate(self, contrasts: Array) -> tuple[Array, Array]:
        """Values (q,) and unscaled covariance (q, q) of the contrasts (q, p). AnalysisError if one is inestimable."""
        refused = [index for index, fine in enumerate(self.estimable(contrasts)) if not fine]
        if refused:
            raise AnalysisError(f"contrast {refused[0]} is not estimable: the design has rank {self.rank}")
        kept = contrasts[:, self.kept]
        return contrasts @ self.coefficients, kept @ self.unscaled_covariance @ kept.T


def fit(design: Array, response: Array) -> LeastSquares:
    """Fit `response` (n,) on `design` (n, p) by a pivoted QR factorisation, which shows the rank."""
    q, r, pivots = linalg.qr(design, mode="economic", pivoting=True)
    diagonal = np.abs(np.diag(r))
    rank = int(np.sum(diagonal > _RANK_TOLERANCE * max(diagonal[0], 1.0)))
    top = r[:rank, :rank]
    coefficients = np.zeros(design.shape[1])
    coefficients[pivots[:rank]] = linalg.solve_triangular(top, q[:, :rank].T @ response)
    inverse = linalg.solve_triangular(top, np.eye(rank))
    dependence = np.zeros((rank, design.shape[1]))
    dependence[:, pivots] = linalg.solve_triangular(top, r[:rank])
    order = np.argsort(pivots[:rank])
    return LeastSquares(
        kept=tuple(int(column) for column in pivots[:rank][order]),
        coefficients=coefficients,
        unscaled_covariance=(inverse @ inverse.T)[np.ix_(order, order)],
        dependence=dependence[order],
        residuals=response - design @ coefficients,
        df=design.shape[0] - rank,
    )


def rank_of(design: Array) -> int:
    """Number of independent columns, by the same rule as `fit`."""
    return fit(design, np.zeros(design.shape[0])).rank


def indicators(labels: Sequence[Hashable], levels: Sequence[Hashable]) -> Array:
    """A column of 0 and 1 for each of `levels`: (n, len(levels))."""
    place = {level: column for column, level in enumerate(levels)}
    columns = np.zeros((len(labels), len(levels)))
    for row, label in enumerate(labels):
        if label in place:
            columns[row, place[label]] = 1.0
    return columns


def levels_of(labels: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """The distinct labels, in the order in which they appear."""
    return tuple(dict.fromkeys(labels))


def checked_values(values: Sequence[float] | Array, labels: Mapping[str, Sequence[Hashable]]) -> Array:
    """`values` as a float array (n,). AnalysisError: none at all, labels of another length, or a value not finite."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise AnalysisError(f"values must be one row of at least one number, got shape {array.shape}")
    for name, given in labels.items():
        if len(given) != array.size:
            raise AnalysisError(f"{name} has {len(given)} entries for {array.size} values; give one for each value")
    if not np.all(np.isfinite(array)):
        where = int(np.flatnonzero(~np.isfinite(array))[0])
        raise AnalysisError(
            f"values[{where}] is {array[where]}: leave failed runs out and count them, never average them"
        )
    return array


def vanishes(residual_ss: float, values: Array) -> bool:
    """Whether a residual sum of squares is rounding: below 1e-20 of the total, or of the size of float error."""
    centred = values - values.mean()
    floor = values.size * (4.0 * np.finfo(np.float64).eps * float(np.max(np.abs(values)))) ** 2
    return residual_ss <= max(1e-20 * float(centred @ centred), floor)
