"""More seeds for the baseline and the best arms only."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from ftx.config.compose import run_config_of
from ftx.config.schema import StudyConfig
from ftx.design.factors import Axis, factors_of
from ftx.design.plan import Settings, plan, replicates_of
from ftx.errors import ConfigError
from ftx.job.preparation import Inputs
from ftx.record.layout import RunDir
from ftx.record.ledger import FoundRun
from ftx.record.run_record import RunRecord
from ftx.record.study_record import StudyRecord, TrialRecord
from ftx.study.planning import StudyPlan, Trial
from ftx.study.selection import finished_runs, narrowed

BUNDLED = {"model": {"name": "tiny", "bundled": True}, "data": {"source": "bundled", "name": "orders"}}
LOSSES = {"baseline": [0.5], "lora.rank=8": [0.3], "lora.rank=32": [0.9], "lora.rank=64": [0.1]}


def settings(overrides: Sequence[str]) -> Settings:
    values = {"lora.rank": "16"} | dict(word.split("=") for word in overrides)
    return Settings(values, values)


def study(top: int | None, metric: str = "eval_loss") -> StudyPlan:
    """Ranks 8, 16 (the baseline), 32 and 64 with the seeds 1 and 2."""
    factors = factors_of([Axis("lora.rank", ("8", "16", "32", "64"))])
    design = plan("ofat", factors, replicates_of([Axis("seed", ("1", "2"))]), settings)
    config = run_config_of({**BUNDLED, "metric": {"name": metric}})
    trials = [
        Trial(arm, replicate, (*arm.overrides, *replicate.overrides), config, cast(Inputs, None), {"train": "t"})
        for arm, replicate in design.trials
    ]
    return StudyPlan(
        name="mine",
        study=StudyConfig(replicate_top=top),
        design=design,
        fixed=(),
        baseline=config,
        options={},
        slots=1,
        device=("cpu", None),
        fingerprint="f",
        trials=tuple(trials),
        notes=("before",),
    )


def earlier(values: Mapping[str, Sequence[float | None]]) -> tuple[StudyRecord, dict[str, FoundRun]]:
    """A study's record and its finished runs: by arm, the validation value of each seed; None: it did not finish."""
    trials, runs = [], []
    for arm, each in values.items():
        for seed, value in enumerate(each):
            path = f"outputs/{arm}-{seed}"
            record = RunRecord(run_id="r", date="2026-01-31T12:00:00Z", model="tiny", seed=seed)
            record.status = "failed" if value is None else "finished"
            record.result |= {"validation_value": value, "value": 0.0}  # the test split's value chooses nothing
            runs.append(FoundRun(RunDir(Path(path)), record))
            trials.append(trial(arm, seed, path))
    study = StudyRecord(
        study="mine",
        design="ofat",
        factors=[],
        baseline={},
        replicates={"seed": [0]},
        metric={"name": "eval_loss", "direction": "min", "at": "best"},
        trials=trials,
    )
    return study, finished_runs(runs)


def trial(arm: str, seed: int, run: str | None) -> TrialRecord:
    return TrialRecord(
        arm=arm,
        factor=None,
        level=None,
        levels={},
        is_baseline=arm == "baseline",
        replicate=seed,
        replicates={"seed": seed},
        overrides=[],
        fingerprint={},
        run=run,
    )


def kept(found: StudyPlan) -> list[str]:
    return [arm.label for arm in found.design.arms]


def test_without_replicate_top_the_plan_stays() -> None:
    whole = study(None)
    assert narrowed(whole, *earlier(LOSSES)) is whole


@pytest.mark.parametrize(
    ("metric", "top", "expected"),
    [
        ("eval_loss", 1, {"lora.rank=64"}),
        ("eval_loss", 2, {"lora.rank=64", "lora.rank=8"}),
        ("exact_match", 1, {"lora.rank=32"}),
        ("exact_match", 2, {"lora.rank=32", "lora.rank=8"}),
        ("eval_loss", 9, {"lora.rank=64", "lora.rank=8", "lora.rank=32"}),
    ],
)
def test_the_best_arms_by_the_metrics_direction_and_the_baseline(metric: str, top: int, expected: set[str]) -> None:
    found = narrowed(study(top, metric), *earlier(LOSSES))
    assert kept(found)[0] == "baseline"
    assert set(kept(found)[1:]) == expected
    assert len(kept(found)) == 1 + len(expected)
    trials = [trial.name for trial in found.trials]
    assert trials == [f"{arm} seed={seed}" for seed in (1, 2) for arm in kept(found)]


def test_the_ranking_is_told_with_its_values() -> None:
    assert narrowed(study(2), *earlier(LOSSES)).notes == (
        "before",
        "The best 2 of 3 arms by eval_loss on validation: lora.rank=64 (0.1000), lora.rank=8 (0.3000)",
    )


def test_the_best_arms_are_kept_though_the_baseline_is_better() -> None:
    assert kept(narrowed(study(1), *earlier(LOSSES | {"baseline": [0.0]}))) == ["baseline", "lora.rank=64"]


def test_an_arms_value_is_the_mean_of_its_finished_runs() -> None:
    # One seed of rank 8 is the best of all runs, but not its mean; the failed seed of rank 32 counts nowhere.
    values = {"lora.rank=8": [0.1, 0.9], "lora.rank=32": [0.4, None], "lora.rank=64": [0.45, 0.45]}
    found = narrowed(study(1), *earlier(values))
    assert kept(found) == ["baseline", "lora.rank=32"]
    assert found.notes[1].endswith("lora.rank=32 (0.4000)")


def test_arms_without_a_finished_run_are_named() -> None:
    found = narrowed(study(2), *earlier({"lora.rank=8": [0.3], "lora.rank=32": [None]}))
    assert kept(found) == ["baseline", "lora.rank=8"]
    assert found.notes[1:] == (
        "The best 1 of 1 arms by eval_loss on validation: lora.rank=8 (0.3000)",
        "Without a finished run, so not ranked: lora.rank=32, lora.rank=64",
    )


@pytest.mark.parametrize(
    "values",
    [{}, {"baseline": [0.5]}, {"baseline": [0.5], "lora.rank=8": [None]}, {"lora.rank=128": [0.1]}],
    ids=["nothing", "baseline-only", "failed", "arm-of-another-start"],
)
def test_without_a_finished_arm_there_is_nothing_to_repeat(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        narrowed(study(2), *earlier(values))
    assert caught.value.problems == [
        "study.replicate_top=2: no arm of mine has finished; run it once without study.replicate_top"
    ]


def test_a_study_that_was_never_started_is_refused_too() -> None:
    with pytest.raises(ConfigError, match="no arm of mine has finished"):
        narrowed(study(1), None, earlier(LOSSES)[1])


def test_only_finished_runs_count_as_finished() -> None:
    _, runs = earlier({"lora.rank=8": [0.3, None]})
    assert list(runs) == ["outputs/lora.rank=8-0"]
