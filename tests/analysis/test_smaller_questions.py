"""Equivalence, proportions, selection, looks, seed correlation, variance components."""

import numpy as np
import pytest

from ftx.analysis.equivalence import equivalence_test
from ftx.analysis.error import AnalysisError
from ftx.analysis.looks import FAMILY_WISE_ERROR, alpha_per_look, looks_note
from ftx.analysis.outcomes import outcome
from ftx.analysis.proportions import wilson_interval
from ftx.analysis.seed_correlation import mean_seed_correlation
from ftx.analysis.selection import expected_maximum
from ftx.analysis.variance_components import variance_components


def test_equivalence_golden(golden, close) -> None:
    study = golden["ofat_balanced"]
    for arm, expected in study["equivalence_margin_0.01"].items():
        effect, se = study["arms"][arm]["effect"], study["arms"][arm]["se"]
        test = equivalence_test(effect, se, study["df"], margin=0.01)
        assert test.p == close(expected["p_pooled"])
        assert [test.ci_low, test.ci_high] == [close(bound) for bound in expected["ci90"]]
        assert (test.p < 0.05) == (test.ci_low > -0.01 and test.ci_high < 0.01)


@pytest.mark.parametrize("margin", [0.0, -1.0, float("nan"), float("inf")])
def test_a_margin_is_positive(margin: float) -> None:
    with pytest.raises(AnalysisError, match="margin must be a positive number"):
        equivalence_test(0.0, 1.0, 5, margin=margin)


def test_wilson_golden(golden, close) -> None:
    assert list(wilson_interval(2, 5)) == [close(x) for x in golden["diverged_runs"]["wilson_95_failure_rate"]]


def test_wilson_edges() -> None:
    assert wilson_interval(0, 4) == (0.0, pytest.approx(0.489890, abs=1e-6))
    assert wilson_interval(4, 4) == (pytest.approx(0.510110, abs=1e-6), 1.0)
    for count, total in ((1, 0), (3, 2), (-1, 2)):
        with pytest.raises(AnalysisError, match=f"got {count} of {total}"):
            wilson_interval(count, total)


def test_expected_maximum_golden(golden, close) -> None:
    for m, expected in golden["expected_maximum_of_m_in_sd"].items():
        assert expected_maximum(int(m)) == close(expected), m
    assert expected_maximum(1) == pytest.approx(0.0, abs=1e-12)
    assert expected_maximum(2) == pytest.approx(1 / np.sqrt(np.pi), rel=1e-12)
    with pytest.raises(AnalysisError, match="at least 1, got 0"):
        expected_maximum(0)


def test_seed_correlation_golden(golden, golden_runs, close) -> None:
    _, _, values = golden_runs("ofat_balanced.csv")
    found = mean_seed_correlation(np.array(values).reshape(5, 3))
    assert found == close(golden["ofat_balanced"]["mean_pairwise_seed_correlation"])


def test_seed_correlation_edges() -> None:
    nan = np.nan
    assert mean_seed_correlation(np.array([[1.0, 2, 3], [3, 2, 1]])) == pytest.approx(-1.0)
    assert mean_seed_correlation(np.array([[1.0, 2, 3], [0.1, 0.1, 0.1]])) is None
    assert mean_seed_correlation(np.array([[1.0, 2, 3, nan], [nan, 2, 1, 0]])) is None
    assert mean_seed_correlation(np.array([[1.0, 2, 3, 9], [2, 4, 6, nan]])) == pytest.approx(1.0)
    assert mean_seed_correlation(np.array([[1.0, 2, 3]])) is None


def test_looks() -> None:
    assert alpha_per_look(0.05, 2) == 0.025
    assert FAMILY_WISE_ERROR == {1: 0.051, 2: 0.087, 3: 0.119, 4: 0.145}
    assert "2 looks" in looks_note(2)
    assert "in 8.7% of cases" in looks_note(2)
    assert "at least 14.5%" in looks_note(7)
    with pytest.raises(AnalysisError, match="looks must be at least 1, got 0"):
        alpha_per_look(0.05, 0)
    with pytest.raises(AnalysisError, match="alpha must lie"):
        alpha_per_look(5, 1)


@pytest.mark.parametrize(
    ("status", "value", "expected"),
    [
        (None, 0.5, "ok"),
        ("finished", 0.5, "ok"),
        ("finished", float("nan"), "failed"),
        (None, None, "failed"),
        (None, float("inf"), "failed"),
        ("diverged", 0.5, "failed"),
        ("out_of_memory", None, "failed"),
        ("killed", 0.5, "missing"),
        ("interrupted", None, "missing"),
        ("not_started", None, "missing"),
    ],
)
def test_outcomes(status: str | None, value: float | None, expected: str) -> None:
    assert outcome(status, value) == expected


def test_an_unknown_status_is_refused() -> None:
    with pytest.raises(AnalysisError, match="status 'exploded' is not known; expected one of ok, finished, failed"):
        outcome("exploded", 1.0)


def test_variance_components_by_hand() -> None:
    # Seeds differ by 2, items by 4, nothing else: MS_seed = 4 (2 items), MS_item = 16 (2 seeds), MS_rest = 0.
    found = variance_components(np.array([[0.0, 4.0], [2.0, 6.0]]))
    assert (found.mean, found.seed, found.item, found.rest) == pytest.approx((3.0, 2.0, 8.0, 0.0))
    assert found.se_new_seeds == pytest.approx(1.0)
    assert found.se_new_items == pytest.approx(2.0)
    assert found.se_new_both == pytest.approx(np.sqrt(5.0))


def test_variance_components_are_truncated_at_zero() -> None:
    found = variance_components(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert (found.seed, found.item, found.rest) == (0.0, 0.0, pytest.approx(1.0))
    assert found.se_new_seeds == pytest.approx(0.5)


def test_variance_components_recover_what_was_put_in() -> None:
    rng = np.random.default_rng(2)
    scores = 3 * rng.normal(size=(60, 1)) + 2 * rng.normal(size=(1, 400)) + rng.normal(size=(60, 400))
    found = variance_components(scores)
    assert found.seed == pytest.approx(9.0, rel=0.4)
    assert found.item == pytest.approx(4.0, rel=0.2)
    assert found.rest == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("scores", [np.zeros((1, 5)), np.zeros((5, 1)), np.zeros(5), np.array([[1.0, np.nan], [1, 2]])])
def test_variance_components_refuse(scores: np.ndarray) -> None:
    with pytest.raises(AnalysisError):
        variance_components(scores)
