import time

import numpy as np
import pytest
from scipy import stats

from ftx.analysis import dunnett
from ftx.analysis.dunnett import (
    adjusted_p_values,
    balanced_critical_value,
    balanced_loadings,
    critical_value,
    factor_structure,
    one_factor,
    tail_probability,
)
from ftx.analysis.error import AnalysisError


def product(loadings: list[float]) -> np.ndarray:
    correlation = np.outer(loadings, loadings)
    np.fill_diagonal(correlation, 1.0)
    return correlation


def test_1955_data_golden(golden) -> None:
    known = golden["dunnett_1955"]
    groups = [np.array(known[name]) for name in ("control", "a", "b")]
    df = sum(group.size - 1 for group in groups)
    s = np.sqrt(sum(((group - group.mean()) ** 2).sum() for group in groups) / df)
    control = groups[0]
    t = [(g.mean() - control.mean()) / (s * np.sqrt(1 / g.size + 1 / control.size)) for g in groups[1:]]
    assert t == pytest.approx(known["t"], rel=1e-9)
    correlation = product([np.sqrt(g.size / (g.size + control.size)) for g in groups[1:]])
    assert adjusted_p_values(np.array(t), correlation, df) == pytest.approx(known["p"], rel=1e-7)
    assert critical_value(correlation, df) == pytest.approx(known["crit"], rel=1e-8)


@pytest.mark.parametrize(
    ("arms", "df", "expected"),
    # Dunnett's published two-sided 5% table (1964).
    [(1, 10, 2.23), (2, 10, 2.57), (4, 10, 2.89), (9, 20, 2.95), (3, 5, 3.29), (5, 60, 2.58)],
)
def test_published_critical_values(arms: int, df: int, expected: float) -> None:
    assert balanced_critical_value(arms, df) == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize("df", [1, 2, 5, 30, 1000])
def test_limits(df: int) -> None:
    for loadings in (balanced_loadings(4), np.array([0.3, 0.9, 0.99])):
        assert tail_probability(0.0, loadings, df) == pytest.approx(1.0, abs=1e-9)
        raw, far = 2 * stats.t.sf(30, df), tail_probability(30.0, loadings, df)
        assert raw < far < loadings.size * raw * (1 + 1e-9)
    # Loadings of 1 are taken for 0.995, which errs on the side of caution.
    raw, almost = 2 * stats.t.sf(2.0, df), tail_probability(2.0, np.ones(3), df)
    assert raw < almost < 1.25 * raw


def test_independent_arms_are_sidaks() -> None:
    expected = 1 - (1 - 2 * stats.norm.sf(2)) ** 3
    assert tail_probability(2.0, np.zeros(3), 1e7) == pytest.approx(expected, rel=1e-6)


def test_against_a_simulation() -> None:
    rng = np.random.default_rng(1)
    loadings, df, n = np.array([0.4, 0.7, 0.9]), 6, 200_000
    z = np.sqrt(1 - loadings**2) * rng.normal(size=(n, 3)) + loadings * rng.normal(size=(n, 1))
    largest = np.abs(z / np.sqrt(rng.chisquare(df, size=(n, 1)) / df)).max(axis=1)
    for c in (1.0, 2.5, 4.0):
        share = float((largest >= c).mean())
        assert tail_probability(c, loadings, df) == pytest.approx(share, abs=4 * np.sqrt(share / n))


def test_critical_value_and_tail_are_inverse() -> None:
    for arms, df, alpha in ((2, 3, 0.05), (6, 12, 0.01), (30, 62, 0.05), (3, 2, 0.0125)):
        c = balanced_critical_value(arms, df, alpha)
        assert tail_probability(c, balanced_loadings(arms), df) == pytest.approx(alpha, rel=1e-7)
        assert stats.t.isf(alpha / 2, df) < c < stats.t.isf(alpha / 2 / arms, df)


def test_one_factor_finds_the_loadings_or_says_no() -> None:
    loadings, exact = one_factor(product([0.3, 0.6, 0.8, 0.95]))
    assert exact
    assert loadings == pytest.approx([0.3, 0.6, 0.8, 0.95], abs=1e-7)
    broken = product([0.7, 0.7, 0.7, 0.7])
    broken[0, 1] = broken[1, 0] = 0.6
    assert not one_factor(broken)[1]


def test_factors_of_a_balanced_design_are_blocks() -> None:
    # Two factors of three levels, arms interleaved: .5 within a factor, 0 between them.
    correlation = np.array([[1, 0, 0.5, 0], [0, 1, 0, 0.5], [0.5, 0, 1, 0], [0, 0.5, 0, 1]])
    loadings, blocks, exact = factor_structure(correlation)
    assert exact
    assert list(blocks) == [0, 1, 0, 1]
    within = tail_probability(2.2, balanced_loadings(2), 1e7)
    both = tail_probability(2.2, loadings, 1e7, blocks)
    assert both == pytest.approx(1 - (1 - within) ** 2, rel=1e-6)  # S is known, so the factors are independent
    few = tail_probability(2.2, loadings, 6, blocks)
    assert few == pytest.approx(dunnett._sampled_tail(2.2, correlation, 6), abs=5e-5)
    assert adjusted_p_values(np.array([2.2]), correlation[:1, :1], 6) < few


def test_a_chain_of_correlations_is_one_block() -> None:
    correlation = np.eye(4)
    for a, b in ((0, 3), (3, 1), (1, 2)):
        correlation[a, b] = correlation[b, a] = 0.3
    _, blocks, exact = factor_structure(correlation)
    assert list(blocks) == [0, 0, 0, 0]
    assert not exact


def test_general_correlation_by_sampling_is_near_the_nearest_factor_and_repeatable() -> None:
    correlation = product([0.7, 0.7, 0.7])
    correlation[0, 1] = correlation[1, 0] = -0.2  # no product of real loadings has these signs
    assert not one_factor(correlation)[1]
    t = np.array([2.5, -2.5, 30.0])
    first, again = adjusted_p_values(t, correlation, 8), adjusted_p_values(t, correlation, 8)
    assert np.array_equal(first, again)
    assert first[0] == first[1]
    raw = 2 * stats.t.sf(np.abs(t), 8)
    assert np.all((raw <= first) & (first <= 3 * raw))
    assert raw[2] < first[2]  # far out, where the sample knows nothing, still adjusted


def test_sampling_and_quadrature_agree_where_both_apply() -> None:
    correlation = product([0.5, 0.7, 0.6])
    exact = tail_probability(2.4, np.array([0.5, 0.7, 0.6]), 9)
    assert dunnett._sampled_tail(2.4, correlation, 9) == pytest.approx(exact, abs=5e-5)


def test_fast_enough_for_a_planner() -> None:
    balanced_critical_value.cache_clear()
    start = time.process_time()
    for df in (8, 12, 16, 20):
        balanced_critical_value(4, df)
    assert time.process_time() - start < 1.0  # some 15 ms each


@pytest.mark.parametrize(("arms", "df", "alpha"), [(0, 5, 0.05), (2, 0, 0.05), (2, 5, 1.0)])
def test_refused(arms: int, df: int, alpha: float) -> None:
    with pytest.raises(AnalysisError, match="needs an arm"):
        balanced_critical_value(arms, df, alpha)
