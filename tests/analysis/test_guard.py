import numpy as np
import pytest
from scipy import stats

from ftx.analysis.guard import cochran_test, holm, variance_guard, welch


def deviations(groups: dict[str, list[float]]) -> tuple[list[str], np.ndarray]:
    labels = [arm for arm, values in groups.items() for _ in values]
    return labels, np.concatenate([np.array(values) - np.mean(values) for values in groups.values()])


@pytest.fixture
def groups(golden_runs) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for arm, _, value in zip(*golden_runs("ofat_balanced.csv"), strict=True):
        found.setdefault(arm, []).append(value)
    return found


def test_cochran_golden(golden, groups, close) -> None:
    test = cochran_test(*deviations(groups))
    known = golden["ofat_balanced"]["cochran_c"]
    assert (test.c, test.p) == (close(known["C"]), close(known["p"]))
    assert not test.flagged


def test_noisy_arm_golden(golden, groups, close) -> None:
    known = golden["ofat_balanced"]["cochran_c_with_a_noisy_arm"]
    test = cochran_test(*deviations(groups | {"noisy": known["arm"]}))
    assert test.arm == "noisy"
    assert test.flagged
    assert (test.c, test.p) == (close(known["C"]), pytest.approx(known["p"], rel=1e-5))
    compared = welch(np.array(known["arm"]), np.array(groups["base"]))
    assert (compared.t, compared.df, compared.p) == tuple(close(known["welch"][name]) for name in ("t", "df", "p"))


def test_cochran_by_hand() -> None:
    # Variances 1 and 4: C = .8; F = 4 on 1 and 1 df, doubled for two arms.
    test = cochran_test(["a", "a", "b", "b"], np.array([1, -1, 2, -2]) / np.sqrt(2))
    assert test.c == pytest.approx(0.8)
    assert test.p == pytest.approx(2 * stats.f.sf(4, 1, 1))
    # A third arm with a single run does not count, longer arms count with the smallest k.
    longer = cochran_test(["a", "a", "b", "b", "b", "c"], np.array([1, -1, 2, -2, 0, 0]))
    assert longer.p == pytest.approx(2 * stats.f.sf(2, 1, 1))


def test_nothing_to_compare() -> None:
    assert cochran_test(["a", "a"], np.array([1.0, -1.0])) is None
    assert cochran_test(["a", "b"], np.array([0.0, 0.0])) is None
    assert cochran_test(["a", "a", "b", "b"], np.zeros(4)) is None


def test_guard_looks_at_both() -> None:
    rng = np.random.default_rng(0)
    labels = [arm for arm in "abcd" for _ in range(3)]
    noise = 0.01 * rng.normal(size=(4, 3))
    noise[2] += [0.5, -0.7, 0.2]
    left = noise - noise.mean(axis=1, keepdims=True) - noise.mean(axis=0) + noise.mean()
    assert not cochran_test(labels, left.ravel()).flagged  # the noise has been spread over the others
    found = variance_guard(labels, noise.ravel(), left.ravel())
    assert (found.arm, found.flagged) == ("c", True)
    # Shared seeds hide the same arm in the values, but not in residuals over more seeds.
    labels = [arm for arm in "abcdef" for _ in range(6)]
    noise = 0.01 * rng.normal(size=(6, 6))
    noise[2] += 0.5 * rng.normal(size=6)
    values = noise + 5 * rng.normal(size=6)
    left = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
    assert not cochran_test(labels, (values - values.mean(axis=1, keepdims=True)).ravel()).flagged
    found = variance_guard(labels, values.ravel(), left.ravel())
    assert (found.arm, found.flagged) == ("c", True)


def test_guard_rarely_objects_to_equal_variances() -> None:
    rng = np.random.default_rng(11)
    labels = [arm for arm in "abcde" for _ in range(4)]
    flags = 0
    for _ in range(1000):
        values = rng.normal(size=(5, 4))
        left = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
        flags += variance_guard(labels, values.ravel(), left.ravel()).flagged
    assert 0 < flags < 30


def test_welch_is_scipys_and_needs_two_and_noise() -> None:
    a, b = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.0, 1.5, 0.7])
    ours, theirs = welch(a, b), stats.ttest_ind(a, b, equal_var=False)
    assert (ours.t, ours.df, ours.p) == pytest.approx((theirs.statistic, theirs.df, theirs.pvalue))
    assert welch(a[:1], b) is None
    assert welch(np.ones(3), np.zeros(3)) is None


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert holm([]).size == 0
