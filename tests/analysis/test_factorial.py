import numpy as np
import pytest
from scipy import stats

from ftx.analysis.error import AnalysisError
from ftx.analysis.factorial import analyse_factorial


def two_by_two(golden):
    rows = [(rank, lr, seed, y) for rank, lr, ys in golden["rows"] if ys for seed, y in enumerate(ys)]
    ranks, rates, seeds, values = zip(*rows, strict=True)
    return {"lora.rank": ranks, "C": rates}, list(seeds), list(values)


def test_missing_cell_golden(golden, close) -> None:
    known = golden["factorial_2x2_missing_cell"]
    factors, seeds, values = two_by_two(known)
    right = known["rank_effect"]
    found = analyse_factorial(factors, values)
    effect = found.factors[0].contrasts["r32"]
    assert effect.effect == close(right["right"])
    noise = effect.inference
    assert (noise.se, noise.t, noise.p, noise.df) == tuple(close(right[name]) for name in ("se", "t", "p", "df"))
    # With two levels the type II F is the square of t.
    assert found.f_tests[0].f == pytest.approx(noise.t**2)
    assert found.f_tests[0].p == pytest.approx(noise.p)
    blocked = analyse_factorial(factors, values, seeds=seeds).factors[0].contrasts["r32"]
    assert blocked.effect == close(right["right"])
    assert blocked.inference.se == close(right["se_with_seed_block"])
    assert blocked.inference.df == right["df_with_seed_block"]
    naive = np.mean(values[6:]) - np.mean(values[:6])
    assert naive == close(right["groupby_mean_wrong"])


@pytest.mark.parametrize("blocked", [False, True])
def test_interaction_of_a_missing_cell_golden(golden, blocked: bool) -> None:
    known = golden["factorial_2x2_missing_cell"]
    factors, seeds, values = two_by_two(known)
    found = analyse_factorial(factors, values, seeds=seeds if blocked else None)
    (test,) = found.interactions
    assert (test.term, test.f, test.p) == ("lora.rank:C", None, None)
    assert test.note == known["interaction"]


def test_three_by_three_golden(golden, golden_rows, close) -> None:
    known = golden["factorial_3x3_missing_cells"]
    rows = golden_rows(known["file"])
    factors = {"rank": [row["rank"] for row in rows], "lr": [row["lr"] for row in rows]}
    values, seeds = [float(row["y"]) for row in rows], [row["seed"] for row in rows]
    found = analyse_factorial(factors, values, family="factor")
    rank = found.factors[0]
    for mean in rank.marginal_means:
        assert mean.mean == close(known["without_seed_block_marginal_means"][mean.level])
    expected = known["without_seed_block_32_minus_8"]
    assert rank.contrasts["32"].effect == close(expected["effect"])
    assert rank.contrasts["32"].inference.se == close(expected["se"])
    blocked = analyse_factorial(factors, values, seeds=seeds).factors[0]
    for level, effect in known["with_seed_block"].items():
        assert blocked.contrasts[level].effect == close(effect)
    for level, wrong in known["groupby_means_wrong"].items():
        naive = np.mean([y for y, rank in zip(values, factors["rank"], strict=True) if rank == level])
        assert naive == close(wrong)
    assert found.interactions[0].note == "3 of 4 degrees of freedom: cells missing"
    assert found.interactions[0].df1 == 3


def full(values, levels=(2, 2), repeats: int = 2):
    cells = [(a, b, r) for a in range(levels[0]) for b in range(levels[1]) for r in range(repeats)]
    a, b, r = zip(*cells, strict=True)
    return {"A": a, "B": b}, list(r), list(values)


def test_balanced_by_hand() -> None:
    # Cell means 1, 3, 5, 7 with +-1 in each: A adds 4, B adds 2, no interaction; SSE 8 on 5 df.
    factors, _, values = full([0, 2, 2, 4, 4, 6, 6, 8])
    found = analyse_factorial(factors, values)
    a, b = found.factors
    assert (a.contrasts[1].effect, b.contrasts[1].effect) == pytest.approx((4.0, 2.0))
    assert [mean.mean for mean in a.marginal_means] == pytest.approx([2.0, 6.0])
    assert found.s == pytest.approx(np.sqrt(8 / 5))
    assert a.contrasts[1].inference.se == pytest.approx(np.sqrt(8 / 5 * (1 / 4 + 1 / 4)))
    assert a.marginal_means[0].se == pytest.approx(np.sqrt(8 / 5 / 4))
    assert found.f_tests[0].f == pytest.approx(32 / (8 / 5))
    assert found.f_tests[0].p == pytest.approx(stats.f.sf(20, 1, 5))
    (interaction,) = found.interactions
    assert (interaction.f, interaction.df1, interaction.df2) == (pytest.approx(0.0, abs=1e-12), 1, 4)
    assert interaction.note is None
    assert (found.withheld, found.simple_effects, found.problems) == ((), (), ())


def test_one_factor_of_three_levels_is_the_analysis_of_variance() -> None:
    groups = [[1.0, 2.0, 4.0], [3.0, 5.0, 4.5], [9.0, 7.0]]
    labels = [level for level, values in enumerate(groups) for _ in values]
    (test,) = analyse_factorial({"A": labels}, [value for values in groups for value in values]).f_tests
    theirs = stats.f_oneway(*groups)
    assert (test.f, test.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    assert (test.df1, test.df2) == (2, 5)


def test_an_interaction_shows_simple_effects_and_withholds_verdicts() -> None:
    # A adds 10 at B=0 and takes 10 at B=1.
    factors, _, values = full([0, 1, 20, 21, 10, 11, 10, 11])
    found = analyse_factorial(factors, values)
    assert found.interactions[0].f == pytest.approx(200 / 0.5)
    assert found.interactions[0].p < 0.05
    assert set(found.withheld) == {"A", "B"}
    simple = {(e.factor, e.at_level): e.contrasts[1].effect for e in found.simple_effects}
    assert simple == pytest.approx({("A", 0): 10.0, ("A", 1): -10.0, ("B", 0): 20.0, ("B", 1): 0.0}, abs=1e-9)
    noise = found.simple_effects[0].contrasts[1].inference
    assert (noise.df, noise.se) == (4, pytest.approx(np.sqrt(0.5)))


def test_three_factors_recover_their_effects_from_a_fraction() -> None:
    rng = np.random.default_rng(0)
    cells = [(a, b, c, s) for a in range(3) for b in range(2) for c in range(2) for s in range(4)]
    kept = [cell for place, cell in enumerate(cells) if place % 5]
    a, b, c, seeds = zip(*kept, strict=True)
    values = [0.5 * x + 2 * y - 3 * z + s + 0.01 * rng.normal() for x, y, z, s in kept]
    found = analyse_factorial({"a": a, "b": b, "c": c}, values, seeds=seeds, family="factor")
    effects = {f.factor: {level: e.effect for level, e in f.contrasts.items()} for f in found.factors}
    assert effects["a"] == pytest.approx({1: 0.5, 2: 1.0}, abs=0.02)
    assert effects["b"] == pytest.approx({1: 2.0}, abs=0.02)
    assert effects["c"] == pytest.approx({1: -3.0}, abs=0.02)
    assert [test.term for test in found.interactions] == ["a:b", "a:c", "b:c"]
    assert all(test.f is not None for test in found.interactions)


def test_two_factors_always_together_cannot_be_separated() -> None:
    factors = {"rank": ["8", "8", "16", "16"] * 2, "alpha": ["16", "16", "32", "32"] * 2, "lr": [1] * 4 + [2] * 4}
    found = analyse_factorial(factors, [1.0, 1.2, 2.0, 2.3, 3.0, 3.1, 4.2, 4.0])
    rank, alpha, lr = found.factors
    for factor in (rank, alpha):
        assert factor.problem == "cannot separate rank from alpha"
        assert (factor.contrasts, factor.marginal_means) == ({}, ())
    assert found.problems == ("cannot separate rank from alpha",)
    assert lr.problem is None
    assert lr.contrasts[2].effect == pytest.approx(1.95)
    assert [test.f is None for test in found.f_tests] == [True, True, False]
    assert found.interactions == ()


def test_a_factor_that_moves_with_the_seeds() -> None:
    found = analyse_factorial({"A": [0, 0, 1, 1]}, [1.0, 2.0, 3.0, 4.5], seeds=[0, 1, 2, 3])
    assert found.factors[0].problem == "cannot separate A from seed"
    assert analyse_factorial({"A": [0, 0, 1, 1]}, [1.0, 2.0, 3.0, 4.5]).factors[0].problem is None


def test_confounding_of_three_that_no_pair_shows() -> None:
    # C is 1 exactly where A and B differ, and only three of the four cells of A and B were run, once each C.
    factors = {"A": [0, 0, 1, 1], "B": [0, 1, 0, 1], "C": [0, 1, 1, 2]}
    found = analyse_factorial(factors, [1.0, 2.0, 3.0, 4.0])
    assert all("cannot separate" in (factor.problem or "") for factor in found.factors)


def test_reference_levels_and_families() -> None:
    factors, seeds, values = full(np.random.default_rng(1).normal(size=18), levels=(3, 3))
    plain = analyse_factorial(factors, values)
    turned = analyse_factorial(factors, values, references={"A": 2})
    assert turned.factors[0].reference == 2
    assert turned.factors[0].contrasts[0].effect == pytest.approx(-plain.factors[0].contrasts[2].effect)
    assert turned.f_tests[0].f == pytest.approx(plain.f_tests[0].f)
    narrow = analyse_factorial(factors, values, family="factor")
    for wide_factor, factor in zip(plain.factors, narrow.factors, strict=True):
        for level, effect in factor.contrasts.items():
            assert effect.inference.p_adjusted < wide_factor.contrasts[level].inference.p_adjusted
    assert len(seeds) == 18


def test_no_noise_no_inference() -> None:
    factors, _, values = full([1, 1, 2, 2, 3, 3, 4, 4])
    found = analyse_factorial(factors, values)
    assert found.s is None
    assert found.factors[0].contrasts[1].inference is None
    assert found.f_tests[0].note == "the model leaves no residual"


def test_one_level_is_said_and_left_out() -> None:
    found = analyse_factorial({"A": [0, 0, 1, 1], "B": ["x"] * 4}, [1.0, 2.0, 3.0, 4.5])
    assert [factor.factor for factor in found.factors] == ["A"]
    assert found.problems == ("factor B has one level (x): nothing to compare",)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (({"A": [0, 0]}, [1.0, 2.0]), "factor A has one level"),
        (({}, [1.0, 2.0]), "no factors given"),
        (({"A": []}, []), "at least one number"),
        (({"A": [0, 1]}, [1.0, float("nan")]), "never average them"),
        (({"values": [0]}, [1.0, 2.0]), "values has 1 entries for 2 values"),
    ],
    ids=["one level", "no factors", "empty", "nan", "lengths"],
)
def test_refused_in_words(arguments, words: str) -> None:
    with pytest.raises(AnalysisError, match=words):
        analyse_factorial(*arguments)


def test_unknown_reference_and_family() -> None:
    with pytest.raises(AnalysisError, match="reference 7 of factor A has no finished run; its levels are 0, 1"):
        analyse_factorial({"A": [0, 1, 1]}, [1.0, 2.0, 3.0], references={"A": 7})
    with pytest.raises(AnalysisError, match="family must be study or factor"):
        analyse_factorial({"A": [0, 1, 1]}, [1.0, 2.0, 3.0], family="all")
