"""Which runs a study has: arms against a baseline, crossed with replicates."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from ftx.design.factors import Axis, factors_of
from ftx.design.plan import BASELINE, Change, Design, Settings, plan, replicates_of
from ftx.errors import ConfigError

BASE: dict[str, Any] = {
    "seed": 0,
    "lora.variant": "standard",
    "lora.rank": 16,
    "lora.alpha": None,
    "lora_path.folder": "a",
    "optim.lr": 2e-4,
    "optim.epochs": 3.0,
    "optim.batch_size": 8,
}
# What the options of the group `lora` set. The last two reach beyond their section.
OPTIONS: dict[str, dict[str, Any]] = {
    "standard": {"lora.variant": "standard"},
    "plain": {"lora.variant": "standard"},
    "dora": {"lora.variant": "dora"},
    "small": {"lora.variant": "dora", "lora.rank": 4},
    "greedy": {"lora.variant": "dora", "optim.lr": 1e-3},
    "wandering": {"lora_path.folder": "b"},
}


def settings(overrides: Sequence[str]) -> Settings:
    """A composer of a few keys; alpha follows the rank where it is not typed."""
    typed = dict(BASE)
    for word in overrides:
        key, _, value = word.partition("=")
        if key == "lora":
            typed |= OPTIONS[value]
        elif key not in BASE:
            raise ConfigError([f"{key}: no such key"])
        elif value == "null":
            typed[key] = None
        else:
            typed[key] = float(value) if "." in value or "e" in value else int(value)
    alpha = typed["lora.alpha"] if typed["lora.alpha"] is not None else 2 * typed["lora.rank"]
    return Settings(typed, {**typed, "lora.alpha": alpha})


def design(
    *axes: tuple[str, str], kind: str = "ofat", seeds: str = "0", coupled: Sequence[Sequence[str]] = ()
) -> Design:
    factors = factors_of([Axis(key, tuple(values.split(","))) for key, values in axes], coupled)
    return plan(kind, factors, replicates_of([Axis("seed", tuple(seeds.split(",")))]), settings)


def labels(found: Design) -> list[str]:
    return [arm.label for arm in found.arms]


def grid(found: Design, *keys: str) -> list[tuple[Any, ...]]:
    """The resolved values of `keys` in every arm."""
    return [tuple(settings(arm.overrides).resolved[key] for key in keys) for arm in found.arms]


def test_two_factors_of_three_levels_are_five_arms() -> None:
    found = design(("lora.rank", "8,16,32"), ("optim.lr", "1e-4,2e-4,5e-4"))
    assert labels(found) == [BASELINE, "lora.rank=8", "lora.rank=32", "optim.lr=1e-4", "optim.lr=5e-4"]
    assert grid(found, "lora.rank", "optim.lr") == [(16, 2e-4), (8, 2e-4), (32, 2e-4), (16, 1e-4), (16, 5e-4)]
    assert found.baseline_levels == {"lora.rank": "16", "optim.lr": "2e-4"}
    assert found.repeated == ()
    assert [level.label for level in found.factors[0].levels] == ["8", "16", "32"]


def test_every_arm_is_crossed_with_every_seed_one_seed_after_the_other() -> None:
    found = design(("lora.rank", "8,16,32"), ("optim.lr", "1e-4,2e-4,5e-4"), seeds="0,1,2")
    trials = [(replicate.label, arm.label) for arm, replicate in found.trials]
    assert len(trials) == 15
    assert trials[:6] == [
        ("seed=0", "baseline"),
        ("seed=0", "lora.rank=8"),
        ("seed=0", "lora.rank=32"),
        ("seed=0", "optim.lr=1e-4"),
        ("seed=0", "optim.lr=5e-4"),
        ("seed=1", "baseline"),
    ]
    assert [replicate for replicate, arm in trials if arm == "baseline"] == ["seed=0", "seed=1", "seed=2"]
    assert len(set(trials)) == 15


@pytest.mark.parametrize("kind", ["ofat", "factorial"])
def test_nothing_swept_is_the_baseline_alone(kind: str) -> None:
    found = design(kind=kind, seeds="0,1")
    assert labels(found) == [BASELINE]
    assert (found.factors, found.baseline_levels) == ((), {})
    assert [(arm.is_baseline, replicate.label) for arm, replicate in found.trials] == [
        (True, "seed=0"),
        (True, "seed=1"),
    ]


def test_a_baseline_that_is_no_level_is_run_too() -> None:
    found = design(("lora.rank", "8,32"))
    assert labels(found) == [BASELINE, "lora.rank=8", "lora.rank=32"]
    assert found.baseline_levels == {"lora.rank": None}


def test_only_the_baselines_own_value_is_the_baseline_alone() -> None:
    found = design(("lora.rank", "16"))
    assert labels(found) == [BASELINE]
    assert found.baseline_levels == {"lora.rank": "16"}


def test_a_level_that_resolves_to_the_baseline_is_no_arm() -> None:
    """alpha is derived: nobody typed the 32 that it has at rank 16."""
    found = design(("lora.alpha", "32,64"))
    assert labels(found) == [BASELINE, "lora.alpha=64"]
    assert found.baseline_levels == {"lora.alpha": "32"}


@pytest.mark.parametrize(
    ("key", "values", "arms", "baseline", "repeated"),
    [
        ("optim.epochs", "1,1.0", ["1"], None, [("1.0", "1")]),
        ("optim.epochs", "1.0,3,1,3.0", ["1.0"], "3", [("1", "1.0"), ("3.0", "3")]),
        ("optim.lr", "1e-4,0.0001,1.0e-04", ["1e-4"], None, [("0.0001", "1e-4"), ("1.0e-04", "1e-4")]),
        ("optim.lr", "0.0002,2e-4,1e-4", ["1e-4"], "0.0002", [("2e-4", "0.0002")]),
        ("lora.rank", "8,8,16,8", ["8"], "16", []),
        ("lora", "dora,plain,standard", ["dora"], "plain", [("standard", "plain")]),
    ],
    ids=["1-and-1.0", "two-pairs", "1e-4", "of-the-baseline", "typed-twice", "options"],
)
def test_two_spellings_of_one_setting_are_one_level(
    key: str, values: str, arms: list[str], baseline: str | None, repeated: list[tuple[str, str]]
) -> None:
    found = design((key, values))
    assert labels(found) == [BASELINE, *(f"{key}={value}" for value in arms)]
    assert found.baseline_levels == {key: baseline}
    assert found.repeated == tuple((key, *pair) for pair in repeated)


def test_what_follows_from_the_factor_is_listed_apart() -> None:
    baseline, arm = design(("lora.rank", "8")).arms
    assert arm.changes == (Change("lora.rank", 16, 8),)
    assert arm.derived == (Change("lora.alpha", 32, 16),)
    assert (baseline.changes, baseline.derived, baseline.overrides) == ((), (), ())
    assert (baseline.is_baseline, arm.is_baseline) == (True, False)


def test_a_typed_key_is_a_change_though_it_could_be_derived() -> None:
    _, arm = design(("lora.rank", "8"), ("lora.alpha", "64"), coupled=[["lora.rank", "lora.alpha"]]).arms
    assert arm.changes == (Change("lora.rank", 16, 8), Change("lora.alpha", 32, 64))
    assert arm.derived == ()


def test_a_key_that_the_factor_names_is_a_change_though_it_is_left_to_be_derived() -> None:
    _, arm = design(("lora.rank", "8"), ("lora.alpha", "null"), coupled=[["lora.rank", "lora.alpha"]]).arms
    assert arm.changes == (Change("lora.rank", 16, 8), Change("lora.alpha", 32, 16))
    assert arm.derived == ()


def test_coupled_keys_are_one_factor_with_one_arm_a_pair() -> None:
    found = design(
        ("optim.batch_size", "4,8,16"),
        ("optim.lr", "1e-4,2e-4,5e-4"),
        coupled=[["optim.batch_size", "optim.lr"]],
    )
    name = "optim.batch_size+optim.lr"
    assert labels(found) == [BASELINE, f"{name}=4/1e-4", f"{name}=16/5e-4"]
    assert grid(found, "optim.batch_size", "optim.lr") == [(8, 2e-4), (4, 1e-4), (16, 5e-4)]
    assert found.baseline_levels == {name: "8/2e-4"}


def test_a_coupled_level_that_shares_one_value_with_the_baseline_is_an_arm() -> None:
    found = design(("optim.batch_size", "8,16"), ("optim.lr", "1e-4,2e-4"), coupled=[["optim.batch_size", "optim.lr"]])
    assert grid(found, "optim.batch_size", "optim.lr") == [(8, 2e-4), (8, 1e-4), (16, 2e-4)]
    assert found.arms[1].changes == (Change("optim.lr", 2e-4, 1e-4),)


def test_a_group_owns_the_section_of_its_name() -> None:
    _, arm = design(("lora", "small")).arms
    assert arm.label == "lora=small"
    assert arm.changes == (Change("lora.variant", "standard", "dora"), Change("lora.rank", 16, 4))
    assert arm.derived == (Change("lora.alpha", 32, 8),)


@pytest.mark.parametrize(
    ("option", "what"),
    [("greedy", "optim.lr (0.0002 -> 0.001)"), ("wandering", "lora_path.folder (a -> b)")],
    ids=["other-section", "name-with-the-same-start"],
)
@pytest.mark.parametrize("kind", ["ofat", "factorial"])
def test_an_arm_that_sets_more_than_its_factor_is_refused(kind: str, option: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        design(("lora", f"standard,{option}"), kind=kind)
    assert caught.value.problems == [
        f"lora={option} also sets {what}: an arm differs from the baseline in one factor only. Keys that move "
        "together are one factor: study.coupled=[[KEY,KEY]]"
    ]


def test_all_arms_that_set_more_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        design(("lora", "greedy,dora,wandering"))
    assert [problem.partition(" also")[0] for problem in caught.value.problems] == ["lora=greedy", "lora=wandering"]


def test_in_a_factorial_too_no_arm_changes_a_factor_behind_its_label() -> None:
    with pytest.raises(ConfigError, match=r"lora=greedy also sets optim\.lr"):
        design(("lora", "standard,greedy"), ("optim.lr", "2e-4,5e-4"), kind="factorial")


def test_a_level_that_cannot_be_composed_is_refused() -> None:
    with pytest.raises(ConfigError, match="no such key"):
        design(("optim.lrr", "1e-4"))


@pytest.mark.parametrize(
    ("ranks", "rates", "count"),
    [("8,16,32", "1e-4,2e-4", 6), ("8,32", "1e-4,5e-4", 5), ("8,16", "1e-4,5e-4", 5), ("8,16,16", "2e-4", 2)],
    ids=["baseline-in-the-grid", "outside-in-both", "outside-in-one", "repeated-level"],
)
def test_a_factorial_is_the_whole_grid_and_the_baseline(ranks: str, rates: str, count: int) -> None:
    found = design(("lora.rank", ranks), ("optim.lr", rates), kind="factorial")
    wanted = {*product(map(int, ranks.split(",")), map(float, rates.split(","))), (16, 2e-4)}
    arms = grid(found, "lora.rank", "optim.lr")
    assert arms[0] == (16, 2e-4)
    assert len(arms) == count == len(wanted)
    assert set(arms) == wanted


def test_a_factorials_arm_names_the_factors_in_which_it_differs() -> None:
    found = design(("lora.rank", "8,16"), ("optim.lr", "1e-4,2e-4"), kind="factorial")
    assert labels(found) == [BASELINE, "lora.rank=8 optim.lr=1e-4", "lora.rank=8", "optim.lr=1e-4"]
    both = found.arms[1]
    assert set(both.levels) == {"lora.rank", "optim.lr"}
    assert both.overrides == ("lora.rank=8", "optim.lr=1e-4")
    assert both.changes == (Change("lora.rank", 16, 8), Change("optim.lr", 2e-4, 1e-4))
    assert both.derived == (Change("lora.alpha", 32, 16),)


def test_several_replicate_keys_are_crossed() -> None:
    found = replicates_of([Axis("seed", ("0", "1")), Axis("data_seed", ("5", "6"), prefix="++")])
    assert [replicate.label for replicate in found] == [
        "seed=0 data_seed=5",
        "seed=0 data_seed=6",
        "seed=1 data_seed=5",
        "seed=1 data_seed=6",
    ]
    assert found[1].values == {"seed": "0", "data_seed": "6"}
    assert found[1].overrides == ("seed=0", "++data_seed=6")


def test_a_seed_typed_twice_is_one_replicate() -> None:
    assert [replicate.label for replicate in replicates_of([Axis("seed", ("2", "0", "2"))])] == ["seed=2", "seed=0"]
