import numpy as np
import pytest

from ftx.analysis import least_squares
from ftx.analysis.error import AnalysisError


def test_a_line_by_hand() -> None:
    fit = least_squares.fit(np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([0.0, 2.0, 1.0]))
    assert fit.coefficients == pytest.approx([0.5, 0.5])
    assert fit.residual_ss == pytest.approx(1.5)
    assert (fit.rank, fit.df, fit.variance) == (2, 1, pytest.approx(1.5))
    _, covariance = fit.estimate(np.array([[0.0, 1.0]]))
    assert covariance == pytest.approx(np.array([[0.5]]))


def test_what_dependent_columns_allow_and_refuse() -> None:
    # The third column is the sum of the first two: only x0 + x2 and x1 + x2 are known.
    design = np.array([[1.0, 0, 1], [1, 0, 1], [0, 1, 1], [0, 1, 1]])
    fit = least_squares.fit(design, np.array([1.0, 3.0, 10.0, 12.0]))
    assert (fit.rank, fit.df) == (2, 2)
    known, unknown = np.array([[1.0, 0, 1], [1, -1, 0]]), np.array([[1.0, 0, 0]])
    assert fit.estimable(np.vstack([known, unknown])) == [True, True, False]
    values, covariance = fit.estimate(known)
    assert values == pytest.approx([2.0, -9.0])
    assert np.diag(covariance) == pytest.approx([0.5, 1.0])
    with pytest.raises(AnalysisError, match="not estimable: the design has rank 2"):
        fit.estimate(unknown)


def test_the_answer_does_not_depend_on_the_order_of_columns() -> None:
    rng = np.random.default_rng(0)
    design = rng.normal(size=(12, 3)) @ rng.normal(size=(3, 5))
    response, order = rng.normal(size=12), rng.permutation(5)
    contrast = design[:1]
    a, b = least_squares.fit(design, response), least_squares.fit(design[:, order], response)
    assert a.rank == b.rank == 3
    assert a.estimate(contrast)[0] == pytest.approx(b.estimate(contrast[:, order])[0])
    assert a.estimate(contrast)[1] == pytest.approx(b.estimate(contrast[:, order])[1])
