import pytest

from ftx.analysis.verdicts import Evidence, verdict


def judge(higher_is_better: bool = True, **known: object) -> str:
    facts = {"n_planned": 5, "baseline_planned": 5, "shared_seeds": 5, "ci_low": -1.0, "ci_high": 1.0}
    return verdict(Evidence(**(facts | known)), higher_is_better=higher_is_better)


EVERYTHING = {
    "degenerate": True,
    "n_failed": 2,
    "baseline_failed": 1,
    "shared_seeds": 1,
    "ci_low": 0.1,
    "margin": 2.0,
    "equivalence_p": 0.01,
}


def test_first_match_wins() -> None:
    known = dict(EVERYTHING)
    assert judge(**known) == "degenerate"
    known["degenerate"] = False
    assert judge(**known) == "unstable 2/5"
    known["n_failed"] = 0
    assert judge(**known) == "unstable 1/5 (baseline)"
    known["baseline_failed"] = 0
    assert judge(**known) == "not enough seeds"
    known["shared_seeds"] = 3
    assert judge(**known) == "better"
    known["ci_low"] = -0.1
    assert judge(**known) == "equivalent (+-2)"
    known["equivalence_p"] = 0.06
    assert judge(**known) == "within noise"


@pytest.mark.parametrize(
    ("higher_is_better", "low", "high", "word"),
    [(True, 0.1, 1, "better"), (True, -1, -0.1, "worse"), (False, 0.1, 1, "worse"), (False, -1, -0.1, "better")],
)
def test_direction_is_the_metrics(higher_is_better: bool, low: float, high: float, word: str) -> None:
    assert judge(higher_is_better, ci_low=low, ci_high=high) == word


def test_an_interval_that_touches_zero_is_noise() -> None:
    assert judge(ci_low=0.0) == "within noise"


def test_two_shared_seeds_or_no_interval_are_not_enough() -> None:
    assert judge(shared_seeds=2, ci_low=0.5) == "not enough seeds"
    assert judge(ci_low=None, ci_high=None) == "not enough seeds"


def test_never_equivalent_without_a_margin() -> None:
    assert judge(equivalence_p=0.0001) == "within noise"
    assert judge(margin=0.005, equivalence_p=0.01) == "equivalent (+-0.005)"
