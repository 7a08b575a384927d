import numpy as np
import pytest

from ftx.analysis.additive import fit_additive
from ftx.analysis.dunnett import balanced_critical_value
from ftx.analysis.effects import simultaneous_effects
from ftx.analysis.error import AnalysisError


def test_balanced_golden(golden, golden_runs, close) -> None:
    known = golden["ofat_balanced"]
    fit = fit_additive(*golden_runs(known["file"]), baseline=known["baseline"])
    assert fit.s == close(known["s"])
    assert fit.df == known["df"]
    effects = simultaneous_effects(fit)
    assert list(effects) == list(known["arms"])
    for arm, expected in known["arms"].items():
        noise = effects[arm].inference
        assert noise.critical_value == close(known["critical_value"])
        assert effects[arm].effect == close(expected["effect"])
        for field in ("se", "t", "p_adjusted", "ci_low", "ci_high"):
            assert getattr(noise, field) == close(expected[field]), (arm, field)


def test_tiny_p_keeps_its_digits(golden, golden_runs) -> None:
    effects = simultaneous_effects(fit_additive(*golden_runs("ofat_balanced.csv"), baseline="base"))
    assert effects["lr1e-5"].inference.p_adjusted == pytest.approx(1.552651523e-07, rel=1e-6)
    assert effects["lr3e-4"].inference.p_adjusted == pytest.approx(5.78198289e-06, rel=1e-6)


def test_unblocked_golden(golden, golden_runs, close) -> None:
    known = golden["ofat_balanced"]["unblocked"]
    fit = fit_additive(*golden_runs("ofat_balanced.csv"), baseline="base", blocked=False)
    assert (fit.s, fit.df) == (close(known["s"]), known["df"])
    for arm, effect in simultaneous_effects(fit).items():
        assert effect.inference.critical_value == close(known["critical_value"])
        assert effect.inference.p_adjusted == close(known["p_adjusted"][arm])


def test_missing_seed_and_single_seed_arm_golden(golden, golden_runs, close) -> None:
    known = golden["ofat_with_a_missing_seed_and_a_single_seed_arm"]
    fit = fit_additive(*golden_runs(known["file"]), baseline=known["baseline"])
    assert (fit.s, fit.df) == (close(known["s"]), known["df"])
    effects = simultaneous_effects(fit)
    for arm, expected in known["arms"].items():
        noise = effects[arm].inference
        for field in ("se", "t", "p"):
            if field in expected:
                assert getattr(noise, field) == close(expected[field]), (arm, field)
        if "effect" in expected:
            assert effects[arm].effect == close(expected["effect"])
        if "p_adjusted" in expected:
            assert noise.p_adjusted == pytest.approx(expected["p_adjusted"], abs=expected["p_adjusted_tolerance"])
        tolerance = known["critical_value_tolerance"]
        assert noise.critical_value == pytest.approx(known["critical_value"], abs=tolerance)
        assert noise.p <= noise.p_adjusted <= min(1.0, 5 * noise.p)
    naive = known["naive_difference_of_means"]["warmup"]
    assert abs(effects["warmup"].effect - naive) > 0.005


def test_two_by_two_by_hand() -> None:
    # Differences b - a are 1 and 3: effect 2; residuals +-.5, so SSE = 1 with 1 degree of freedom.
    fit = fit_additive(["a", "a", "b", "b"], [0, 1, 0, 1], [10.0, 20.0, 11.0, 23.0], baseline="a")
    assert fit.effects == pytest.approx([2.0])
    assert fit.df == 1
    assert fit.s == pytest.approx(1.0)
    assert fit.standard_errors == pytest.approx([1.0])  # s * sqrt(2/2)
    assert fit.t == pytest.approx([2.0])
    assert np.abs(fit.residuals) == pytest.approx([0.5] * 4)


def test_balanced_formulas_hold() -> None:
    rng = np.random.default_rng(3)
    table = rng.normal(size=(4, 6)) + 5 * rng.normal(size=6)
    arms, seeds = np.indices(table.shape)
    fit = fit_additive(list(arms.ravel()), list(seeds.ravel()), table.ravel(), baseline=0)
    left = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    assert fit.df == 15
    assert fit.s == pytest.approx(np.sqrt((left**2).sum() / 15))
    assert fit.effects == pytest.approx(table[1:].mean(axis=1) - table[0].mean())
    assert fit.standard_errors == pytest.approx(fit.s * np.sqrt(2 / 6))
    assert fit.correlation == pytest.approx(np.full((3, 3), 0.5) + 0.5 * np.eye(3))


def test_a_baseline_seed_that_no_arm_has_changes_nothing() -> None:
    runs = (["a"] * 3 + ["b"] * 3, [0, 1, 2] * 2, [1.0, 2.0, 4.0, 2.0, 2.5, 5.5])
    less = fit_additive(*runs, baseline="a")
    more = fit_additive([*runs[0], "a"], [*runs[1], 3], [*runs[2], 99.0], baseline="a")
    assert more.effects == pytest.approx(less.effects)
    assert (more.s, more.df) == (pytest.approx(less.s), less.df)


def test_an_arm_without_a_chain_of_seeds_has_no_effect() -> None:
    fit = fit_additive(["a", "a", "b", "b", "c", "c"], [0, 1, 0, 1, 8, 9], [1, 2, 2, 4, 7, 7.5], baseline="a")
    assert fit.arms == ("b",)
    (arm, words), *rest = fit.inestimable
    assert arm == "c"
    assert not rest
    assert "cannot be separated from the seeds" in words


def test_a_chain_through_another_arm_is_enough() -> None:
    # a and c share no seed, but b has both: c - a = (c - b at seed 1) + (b - a at seed 0).
    fit = fit_additive(["a", "b", "b", "c"], [0, 0, 1, 1], [1.0, 2.0, 5.0, 9.0], baseline="a")
    assert dict(zip(fit.arms, fit.effects, strict=True)) == pytest.approx({"b": 1.0, "c": 5.0})
    assert fit.s is None  # no degrees of freedom: an effect, and nothing about noise
    assert fit.standard_errors is None
    assert not fit.exact
    assert simultaneous_effects(fit)["c"].inference is None


def test_one_seed_and_one_arm() -> None:
    one_seed = fit_additive(["a", "b"], [0, 0], [1.0, 3.0], baseline="a")
    assert (list(one_seed.effects), one_seed.s, one_seed.df) == ([pytest.approx(2.0)], None, 0)
    one_arm = fit_additive(["a", "a"], [0, 1], [1.0, 3.0], baseline="a")
    assert (one_arm.arms, one_arm.effects.shape) == ((), (0,))
    assert simultaneous_effects(one_arm) == {}


@pytest.mark.parametrize("values", [[0.7] * 4, [0.1, 0.2, 0.3, 0.4]], ids=["all equal", "exactly additive"])
def test_no_residual_is_no_noise(values: list[float]) -> None:
    fit = fit_additive(["a", "a", "b", "b"], [0, 1, 0, 1], values, baseline="a")
    assert fit.exact
    assert fit.s is None


def test_small_but_real_residuals_are_noise() -> None:
    fit = fit_additive(["a", "a", "b", "b"], [0, 1, 0, 1], [0.7, 0.7, 0.7, 0.7 + 1e-9], baseline="a")
    assert not fit.exact
    assert fit.s == pytest.approx(5e-10, rel=1e-3)


@pytest.mark.parametrize(
    ("arms", "seeds", "values", "words"),
    [
        ([], [], [], "at least one number"),
        (["a", "b"], [0, 0], [1.0, float("nan")], r"values\[1\] is nan"),
        (["a", "b"], [0], [1.0, 2.0], "seeds has 1 entries for 2 values"),
        (["x", "b"], [0, 0], [1.0, 2.0], "baseline 'a' has no finished run; the arms with runs are x, b"),
        (["a", "a"], [0, 0], [1.0, 2.0], "two runs of seed 0"),
    ],
    ids=["empty", "nan", "lengths", "no baseline", "twice"],
)
def test_refused_in_words(arms: list[str], seeds: list[int], values: list[float], words: str) -> None:
    with pytest.raises(AnalysisError, match=words):
        fit_additive(arms, seeds, values, baseline="a")


def test_families_are_adjusted_apart(golden_runs) -> None:
    fit = fit_additive(*golden_runs("ofat_balanced.csv"), baseline="base")
    families = {"r8": "rank", "r64": "rank", "lr3e-4": "lr", "lr1e-5": "lr"}
    study, factor = simultaneous_effects(fit), simultaneous_effects(fit, families=families)
    assert {effect.inference.family_size for effect in factor.values()} == {2}
    for arm in study:
        assert factor[arm].inference.p < factor[arm].inference.p_adjusted < study[arm].inference.p_adjusted
    alone = simultaneous_effects(fit, families={arm: arm for arm in fit.arms})
    assert all(effect.inference.p_adjusted == pytest.approx(effect.inference.p) for effect in alone.values())
    with pytest.raises(AnalysisError, match="no entry for 'lr3e-4'"):
        simultaneous_effects(fit, families={"r8": 1, "r64": 1})


def test_family_wise_error_and_coverage_by_simulation() -> None:
    # 5 arms, 3 seeds that correlate by .8, one true effect of 3 sd; 800 studies.
    rng = np.random.default_rng(20)
    truth = np.array([0.0, 0.0, 0.0, 0.0, 3.0])
    labels, seeds = [arm for arm in range(5) for _ in range(3)], [0, 1, 2] * 5
    c = balanced_critical_value(4, 8)
    false, missed, unadjusted = 0, 0, 0
    for _ in range(800):
        y = truth[:, None] + 2 * rng.normal(size=3) + rng.normal(size=(5, 3))
        fit = fit_additive(labels, seeds, y.ravel(), baseline=0)
        false += bool(np.any(np.abs(fit.t[:3]) > c))
        unadjusted += bool(np.any(np.abs(fit.t[:3]) > 2.306))
        missed += bool(np.any(np.abs(fit.effects - truth[1:]) > c * fit.standard_errors))
    assert abs(missed - 0.05 * 800) < 22  # 3.5 standard errors
    assert 8 < false <= missed
    assert unadjusted > 60  # what the adjustment is for
