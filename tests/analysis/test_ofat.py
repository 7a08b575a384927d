import dataclasses

import numpy as np
import pytest

from ftx.analysis.error import AnalysisError
from ftx.analysis.ofat import compare_arms
from ftx.analysis.power import smallest_detectable_effect

NAN = float("nan")


def compare(table: dict[str, list[float | None]], *, losses: dict[str, list[float]] | None = None, **options):
    """Compare with `base`, one value per seed in order; rows by arm, and the table."""
    arms = [arm for arm, values in table.items() for _ in values]
    seeds = [seed for values in table.values() for seed in range(len(values))]
    flat = [value for values in table.values() for value in values]
    options = {"baseline": "base", "higher_is_better": True} | options
    if losses is not None:
        options["final_train_losses"] = [loss for arm in table for loss in losses[arm]]
    result = compare_arms(arms, seeds, flat, **options)
    return {row.arm: row for row in result.rows}, result


STUDY = {
    "base": [0.612, 0.598, 0.605, 0.603],
    "up": [0.641, 0.629, 0.632, 0.634],
    "flat": [0.613, 0.597, 0.606, 0.602],
    "wobble": [0.610, 0.602, 0.603, 0.606],
}


def test_golden_table(golden, golden_runs, close) -> None:
    known = golden["ofat_balanced"]
    table = compare_arms(*golden_runs(known["file"]), baseline="base", higher_is_better=True, margin=0.01)
    assert (table.s, table.df) == (close(known["s"]), 8)
    assert table.seed_correlation == close(known["mean_pairwise_seed_correlation"])
    verdicts = {row.arm: row.verdict for row in table.rows}
    assert verdicts == {
        "base": None,
        "r8": "equivalent (+-0.01)",
        "r64": "better",
        "lr3e-4": "better",
        "lr1e-5": "worse",
    }
    for row in table.rows[1:]:
        expected = known["arms"][row.arm]
        for field in ("effect", "se", "p_adjusted", "ci_low", "ci_high"):
            assert getattr(row, field) == close(expected[field]), (row.arm, field)
        assert row.smallest_detectable_effect == close(known["smallest_detectable_effect_80_by_seeds"]["3"])
        assert (row.n_planned, row.n_ok, row.n_failed, row.n_missing, row.method) == (3, 3, 0, 0, "additive")
    assert table.seeds_for_margin == 3
    assert [finding.kind for finding in table.findings] == ["guard_weak"]


def test_golden_table_where_less_is_better(golden_runs) -> None:
    table = compare_arms(*golden_runs("ofat_balanced.csv"), baseline="base", higher_is_better=False)
    assert [row.verdict for row in table.rows] == [None, "within noise", "worse", "worse", "better"]


def test_golden_table_with_gaps_withholds(golden, golden_runs, close) -> None:
    known = golden["ofat_with_a_missing_seed_and_a_single_seed_arm"]
    runs = golden_runs(known["file"])
    # Every arm a family of its own: the adjustment over all of them is tested with the model.
    apart = {arm: arm for arm in runs[0]}
    table = compare_arms(*runs, baseline="base", higher_is_better=True, families=apart)
    rows = {row.arm: row for row in table.rows}
    for arm, ok in (("warmup", 1), ("lr3e-4", 2)):
        row = rows[arm]
        assert row.verdict == "not enough seeds"
        assert (row.n_planned, row.n_ok, row.n_missing, row.shared_seeds) == (3, ok, 3 - ok, ok)
        assert row.effect == close(known["arms"][arm]["effect"])
        withheld = (row.se, row.df, row.ci_low, row.ci_high, row.p_adjusted, row.smallest_detectable_effect)
        assert withheld == (None,) * 6
    assert rows["r64"].verdict == "better"
    assert 0.0082 / 5 < rows["r64"].p_adjusted < 0.0082
    assert rows["warmup"].sd is None


def test_diverged_runs_golden(golden, close) -> None:
    known = golden["diverged_runs"]
    rows, _ = compare({"base": known["baseline"], "arm": known["arm"]})
    row = rows["arm"]
    assert row.verdict == known["verdict"]
    assert (row.n_planned, row.n_ok, row.n_failed, row.n_missing) == (5, 3, 2, 0)
    assert [row.failure_low, row.failure_high] == [close(x) for x in known["wilson_95_failure_rate"]]
    assert row.effect == close(known["survivors_paired"]["effect"])
    assert (row.p_adjusted, row.ci_low, row.seeds_needed) == (None, None, None)
    assert row.replicates == (0, 1, 4)


def test_noisy_arm_golden_leaves_the_pool(golden, golden_runs, close) -> None:
    known = golden["ofat_balanced"]
    arms, seeds, values = golden_runs(known["file"])
    noisy = known["cochran_c_with_a_noisy_arm"]
    table = compare_arms(
        [*arms, *["noisy"] * 3],
        [*seeds, "0", "1", "2"],
        [*values, *noisy["arm"]],
        baseline="base",
        higher_is_better=True,
    )
    assert table.welch_arms == ("noisy",)
    assert table.s == close(known["s"])  # not the pooled_s_if_kept
    assert table.s < noisy["pooled_s_if_kept"] / 10
    row = table.rows[-1]
    assert (row.method, row.verdict) == ("welch", "within noise")
    assert (row.p_adjusted, row.df) == (close(noisy["welch"]["p"]), close(noisy["welch"]["df"]))
    assert {finding.kind for finding in table.findings} == {"variance_guard", "guard_weak"}
    assert table.sd_ratio > 30
    assert next(row for row in table.rows if row.arm == "r64").p_adjusted == close(known["arms"]["r64"]["p_adjusted"])


def test_a_noisy_baseline_sends_every_arm_to_welch() -> None:
    rng = np.random.default_rng(4)
    table = {"base": list(rng.normal(0, 5, 6))} | {f"a{i}": list(rng.normal(0, 0.1, 6)) for i in range(4)}
    table["a3"] = [value + 100 for value in table["a3"]]
    rows, result = compare(table)
    assert set(result.welch_arms) == {"a0", "a1", "a2", "a3"}
    assert all(rows[arm].method == "welch" for arm in result.welch_arms)
    assert rows["a3"].verdict == "better"
    for arm in result.welch_arms:
        excluded = rows[arm].ci_low > 0 or rows[arm].ci_high < 0
        assert excluded == (rows[arm].p_adjusted < 0.05)  # Holm's p and the interval say the same


def test_every_row_counts_what_was_planned() -> None:
    rows, _ = compare_arms_with_statuses()
    counts = {arm: (row.n_planned, row.n_ok, row.n_failed, row.n_missing) for arm, row in rows.items()}
    assert counts == {"base": (4, 4, 0, 0), "x": (4, 1, 1, 2), "y": (4, 0, 1, 3)}
    assert rows["x"].verdict == "unstable 1/4"
    assert rows["x"].effect == pytest.approx(2.0)
    assert (rows["y"].verdict, rows["y"].mean, rows["y"].effect) == ("unstable 1/4", None, None)
    assert rows["y"].reason == "no finished run"


def compare_arms_with_statuses():
    runs = [("base", seed, float(seed), "finished") for seed in range(4)]
    runs += [("x", 0, 2.0, "finished"), ("x", 1, 9.0, "killed"), ("x", 2, None, "diverged"), ("y", 3, None, "failed")]
    arms, seeds, values, statuses = zip(*runs, strict=True)
    result = compare_arms(arms, seeds, values, statuses=statuses, baseline="base", higher_is_better=True)
    return {row.arm: row for row in result.rows}, result


def test_absent_pairs_count_only_where_the_design_is_crossed() -> None:
    rows, _ = compare({"base": [1.0, 2.0, 4.0], "x": [2.0]}, crossed=False)
    assert (rows["x"].n_planned, rows["x"].n_missing) == (1, 0)


def test_a_baseline_that_failed_marks_every_row() -> None:
    rows, result = compare({"base": [0.61, 0.60, 0.62, NAN], "up": [0.71, 0.70, 0.73, 0.72]})
    assert rows["up"].verdict == "unstable 1/4 (baseline)"
    assert rows["base"].verdict is None
    assert result.findings[0].kind == "baseline_failed"


def test_no_finished_baseline_is_words_not_an_error() -> None:
    rows, result = compare({"base": [NAN, NAN, NAN], "up": [1.0, 2.0, 3.0]})
    assert (rows["up"].verdict, rows["up"].effect) == ("unstable 3/3 (baseline)", None)
    assert rows["up"].reason == "the baseline has no finished run"
    assert {finding.kind for finding in result.findings} == {"baseline_without_runs", "baseline_failed"}
    assert (result.s, result.df) == (None, None)


def test_all_failed() -> None:
    rows, _ = compare({"base": [NAN, None], "up": [None, NAN]})
    assert rows["up"].verdict == "unstable 2/2"
    assert rows["up"].values == ()


def test_one_arm_and_one_seed() -> None:
    _, alone = compare({"base": [1.0, 2.0, 3.0]})
    assert [finding.kind for finding in alone.findings] == ["one_arm"]
    rows, result = compare({"base": [1.0], "up": [3.0]})
    assert (rows["up"].verdict, rows["up"].se) == ("not enough seeds", None)
    assert rows["up"].effect == pytest.approx(2.0)
    assert (result.s, result.df) == (None, 0)


def test_no_common_seed() -> None:
    arms, seeds = ["base"] * 3 + ["up"] * 3, [0, 1, 2, 7, 8, 9]
    table = compare_arms(arms, seeds, [1.0, 2, 4, 5, 6, 9], baseline="base", higher_is_better=True, crossed=False)
    row = table.rows[1]
    assert (row.verdict, row.effect, row.shared_seeds) == ("not enough seeds", None, 0)
    assert "cannot be separated from the seeds" in row.reason


def test_a_copy_of_the_baseline_is_degenerate_and_leaves_the_pool() -> None:
    losses = {arm: [value * 3 for value in values] for arm, values in STUDY.items()}
    without, clean = compare(STUDY, losses=losses)
    rows, result = compare(STUDY | {"copy": STUDY["base"]}, losses=losses | {"copy": losses["base"]})
    assert (rows["copy"].verdict, rows["copy"].effect, rows["copy"].p_adjusted) == ("degenerate", 0.0, None)
    assert rows["copy"].reason.startswith("equal to the baseline in all 4 shared seeds")
    assert (result.s, result.df) == (clean.s, clean.df)
    assert rows["up"] == without["up"]


def test_equal_scores_alone_are_a_ceiling() -> None:
    table = STUDY | {"copy": STUDY["base"]}
    losses = {arm: [value * 3 for value in values] for arm, values in table.items()}
    losses["copy"] = [loss + 1e-6 for loss in losses["copy"]]
    rows, _ = compare(table, losses=losses)
    assert rows["copy"].verdict == "within noise"
    assert rows["copy"].p_adjusted == pytest.approx(1.0)
    rows, _ = compare(table)  # a table from elsewhere: the metric decides
    assert rows["copy"].verdict == "degenerate"
    rows, _ = compare(table, losses={arm: [None] * 4 for arm in table})
    assert rows["copy"].verdict == "degenerate"


def test_equal_seeds_are_degenerate_only_with_equal_losses() -> None:
    table = STUDY | {"full": [1.0] * 4}
    losses = {arm: [value * 3 for value in values] for arm, values in table.items()}
    rows, _ = compare(table, losses=losses)
    assert rows["full"].verdict == "degenerate"
    assert rows["full"].reason == "all 4 seeds equal: the seed never reached the run"
    rows, _ = compare(table, losses=losses | {"full": [0.1, 0.2, 0.1, 0.3]})
    assert rows["full"].verdict == "better"
    rows, _ = compare(table, losses=losses | {"full": [NAN] * 4})
    assert rows["full"].verdict == "better"


def test_a_baseline_whose_seeds_do_nothing_measures_nothing() -> None:
    table = STUDY | {"base": [0.6] * 4}
    losses = {arm: [value * 3 for value in values] for arm, values in table.items()}
    rows, _ = compare(table, losses=losses)
    assert {row.verdict for row in rows.values()} == {None, "degenerate"}
    assert rows["up"].reason.startswith("baseline: all 4 seeds equal")
    assert rows["up"].effect == pytest.approx(0.034)


def test_no_residual_prints_the_effect_alone() -> None:
    base = [0.1, 0.25, 0.3]
    rows, result = compare({"base": base, "up": [x + 0.1 for x in base], "down": [x - 0.05 for x in base]})
    for arm, effect in (("up", 0.1), ("down", -0.05)):
        row = rows[arm]
        assert (row.verdict, row.effect) == ("degenerate", pytest.approx(effect))
        assert (row.se, row.ci_low, row.ci_high, row.p_adjusted) == (None,) * 4
        assert "no residual" in row.reason
    assert result.s is None


def test_within_noise_says_what_could_have_been_found() -> None:
    rows, result = compare(STUDY)
    row = rows["wobble"]
    assert row.verdict == "within noise"
    expected = smallest_detectable_effect(result.s, arms=4, seeds=4)
    assert row.smallest_detectable_effect == pytest.approx(expected, rel=1e-9)
    assert row.seeds_needed == ">50"
    assert rows["up"].seeds_needed == 3


def test_looks_and_alpha_widen_the_interval() -> None:
    once, _ = compare(STUDY)
    twice, result = compare(STUDY, looks=2)
    half, _ = compare(STUDY, alpha=0.025)
    assert result.alpha == 0.025
    assert twice == half
    assert twice["up"].ci_low < once["up"].ci_low
    assert twice["up"].p_adjusted == once["up"].p_adjusted


def test_units_and_order_do_not_matter() -> None:
    rows, _ = compare(STUDY)
    scaled, _ = compare({arm: [1000 * x - 7 for x in STUDY[arm]] for arm in ("wobble", "up", "base", "flat")})
    for arm, row in rows.items():
        assert scaled[arm].verdict == row.verdict
        if arm != "base":
            assert scaled[arm].effect == pytest.approx(1000 * row.effect)
            assert scaled[arm].p_adjusted == pytest.approx(row.p_adjusted, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"baseline": "nobody"}, "baseline 'nobody' is not among the arms: base, up, flat, wobble"),
        ({"margin": -0.1}, "margin must be a positive number"),
        ({"alpha": 0.0}, "alpha must lie"),
        ({"looks": 0}, "looks must be at least 1"),
        ({"statuses": ["ok"]}, "statuses has 1 entries for 16 runs"),
        ({"statuses": ["odd"] * 16}, "status 'odd' is not known"),
        ({"families": {"up": 1}}, "families has no entry for 'flat'"),
    ],
)
def test_refused_in_words(change: dict[str, object], words: str) -> None:
    with pytest.raises(AnalysisError, match=words):
        compare(STUDY, **change)


def test_empty_and_twice_are_refused() -> None:
    with pytest.raises(AnalysisError, match="no runs"):
        compare_arms([], [], [], baseline="base", higher_is_better=True)
    with pytest.raises(AnalysisError, match="arm 'base' has two runs of replicate 0"):
        compare_arms(["base", "base"], [0, 0], [1.0, 2.0], baseline="base", higher_is_better=True)


def test_rows_are_frozen() -> None:
    rows, _ = compare(STUDY)
    with pytest.raises(dataclasses.FrozenInstanceError):
        rows["up"].verdict = "better"
