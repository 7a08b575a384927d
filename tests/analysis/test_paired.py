import numpy as np
import pytest
from scipy import stats

from ftx.analysis.error import AnalysisError
from ftx.analysis.paired import (
    clustered_mean,
    clustered_mean_difference,
    mcnemar,
    paired_mean_difference,
    uncorrected_cluster_se,
)


def test_mcnemar_golden(golden, close) -> None:
    known = golden["mcnemar"]
    test = mcnemar(known["only_a_right"], known["only_b_right"], known["n"])
    assert test.exact_p == close(known["exact_p"])
    assert test.difference == close(known["difference_b_minus_a"])
    assert test.se == close(known["se_paired"])
    assert test.normal_p == close(known["p_normal"])


def test_mcnemar_edges() -> None:
    assert mcnemar(1, 2, 10).exact_p == 1.0
    assert mcnemar(0, 6, 10).exact_p == pytest.approx(2 / 64)
    same = mcnemar(0, 0, 10)
    assert (same.exact_p, same.difference, same.se, same.normal_p) == (1.0, 0.0, 0.0, None)
    with pytest.raises(AnalysisError, match="a 6, b 5, n 10"):
        mcnemar(6, 5, 10)


def test_survivors_golden(golden, close) -> None:
    known = golden["diverged_runs"]
    pairs = [(a, b) for a, b in zip(known["baseline"], known["arm"], strict=True) if b is not None]
    found = paired_mean_difference([a for a, _ in pairs], [b for _, b in pairs])
    assert found.difference == close(known["survivors_paired"]["effect"])
    assert found.p == close(known["survivors_paired"]["p"])
    assert found.ci_low > 0  # the trap: it looks like an effect


def test_paired_is_scipys() -> None:
    a, b = [1.0, 2.0, 3.0, 5.0], [1.5, 1.8, 4.0, 6.5]
    found, theirs = paired_mean_difference(a, b, alpha=0.1), stats.ttest_rel(b, a)
    assert (found.p, found.df) == (pytest.approx(theirs.pvalue), 3)
    low, high = theirs.confidence_interval(0.9)
    assert (found.ci_low, found.ci_high) == pytest.approx((low, high))


def test_no_variation_has_no_p() -> None:
    found = paired_mean_difference([0.0, 1.0], [1.0, 2.0])
    assert (found.difference, found.se, found.p) == (1.0, 0.0, None)


def test_clustered_golden(golden, close) -> None:
    known = golden["clustered_pairs"]
    differences = np.array(known["differences"], dtype=float)
    clusters = [place // known["clusters_of"] for place in range(differences.size)]
    assert paired_mean_difference(0 * differences, differences).se == close(known["se_iid"])
    assert uncorrected_cluster_se(differences, clusters) == close(known["se_clustered"])
    found = clustered_mean(differences, clusters)
    assert found.se == close(known["se_clustered_small_sample"])
    assert found.df == 9
    assert found.p == pytest.approx(2 * stats.t.sf(found.difference / found.se, 9))
    both = clustered_mean_difference(np.ones(50), 1 + differences, clusters)
    assert (both.difference, both.se) == pytest.approx((found.difference, found.se))


def test_many_clusters_are_normal_and_uncorrected() -> None:
    values = np.random.default_rng(0).normal(size=80)
    found = clustered_mean(values, [place // 2 for place in range(80)])
    assert found.df is None
    assert found.se == pytest.approx(uncorrected_cluster_se(values, [place // 2 for place in range(80)]))
    assert found.ci_high - found.difference == pytest.approx(1.959964 * found.se)


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [([1.0, 2.0], [1.0], "a has 2 examples and b has 1"), ([1.0], [2.0], "one pair"), ([], [], "at least one number")],
)
def test_refused(a: list[float], b: list[float], words: str) -> None:
    with pytest.raises(AnalysisError, match=words):
        paired_mean_difference(a, b)


def test_one_cluster_is_refused() -> None:
    with pytest.raises(AnalysisError, match="one cluster only"):
        clustered_mean([1.0, 2.0], ["x", "x"])
