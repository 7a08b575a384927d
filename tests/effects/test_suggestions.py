"""Next steps that follow from tables made by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ftx.config.axes import split_axes
from ftx.config.command_line import parse_command_line
from ftx.effects.observations import FactorLevels, Metric, Observation, Observations
from ftx.effects.suggestions import Suggestion, suggestions
from ftx.effects.table import Options, StudyEffects, effects_of
from ftx.record.study_record import StudyRecord, TrialRecord

BASE = [0.500, 0.504, 0.496, 0.502, 0.498]
LOWER = [0.450, 0.456, 0.445, 0.452, 0.447]
HIGHER = [0.550, 0.556, 0.545, 0.552, 0.547]
CLOSE = [0.503, 0.505, 0.499, 0.506, 0.497]
RANK = FactorLevels("lora.rank", (8, 16, 32), 16)
RATE = FactorLevels("optim.lr", (0.0001, 0.0002, 0.0005), 0.0002)
COMMAND = ["python", "-m", "ftx.train", "-m", "lora.rank=8,16,32", "optim.lr=1e-4,2e-4,5e-4", "seed=0,1,2,3,4"]


def judged(
    arms: Sequence[tuple[dict[str, Any], Sequence[float | None]]], margin: float | None = None, **costs: float
) -> StudyEffects:
    """A table of loss by arm and seed; None is a missing run, `costs` the seconds of rank 8 and of all others."""
    rows = []
    for levels, values in arms:
        for seed, value in enumerate(values):
            whole = {RANK.name: 16, RATE.name: 0.0002, **levels}
            seconds = costs.get("small" if whole[RANK.name] == 8 else "large")
            status = "finished" if value is not None else "missing"
            rows.append(
                Observation(levels=whole, replicate=seed, status=status, value=value, cost={"seconds": seconds})
            )
    observations = Observations(
        name="rank-lr-1", design="ofat", metric=Metric("eval_loss", "min"), factors=(RANK, RATE), rows=tuple(rows)
    )
    return effects_of(observations, Options(margin=margin))


def factor(name: str, levels: Sequence[tuple[Any, str]], baseline: str | None) -> dict[str, Any]:
    return {
        "name": name,
        "keys": [name],
        "levels": [{"level": level, "label": label, "is_baseline": label == baseline} for level, label in levels],
        "baseline": next((level for level, label in levels if label == baseline), None),
        "baseline_level": baseline,
    }


def trial(name: str, level: Any, label: str, state: str = "done") -> TrialRecord:
    return TrialRecord(
        arm=f"{name}={label}",
        factor=name,
        level=level,
        levels={name: level},
        is_baseline=False,
        replicate=0,
        replicates={"seed": 0},
        overrides=["hardware.threads=1", f"{name}={label}", "seed=0"],
        fingerprint={"train": "t", "evaluation": "e"},
        state=state,
        status="finished" if state == "done" else None,
    )


@pytest.fixture
def study() -> StudyRecord:
    return StudyRecord(
        study="rank-lr-1",
        design="ofat",
        factors=[
            factor("lora.rank", [(8, "8"), (16, "16"), (32, "32")], "16"),
            factor("optim.lr", [(0.0001, "1e-4"), (0.0002, "2e-4"), (0.0005, "5e-4")], "2e-4"),
        ],
        baseline={"overrides": ["hardware.threads=1"], "fingerprint": "f", "config": {}},
        replicates={"seed": [0, 1, 2, 3, 4]},
        metric={"name": "eval_loss", "direction": "min", "at": "best"},
        launches=[{"command": COMMAND, "date": "2026-12-01T00:00:00Z"}],
        trials=[trial("lora.rank", 32, "32"), trial("optim.lr", 0.0005, "5e-4"), trial("optim.lr", 0.0001, "1e-4")],
    )


def only(found: Sequence[Suggestion], kind: str) -> Suggestion:
    (one,) = [each for each in found if each.kind == kind]
    return one


def parsed(command: Sequence[str] | None) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The axes and the fixed overrides of a command line of ours."""
    assert command is not None
    assert list(command[:3]) == ["python", "-m", "ftx.train"]
    line = parse_command_line(command[3:])
    assert line.multirun
    sweep = split_axes(line.overrides)
    return {axis.key: axis.values for axis in sweep.axes}, sweep.fixed


def test_a_worse_level_is_safe_to_drop(study: StudyRecord) -> None:
    found = suggestions(judged([({}, BASE), ({"lora.rank": 8}, HIGHER)], small=10.0, large=20.0), study)
    assert [each.kind for each in found] == ["drop"]
    assert found[0].text.startswith("lora.rank=8 is safe to drop: eval_loss is +0.05 against the baseline 16")
    assert "50% less time" in found[0].text
    axes, _ = parsed(found[0].command)
    assert axes["lora.rank"] == ("16", "32")
    assert axes["optim.lr"] == ("1e-4", "2e-4", "5e-4")


def test_the_only_level_beside_the_baseline_is_dropped_without_a_command(study: StudyRecord) -> None:
    study.factors[0] = factor("lora.rank", [(8, "8"), (16, "16")], "16")
    (found,) = suggestions(judged([({}, BASE), ({"lora.rank": 8}, HIGHER)]), study)
    assert (found.kind, found.command) == ("drop", None)


def test_more_seeds_go_on_after_those_used(study: StudyRecord) -> None:
    effects = judged([({}, BASE), ({"lora.rank": 8}, CLOSE)])
    (row,) = [row for row in effects.rows if row.level == 8]
    assert row.verdict == "within noise"
    assert isinstance(row.seeds_needed, int)
    one = only(suggestions(effects, study), "more_seeds")
    assert f"about {row.seeds_needed} seeds" in one.text
    axes, fixed = parsed(one.command)
    assert axes["seed"] == tuple(map(str, range(row.seeds_needed)))
    assert axes["lora.rank"] == ("8", "16", "32")
    assert fixed == ()


def test_too_few_seeds_ask_for_five(study: StudyRecord) -> None:
    study.replicates = {"seed": [0, 1]}
    study.launches = [{"command": ["python", "-m", "ftx.train", "-m", "study=x", "study.replicate_top=2", "seed=0,1"]}]
    effects = judged([({}, BASE[:2]), ({"lora.rank": 8}, LOWER[:2])])
    one = only(suggestions(effects, study), "more_seeds")
    assert "at least 3 seeds, better 5; the next are 2, 3, 4" in one.text
    assert one.command == ["python", "-m", "ftx.train", "-m", "study=x", "seed=0,1,2,3,4"]


def test_seeds_that_would_not_be_worth_it() -> None:
    effects = judged([({}, BASE), ({"lora.rank": 8}, [0.5001, 0.5039, 0.4991, 0.4995, 0.4978])])
    one = only(suggestions(effects), "more_seeds")
    assert ">50 seeds" in one.text
    assert "--margin" in one.text


def test_the_best_levels_are_combined_and_their_sum_predicted(study: StudyRecord) -> None:
    better = [value - 0.1 for value in LOWER]
    effects = judged([({}, BASE), ({"lora.rank": 32}, LOWER), ({"optim.lr": 0.0005}, better)])
    one = only(suggestions(effects, study), "combine")
    assert one.text.startswith("Combine optim.lr=5e-4, lora.rank=32")
    assert "eval_loss will be 0.3, where the baseline has 0.5;" in one.text
    axes, fixed = parsed(one.command)
    assert axes == {"optim.lr": ("2e-4", "5e-4"), "lora.rank": ("16", "32"), "seed": ("0", "1", "2", "3", "4")}
    assert set(fixed) == {"hardware.threads=1", "study.design=factorial"}


def test_a_baseline_that_an_axis_would_hide_runs_the_combination_alone(study: StudyRecord) -> None:
    study.baseline["overrides"] = ["hardware.threads=1", "lora.rank=16"]
    study.launches[0]["command"] = [*COMMAND[:4], "--config-dir", "my conf", *COMMAND[4:]]
    effects = judged([({}, BASE), ({"lora.rank": 32}, LOWER), ({"optim.lr": 0.0005}, LOWER)])
    one = only(suggestions(effects, study), "combine")
    axes, fixed = parsed(one.command)
    assert axes == {"seed": ("0", "1", "2", "3", "4")}
    assert set(fixed) == {"hardware.threads=1", "lora.rank=32", "optim.lr=5e-4"}
    assert one.command is not None
    assert one.command[4:6] == ["--config-dir", "my conf"]
    assert "compare the mean" in one.text


def test_one_better_factor_is_not_combined(study: StudyRecord) -> None:
    arms = [({}, BASE), ({"optim.lr": 0.0001}, LOWER), ({"optim.lr": 0.0005}, LOWER[::-1])]
    assert not suggestions(judged(arms), study)


def test_equivalent_levels_leave_the_choice_to_cost() -> None:
    effects = judged([({}, BASE), ({"lora.rank": 8}, CLOSE)], margin=0.02, small=10.0, large=20.0)
    one = only(suggestions(effects), "equivalent")
    assert one.text == (
        "lora.rank=8 and the baseline 16 are equivalent: they differ by less than 0.02; "
        "take 8, which needs 50% less time."
    )


def test_missing_runs_come_first(study: StudyRecord) -> None:
    study.trials.append(trial("lora.rank", 8, "8", state="missing"))
    first, *_ = suggestions(judged([({}, BASE), ({"lora.rank": 8}, [*HIGHER[:4], None])]), study)
    assert first == Suggestion("finish", "1 planned run is missing; the same command goes on.", COMMAND)


def test_no_study_no_command() -> None:
    arms = [({}, BASE), ({"lora.rank": 32}, LOWER), ({"optim.lr": 0.0005}, LOWER[::-1]), ({"lora.rank": 8}, CLOSE)]
    found = suggestions(judged(arms))
    assert {each.kind for each in found} == {"more_seeds", "combine"}
    assert all(each.command is None for each in found)


def test_replicates_that_are_not_numbers_name_no_next_ones() -> None:
    effects = judged([({}, BASE[:2]), ({"lora.rank": 8}, LOWER[:2])])
    rows = tuple(replace(row, replicate=f"fold {row.replicate}") for row in effects.observations.rows)
    effects = replace(effects, observations=replace(effects.observations, rows=rows))
    assert "the next are" not in only(suggestions(effects), "more_seeds").text
