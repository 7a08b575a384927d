"""Tables from elsewhere: the golden answers through the command line, and what a table may look like."""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from effects.asking import Aggregate, arms, lines

BALANCED = {
    "base": (0.612, 0.598, 0.605),
    "r8": (0.609, 0.6, 0.601),
    "r64": (0.621, 0.604, 0.616),
    "lr3e-4": (0.634, 0.622, 0.633),
    "lr1e-5": (0.571, 0.56, 0.566),
}
GOLDEN = {  # effect, p, low, high
    "r8": (-0.001666666667, 0.8180085194, -0.007695254789, 0.004361921455, "within noise"),
    "r64": (0.008666666667, 0.007896314995, 0.002638078545, 0.01469525479, "better"),
    "lr3e-4": (0.02466666667, 5.78198289e-06, 0.01863807854, 0.03069525479, "better"),
    "lr1e-5": (-0.03933333333, 1.552651523e-07, -0.04536192146, -0.03330474521, "worse"),
}
UNBALANCED = BALANCED | {"lr3e-4": (0.634, 0.622), "warmup": (0.618,)}
DIVERGED = {"base": (0.700, 0.704, 0.696, 0.702, 0.698), "arm": (0.720, 0.730, "nan", "", 0.710)}
CROSSED = lines(
    "rank,lr,seed,y",
    *((8, "0.0001", 0, 0.598), (8, "0.0002", 0, 0.648), (8, "0.0002", 1, 0.651), (8, "0.0002", 2, 0.651)),
    *((8, "0.0005", 0, 0.628), (8, "0.0005", 1, 0.631), (8, "0.0005", 2, 0.631)),
    *((16, "0.0001", 0, 0.603), (16, "0.0001", 1, 0.606), (16, "0.0001", 2, 0.606)),
    *((16, "0.0002", 0, 0.653), (16, "0.0002", 1, 0.656), (16, "0.0002", 2, 0.656), (16, "0.0005", 0, 0.633)),
    *((32, "0.0001", 0, 0.608), (32, "0.0001", 1, 0.611), (32, "0.0001", 2, 0.611), (32, "0.0002", 0, 0.658)),
)
FOUR_CELLS = lines(
    "rank,lr,seed,y",
    *(("r8", "1e-4", seed, y) for seed, y in enumerate((0.598, 0.6, 0.602))),
    *(("r8", "3e-4", seed, y) for seed, y in enumerate((0.699, 0.701, 0.7))),
    *(("r32", "1e-4", seed, y) for seed, y in enumerate((0.609, 0.611, 0.61))),
)


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-6, abs=5e-10)


def test_the_balanced_golden_table(aggregate: Aggregate) -> None:
    answer = aggregate.table(arms(**BALANCED), "--baseline", "base")
    rows = answer.rows()
    assert list(rows) == ["base", *GOLDEN]
    for level, (effect, p, low, high, verdict) in GOLDEN.items():
        row = rows[level]
        assert (row["effect"], row["p_adjusted"]) == (near(effect), near(p))
        assert (row["ci_low"], row["ci_high"]) == (near(low), near(high))
        assert (row["se"], row["df"], row["verdict"]) == (near(0.001994436707), 8, verdict)
        assert (row["n_planned"], row["n_ok"], row["n_failed"], row["n_missing"]) == (3, 3, 0, 0)
        assert row["values"] == list(BALANCED[level])
        assert row["smallest_detectable_effect"] == pytest.approx(0.007928, abs=1e-6)
    assert (answer.data["s"], answer.data["df"]) == (near(0.002442676128), 8)
    assert answer.data["seed_correlation"] == pytest.approx(0.899487, abs=1e-6)
    assert (answer.data["design"], answer.data["metric"]["name"]) == ("ofat", "y")


def test_the_baseline_is_a_row_without_a_comparison(aggregate: Aggregate) -> None:
    row = aggregate.table(arms(**BALANCED), "--baseline", "base").rows()["base"]
    assert row["is_baseline"] is True
    assert row["mean"] == pytest.approx(0.605)
    compared = ("effect", "se", "ci_low", "ci_high", "p_adjusted", "verdict")
    assert [row[name] for name in compared] == [None] * len(compared)


def test_less_is_better_turns_every_verdict(aggregate: Aggregate) -> None:
    more = aggregate.table(arms(**BALANCED), "--baseline", "base").rows()
    less = aggregate.table(arms(**BALANCED), "--baseline", "base", "--direction", "min").rows()
    turned = {"better": "worse", "worse": "better"}
    assert [row["verdict"] for row in less.values()] == [
        turned.get(row["verdict"], row["verdict"]) for row in more.values()
    ]
    assert [row["effect"] for row in less.values()] == [row["effect"] for row in more.values()]


def test_the_unbalanced_golden_table(aggregate: Aggregate) -> None:
    answer = aggregate.table(arms(**UNBALANCED), "--baseline", "base")
    rows = answer.rows()
    assert (answer.data["s"], answer.data["df"]) == (pytest.approx(0.002237931, abs=1e-9), 7)
    assert rows["r64"]["p_adjusted"] == pytest.approx(0.0082, abs=0.0003)
    assert rows["r8"]["p_adjusted"] == pytest.approx(0.8413, abs=0.0005)
    assert rows["lr3e-4"]["effect"] == pytest.approx(0.023042, abs=1e-6)
    width = rows["r64"]["ci_high"] - rows["r64"]["ci_low"]
    assert width / 2 / rows["r64"]["se"] == pytest.approx(3.277, abs=0.001)


def test_one_or_two_seeds_are_not_enough(aggregate: Aggregate) -> None:
    rows = aggregate.table(arms(**UNBALANCED), "--baseline", "base").rows()
    for arm, ok, effect in (("warmup", 1, 0.006742), ("lr3e-4", 2, 0.023042)):
        row = rows[arm]
        assert row["verdict"] == "not enough seeds"
        assert (row["n_planned"], row["n_ok"], row["n_missing"], row["n_failed"]) == (3, ok, 3 - ok, 0)
        assert row["effect"] == pytest.approx(effect, abs=1e-6)
        assert [row[name] for name in ("se", "ci_low", "ci_high", "p_adjusted")] == [None] * 4


def test_diverged_runs_make_an_arm_unstable(aggregate: Aggregate) -> None:
    row = aggregate.table(arms(**DIVERGED), "--baseline", "base").rows()["arm"]
    assert row["verdict"] == "unstable 2/5"
    assert (row["n_planned"], row["n_ok"], row["n_failed"], row["n_missing"]) == (5, 3, 2, 0)
    assert (row["p_adjusted"], row["ci_low"]) == (None, None)
    assert row["values"] == [0.72, 0.73, 0.71]


def test_a_failed_baseline_marks_every_row(aggregate: Aggregate) -> None:
    answer = aggregate.table(arms(**BALANCED | {"base": (0.612, 0.598, "nan")}), "--baseline", "base")
    verdicts = {row["verdict"] for level, row in answer.rows().items() if level != "base"}
    assert verdicts == {"unstable 1/3 (baseline)"}
    assert len(answer.problems("baseline_failed")) == 1


def test_a_noisy_arm_leaves_the_pool(aggregate: Aggregate) -> None:
    noisy = aggregate.table(arms(**BALANCED | {"noisy": (0.64, 0.31, 0.655)}), "--baseline", "base")
    assert noisy.data["s"] == near(0.002442676128)  # kept in the pool it would be thirty times that
    row = noisy.rows()["noisy"]
    assert (row["p_adjusted"], row["df"]) == (pytest.approx(0.597603, abs=1e-6), pytest.approx(2.005154, abs=1e-6))
    assert noisy.rows()["r64"]["verdict"] == "better"


def test_a_crossed_design_with_missing_cells_is_not_averaged_over_what_happened_to_run(aggregate: Aggregate) -> None:
    answer = aggregate.table(CROSSED, "--baseline", "rank=8", "--baseline", "lr=1e-4", factors="rank lr")
    rows = answer.rows()
    assert answer.data["design"] == "factorial"
    assert rows["rank", "16"]["effect"] == pytest.approx(0.005, abs=1e-9)
    assert rows["rank", "32"]["effect"] == pytest.approx(0.010, abs=1e-9)
    groupby = {"8": 0.634, "16": 0.630429, "32": 0.622}
    for level, wrong in groupby.items():
        assert rows["rank", level]["mean"] != pytest.approx(wrong, abs=1e-4)
    assert rows["rank", "32"]["mean"] > rows["rank", "16"]["mean"] > rows["rank", "8"]["mean"]
    assert [test["term"] for test in answer.data["f_tests"]] == ["rank", "lr", "rank:lr"]


def test_one_missing_cell_does_not_turn_the_sign(aggregate: Aggregate) -> None:
    answer = aggregate.table(FOUR_CELLS, "--baseline", "rank=r8", "--baseline", "lr=1e-4", factors="rank lr")
    row = answer.rows()["rank", "r32"]
    assert answer.data["design"] == "ofat"
    assert row["effect"] == pytest.approx(0.010)
    crossed = aggregate.table(
        FOUR_CELLS, "--baseline", "rank=r8", "--baseline", "lr=1e-4", "--design", "factorial", factors="rank lr"
    )
    row = crossed.rows()["rank", "r32"]
    assert crossed.data["design"] == "factorial"
    assert (row["effect"], row["se"], row["df"]) == (pytest.approx(0.010), pytest.approx(0.000816, abs=1e-6), 4)
    assert [detail for detail in crossed.problems("not_estimable") if "rank 3 of 4" in detail]


def test_factors_that_always_move_together_get_no_effect(aggregate: Aggregate) -> None:
    rows = (
        (r, 2 * r, seed, 0.6 + r / 1000 + seed / 500 + (r * seed) % 3 / 900) for r in (8, 16, 32) for seed in range(3)
    )
    answer = aggregate.table(lines("rank,alpha,seed,y", *rows), factors="rank alpha")
    assert answer.data["design"] == "factorial"
    for row in answer.data["effects"]:
        assert (row["effect"], row["p_adjusted"], row["verdict"]) == (None, None, None)
        assert "cannot separate" in (row["reason"] or "")
    assert any("cannot separate rank from alpha" in detail for detail in answer.problems("design"))


def test_an_interaction_withholds_the_verdict(aggregate: Aggregate) -> None:
    cells = {(8, "a"): 0.60, (16, "a"): 0.70, (8, "b"): 0.70, (16, "b"): 0.60}
    noise = (0.001, -0.002, 0.0015)
    rows = (
        (rank, opt, seed, y + noise[seed] + (0.0007 if (rank, opt, seed) == (16, "b", 1) else 0))
        for (rank, opt), y in cells.items()
        for seed in range(3)
    )
    answer = aggregate.table(lines("rank,opt,seed,y", *rows), factors="rank opt")
    assert answer.problems("interaction")
    assert answer.problems("simple_effects")
    assert {row["verdict"] for row in answer.data["effects"] if not row["is_baseline"]} == {"interaction"}


@pytest.mark.parametrize(
    ("word", "counted"),
    [("diverged", (1, 0)), ("FAILED ", (1, 0)), ("killed", (0, 1)), ("running", (0, 1)), ("ok", (0, 0)), ("", (0, 0))],
)
def test_the_status_column_marks_rows_that_have_a_number(
    aggregate: Aggregate, word: str, counted: tuple[int, int]
) -> None:
    rows = [(arm, s, y, "finished") for arm, ys in BALANCED.items() for s, y in enumerate(ys)]
    rows[3] = (*rows[3][:3], word)
    row = aggregate.table(lines("arm,seed,y,state", *rows), "--baseline", "base", "--status", "state").rows()["r8"]
    assert (row["n_failed"], row["n_missing"]) == counted
    assert row["n_ok"] == 3 - sum(counted)


@pytest.mark.parametrize("cell", ["", "nan", "NaN", "inf", "-inf", "null"])
def test_an_empty_or_not_finite_metric_is_a_failed_run(aggregate: Aggregate, cell: str) -> None:
    row = aggregate.table(arms(**BALANCED | {"r8": (0.609, cell, 0.601)}), "--baseline", "base").rows()["r8"]
    assert (row["n_planned"], row["n_ok"], row["n_failed"], row["verdict"]) == (3, 2, 1, "unstable 1/3")


def test_one_number_is_one_level_however_it_is_written(aggregate: Aggregate) -> None:
    rows = [("1e-4", 0, 0.60), ("0.0001", 1, 0.61), ("1E-4", 2, 0.605), *((2e-4, s, 0.63 + s / 99) for s in range(3))]
    text = lines("lr,seed,y", *rows)
    for spelled in ("1e-4", "0.00010", "lr=1E-04"):
        found = aggregate.table(text, "--baseline", spelled, factors="lr").rows()
        assert len(found) == 2
        assert [(row["n_ok"], row["n_missing"], row["is_baseline"]) for row in found.values()] == [
            (3, 0, True),
            (3, 0, False),
        ]


def test_null_and_list_levels_are_counted_once(aggregate: Aggregate) -> None:
    levels: tuple[Any, ...] = (None, ["q_proj", "v_proj"], "all-linear")
    runs = [
        {"modules": level, "seed": seed, "y": 0.6 + place / 50 + (seed * (place + 1)) % 4 / 400}
        for place, level in enumerate(levels)
        for seed in range(3)
    ]
    text = "\n".join(json.dumps(run) for run in runs)
    rows = aggregate.table(text, "--baseline", "all-linear", factors="modules", name="r.jsonl").rows()
    assert len(rows) == 3
    assert None in rows
    assert {(row["n_planned"], row["n_ok"]) for row in rows.values()} == {(3, 3)}


def test_equivalence_needs_a_declared_margin(aggregate: Aggregate) -> None:
    text = arms(**BALANCED)
    assert aggregate.table(text, "--baseline", "base").rows()["r8"]["verdict"] == "within noise"
    rows = aggregate.table(text, "--baseline", "base", "--margin", "0.01").rows()
    assert (rows["r8"]["verdict"], rows["r64"]["verdict"]) == ("equivalent (+-0.01)", "better")
    assert aggregate.table(text, "--baseline", "base", "--margin", "1e-4").rows()["r8"]["verdict"] == "within noise"


def test_looking_twice_costs(aggregate: Aggregate) -> None:
    once = aggregate.table(arms(**BALANCED), "--baseline", "base").rows()["r64"]
    often = aggregate.table(arms(**BALANCED), "--baseline", "base", "--looks", "10").rows()["r64"]
    halved = aggregate.table(arms(**BALANCED), "--baseline", "base", "--alpha", "0.005").rows()["r64"]
    assert (once["verdict"], often["verdict"]) == ("better", "within noise")
    assert (often["ci_low"], often["ci_high"]) == (near(halved["ci_low"]), near(halved["ci_high"]))


def test_a_family_of_one_factor_is_smaller(aggregate: Aggregate) -> None:
    rows = [
        (r, lr, s, 0.6 + r / 2e4 + float(lr) + (s * 7 + r) % 5 / 900)
        for r, lr in ((8, "1e-4"), (16, "1e-4"), (32, "1e-4"), (8, "2e-4"), (8, "5e-4"))
        for s in range(3)
    ]
    text = lines("rank,lr,seed,y", *rows)
    chosen = ("--baseline", "rank=8", "--baseline", "lr=1e-4")
    study = aggregate.table(text, *chosen, factors="rank lr").rows()
    factor = aggregate.table(text, *chosen, "--family", "factor", factors="rank lr").rows()
    compared = [key for key, row in study.items() if not row["is_baseline"]]
    assert len(compared) == 4
    for key in compared:
        assert factor[key]["p_adjusted"] < study[key]["p_adjusted"]
        assert factor[key]["effect"] == study[key]["effect"]


def test_the_design_is_read_from_the_rows(aggregate: Aggregate) -> None:
    chosen = ("--baseline", "rank=8", "--baseline", "lr=1e-4")
    assert aggregate.table(CROSSED, *chosen, factors="rank lr").data["design"] == "factorial"
    refused = aggregate.table(CROSSED, *chosen, "--design", "ofat", factors="rank lr")
    assert refused.status == 1
    assert "differ from the baseline in several factors" in refused.err


def test_without_a_baseline_the_commonest_level_is_it(aggregate: Aggregate) -> None:
    rows = aggregate.table(arms(few=(0.6, 0.61), many=(0.62, 0.63, 0.6))).rows()
    assert [level for level, row in rows.items() if row["is_baseline"]] == ["many"]


@pytest.mark.parametrize("kind", ["json", "jsonl", "parquet"])
def test_every_kind_of_file_gives_the_same(aggregate: Aggregate, kind: str) -> None:
    expected = aggregate.table(arms(**DIVERGED | {"c": (0.701, 0.706, 0.697, 0.704)}), "--baseline", "base")
    frame = pd.read_csv("r.csv")
    if kind == "parquet":
        frame.to_parquet("r.parquet")
    else:
        frame.to_json(f"r.{kind}", orient="records", lines=kind == "jsonl")
    words = ["--factor", "arm", "--replicate", "seed", "--metric", "y", "--direction", "max", "--baseline", "base"]
    found = aggregate("--table", f"r.{kind}", *words, "--format", "json")
    same = ("level", "n_planned", "n_ok", "n_failed", "n_missing", "mean", "effect", "p_adjusted", "ci_low", "verdict")
    assert [[row[name] for name in same] for row in found.data["effects"]] == [
        [row[name] for name in same] for row in expected.data["effects"]
    ]


def test_a_bom_and_spaces_in_names_do_not_matter(aggregate: Aggregate) -> None:
    answer = aggregate.table("\ufeff" + arms(**BALANCED).replace("arm,", "the arm,"), factors="")
    assert answer.status == 2
    words = ["--replicate", "seed", "--metric", "y", "--direction", "max", "--format", "json"]
    assert len(aggregate("--table", "r.csv", "--factor", "the arm", "--baseline", "base", *words).rows()) == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("arm,seed,y\n", "no rows"),
        ("", "cannot be read"),
        ("a,seed,y\nx,0,1\n", "no column 'arm'"),
        ("arm,seed\nx,0\n", "no column 'y'"),
        ("arm,y\nx,0\n", "no column 'seed'"),
        ("arm,seed,y\na,0,1\na,0,2\nb,0,3\n", "rows 1 and 2 are the same run"),
        ("arm,seed,y\na,1,2\nb,1,2,3,4\n", "cannot be read"),
    ],
    ids=["no-rows", "empty", "factor", "metric", "replicate", "twice", "ragged"],
)
def test_a_table_that_cannot_be_used_is_refused_in_words(aggregate: Aggregate, text: str, words: str) -> None:
    answer = aggregate.table(text)
    assert (answer.status, answer.out) == (1, "")
    assert words in answer.err
    assert re.fullmatch(r"(ftx: .*\n)+", answer.err)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("b.json", b"{"),
        ("b.json", b"3"),
        ("b.jsonl", b"{}\n{"),
        ("b.parquet", b"x"),
        ("b.csv", b"\xff\xfe\x00a"),
        ("b.x", b""),
    ],
)
def test_a_file_of_another_kind_is_refused_in_words(aggregate: Aggregate, name: str, content: bytes) -> None:
    Path(name).write_bytes(content)
    answer = aggregate("--table", name, "--factor", "arm", "--metric", "y", "--direction", "max")
    assert (answer.status, answer.out) == (1, "")
    assert answer.err.startswith(f"ftx: --table {name}: ")


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("nan.jsonl", ["nan", "b"]),
        ("mapping.jsonl", [{"a": 1}, {"a": 2}]),
        ("list.parquet", [["q", "v"], ["q"]]),
        ("date.parquet", [pd.Timestamp("2026-01-01"), pd.Timestamp("2026-01-02")]),
    ],
)
def test_odd_levels_are_levels(aggregate: Aggregate, name: str, cells: list[Any]) -> None:
    runs = [{"arm": cell, "seed": s, "y": 0.6 + n / 9 + (s + n) % 2} for n, cell in enumerate(cells) for s in range(3)]
    if name.endswith("parquet"):
        pd.DataFrame(runs).to_parquet(name)
    else:
        Path(name).write_text("\n".join(map(json.dumps, runs)))
    words = ["--factor", "arm", "--replicate", "seed", "--metric", "y", "--direction", "max"]
    found = aggregate("--table", name, *words, "--format", "json")
    assert [row["n_ok"] for row in found.data["effects"]] == [3, 3]


@pytest.mark.parametrize("baseline", ["nosuch=8", "8"])
def test_a_baseline_that_names_no_factor_of_several_is_refused(aggregate: Aggregate, baseline: str) -> None:
    answer = aggregate.table(CROSSED, "--baseline", baseline, factors="rank lr")
    assert (answer.status, answer.out) == (2, "")


def test_a_level_called_null_can_be_the_baseline(aggregate: Aggregate) -> None:
    text = arms(null=BALANCED["base"], x=BALANCED["r8"])
    assert aggregate.table(text, "--baseline", "null").status == 0


def test_a_metric_that_is_no_number_is_said(aggregate: Aggregate) -> None:
    text = arms(**BALANCED | {"r8": ('"0,609"', "abc", "0.601")})
    answer = aggregate.table(text, "--baseline", "base")
    assert "0,609" in answer.out + answer.err


def test_without_replicates_there_is_no_block(aggregate: Aggregate) -> None:
    Path("r.csv").write_text(CROSSED)
    words = ["--factor", "rank", "--factor", "lr", "--metric", "y", "--direction", "max", "--baseline", "rank=8"]
    rows = aggregate("--table", "r.csv", *words, "--format", "json").rows()
    assert rows["rank", "32"]["effect"] == pytest.approx(0.009588, abs=1e-6)
    assert rows["rank", "32"]["se"] == pytest.approx(0.001276, abs=1e-6)
    means = {level: rows["rank", level]["mean"] for level in ("8", "16", "32")}
    assert means == pytest.approx({"8": 0.626431, "16": 0.631314, "32": 0.63602}, abs=1e-6)


def test_without_replicates_no_run_is_made_up(aggregate: Aggregate) -> None:
    Path("r.csv").write_text(arms(**BALANCED))
    words = ["--factor", "arm", "--metric", "y", "--direction", "max", "--baseline", "base", "--format", "json"]
    answer = aggregate("--table", "r.csv", *words)
    assert {(row["n_planned"], row["n_missing"]) for row in answer.data["effects"]} == {(3, 0)}
