import time

import numpy as np
import pytest
from scipy import stats

from ftx.analysis.dunnett import balanced_critical_value
from ftx.analysis.error import AnalysisError
from ftx.analysis.power import (
    detectable_noncentrality,
    detection_power,
    noncentral_t_beyond,
    seeds_to_detect,
    smallest_detectable_effect,
)

ARMS = 5  # of the golden study: four and the baseline


def test_smallest_detectable_effect_golden(golden, close) -> None:
    known = golden["ofat_balanced"]
    for seeds, effect in known["smallest_detectable_effect_80_by_seeds"].items():
        assert smallest_detectable_effect(known["s"], arms=ARMS, seeds=int(seeds)) == close(effect), seeds


def test_seeds_to_detect_golden(golden, close) -> None:
    known = golden["ofat_balanced"]
    expected = known["seeds_to_detect_0.005"]
    assert seeds_to_detect(0.005, known["s"], arms=ARMS) == expected["seeds"]
    power = detection_power(0.005, known["s"], arms=ARMS, seeds=expected["seeds"])
    assert power == close(expected["power"])
    assert detection_power(-0.005, known["s"], arms=ARMS, seeds=expected["seeds"]) == pytest.approx(power)
    assert detection_power(0.005, known["s"], arms=ARMS, seeds=expected["seeds"] - 1) < 0.8


@pytest.mark.parametrize(("c", "df", "d"), [(12.7, 1, 5.0), (3.0, 8, 3.5), (2.4, 40, 0.0), (2.6, 100, 8.0)])
def test_noncentral_tail_is_scipys(c: float, df: int, d: float) -> None:
    assert noncentral_t_beyond(c, df, d) == pytest.approx(stats.nct.sf(c, df, d) + stats.nct.cdf(-c, df, d), rel=1e-7)


def test_detectable_effect_is_detected_with_just_that_power() -> None:
    for seeds, power in ((2, 0.5), (5, 0.8), (12, 0.95)):
        effect = smallest_detectable_effect(2.0, arms=4, seeds=seeds, power=power)
        assert detection_power(effect, 2.0, arms=4, seeds=seeds) == pytest.approx(power)
    assert detectable_noncentrality(balanced_critical_value(3, 9), 9, 0.01) == 0.0  # found anyway, by chance


def test_two_arms_without_blocks_are_the_t_test() -> None:
    # 17 per group for one sd at 80% is the textbook's answer; its power is .807.
    assert seeds_to_detect(1.0, 1.0, arms=2, blocked=False) == 17
    assert detection_power(1.0, 1.0, arms=2, seeds=17, blocked=False) == pytest.approx(0.807, abs=5e-4)


def test_no_fewer_than_a_verdict_needs_and_none_beyond_fifty() -> None:
    assert seeds_to_detect(1000.0, 1.0, arms=3) == 3
    assert seeds_to_detect(1000.0, 1.0, arms=3, fewest=2) == 2
    edge = smallest_detectable_effect(1.0, arms=3, seeds=50)
    assert seeds_to_detect(edge * 1.000001, 1.0, arms=3) == 50
    assert seeds_to_detect(edge * 0.999999, 1.0, arms=3) is None
    assert seeds_to_detect(0.0, 1.0, arms=3) is None


def test_fast() -> None:
    start = time.process_time()
    for seeds in range(3, 9):
        smallest_detectable_effect(1.0, arms=7, seeds=seeds)
    seeds_to_detect(0.7, 1.0, arms=9)
    assert time.process_time() - start < 1.0  # 0.2 s


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"s": 0.0}, "s must be a positive number, got 0.0"),
        ({"s": float("nan")}, "s must be a positive number"),
        ({"arms": 1}, "arms must be at least 2"),
        ({"seeds": 1}, "seeds must be at least 2"),
        ({"alpha": 0.0}, "alpha must lie between 0 and 1"),
        ({"power": 1.0}, "power must lie between 0 and 1"),
    ],
)
def test_refused_in_words(change: dict[str, float], words: str) -> None:
    arguments = {"s": 1.0, "arms": 3, "seeds": 3} | change
    with pytest.raises(AnalysisError, match=words):
        smallest_detectable_effect(arguments.pop("s"), **arguments)


def test_effect_must_be_finite() -> None:
    with pytest.raises(AnalysisError, match="finite"):
        seeds_to_detect(float("nan"), 1.0, arms=3)


def test_power_by_simulation() -> None:
    rng = np.random.default_rng(5)
    arms, seeds, n, effect = 4, 4, 20_000, 2.5
    y = rng.normal(size=(n, arms, seeds))
    y[:, 1] += effect
    left = y - y.mean(axis=2, keepdims=True) - y.mean(axis=1, keepdims=True) + y.mean(axis=(1, 2), keepdims=True)
    s = np.sqrt((left**2).sum(axis=(1, 2)) / 9)
    t = (y[:, 1].mean(axis=1) - y[:, 0].mean(axis=1)) / (s * np.sqrt(2 / seeds))
    found = float((np.abs(t) > balanced_critical_value(3, 9)).mean())
    assert detection_power(effect, 1.0, arms=arms, seeds=seeds) == pytest.approx(found, abs=0.012)
