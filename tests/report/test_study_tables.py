"""A study as people see it: the plan before it starts and what has become of it."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from ftx.record.layout import RunDir, StudyDir
from ftx.record.study_record import StudyRecord, TrialRecord
from ftx.report.study import arms_of, arms_table, closing_lines, failures_table, plan_lines

COMMAND = "python -m ftx.train -m lora.rank=8,16"
FOLDER = StudyDir(Path("multirun/rank-1234"))


def trial(factor: str | None, level: Any, seed: int = 0, state: str = "missing", **more: Any) -> TrialRecord:
    values: dict[str, Any] = {
        "arm": "baseline" if factor is None else f"{factor}={level}",
        "factor": factor,
        "level": level,
        "levels": {} if factor is None else {factor: level},
        "is_baseline": factor is None,
        "replicate": seed,
        "replicates": {"seed": seed},
        "overrides": [],
        "fingerprint": {"train": "0123456789", "evaluation": "e"},
        "state": state,
    }
    return TrialRecord(**values | more)


def study(*trials: TrialRecord, factors: list[dict[str, Any]] | None = None, **more: Any) -> StudyRecord:
    values: dict[str, Any] = {
        "study": "rank-1234",
        "design": "ofat",
        "factors": [{"name": "lora.rank", "baseline": 16}] if factors is None else factors,
        "baseline": {},
        "replicates": {"seed": [0, 1]},
        "metric": {"name": "eval_loss", "direction": "min", "at": "best"},
        "trials": list(trials),
    }
    return StudyRecord(**values | more)


def rows(table: Table) -> list[tuple[str, ...]]:
    return list(zip(*([str(cell) for cell in column.cells] for column in table.columns), strict=True))


def texts(lines: Iterable[Any]) -> list[str]:
    return [line for line in lines if isinstance(line, str)]


def test_arms_stand_in_their_order_the_baseline_first() -> None:
    record = study(trial("lora.rank", 32), trial("lora.rank", 8), trial(None, None), trial("lora.rank", 32, seed=1))
    arms = arms_of(record)
    assert list(arms) == ["baseline", "lora.rank=32", "lora.rank=8"]
    assert [each.replicate for each in arms["lora.rank=32"]] == [0, 1]


def test_a_row_an_arm_with_how_many_of_its_runs_are_where() -> None:
    record = study(
        trial(None, None, 0, "done"),
        trial(None, None, 1, "done"),
        trial("lora.rank", 8, 0, "running"),
        trial("lora.rank", 8, 1, "failed"),
        trial("lora.rank", 32, 0, "done"),
        trial("lora.rank", 32, 1, "missing"),
    )
    table = arms_table(record)
    assert [str(column.header) for column in table.columns] == [
        *("factor", "level", "done", "running", "failed", "to run"),
    ]
    assert rows(table) == [
        ("baseline", "lora.rank=16", "2", "", "", ""),
        ("lora.rank", "8", "", "1", "1", ""),
        ("lora.rank", "32", "1", "", "", "1"),
    ]


def test_the_title_says_what_is_compared() -> None:
    record = study(trial(None, None), replicates={"seed": [0, 1], "data_seed": [5]})
    assert str(arms_table(record).title) == "Study rank-1234: ofat, seed=0,1, data_seed=5, eval_loss (min)"


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        (1e-4, "1e-4"),
        (2e-4, "2e-4"),
        (0.05, "0.05"),
        (3.0, "3"),
        (8, "8"),
        ("dora", "dora"),
        ({"optim.batch_size": 16, "optim.lr": 4e-4}, "optim.batch_size=16, optim.lr=4e-4"),
        (None, "null"),
        (["q_proj", "v_proj"], "[q_proj,v_proj]"),
    ],
    ids=["1e-4", "2e-4", "decimal", "whole", "integer", "option", "coupled", "null", "list"],
)
def test_a_level_is_shown_as_it_would_be_typed(level: Any, shown: str) -> None:
    record = study(trial(None, None), trial("f", level), factors=[{"name": "f", "baseline": level}])
    baseline, arm = rows(arms_table(record))
    assert arm[:2] == ("f", shown)
    assert shown in baseline[1]


def test_the_baseline_row_has_its_value_of_every_factor() -> None:
    factors = [{"name": "lora.rank", "baseline": 16}, {"name": "optim.lr", "baseline": 2e-4}]
    ((name, values, *_),) = rows(arms_table(study(trial(None, None), factors=factors)))
    assert (name, values) == ("baseline", "lora.rank=16, optim.lr=2e-4")


def test_an_arm_that_differs_in_several_factors_names_them() -> None:
    both = trial(
        None,
        None,
        arm="lora.rank=8 optim.lr=1e-4",
        is_baseline=False,
        levels={"lora.rank": 8, "optim.lr": 1e-4},
    )
    assert rows(arms_table(study(trial(None, None), both)))[1][:2] == ("lora.rank+optim.lr", "8, 1e-4")


def test_the_plan_counts_what_is_there_and_what_will_run() -> None:
    record = study(
        trial(None, None, 0, "done"),
        trial(None, None, 1, "running"),
        trial("lora.rank", 8, 0, "failed"),
        trial("lora.rank", 8, 1, "missing"),
    )
    lines = list(plan_lines(record, ["a note", "another"], ["lora.rank=8 seed=0", "lora.rank=8 seed=1"], None))
    assert isinstance(lines[0], Table)
    assert lines[1:] == ["a note", "another", "4 runs: 1 finished, 1 running elsewhere, 2 to run now"]


def test_the_plan_says_what_the_budget_leaves() -> None:
    record = study(*(trial("lora.rank", 8, seed) for seed in range(5)))
    now = ["lora.rank=8 seed=0", "lora.rank=8 seed=1"]
    said = "5 runs: 0 finished, 0 running elsewhere, 2 to run now, 3 left for another time"
    assert texts(plan_lines(record, [], now, 2)) == [f"{said} (study.max_runs=2)"]
    assert texts(plan_lines(record, [], now, None)) == [said]  # those of an earlier launch


def test_the_plan_names_reused_runs_and_those_that_do_not_count() -> None:
    record = study(
        trial(None, None, 0, "done", run="outputs/a", reused=True),
        trial(None, None, 1, "done", run="outputs/b"),
        trial("lora.rank", 8, status="finished", reason="finished in outputs/c, with other torch 2.12 (here 2.13)"),
        trial("lora.rank", 8, seed=1, status="killed", reason="its process is gone"),
    )
    assert texts(plan_lines(record, [], ["lora.rank=8 seed=0", "lora.rank=8 seed=1"], None))[:-1] == [
        "1 finished runs are used again:",
        "  baseline seed=0: outputs/a",
        "lora.rank=8 seed=0: finished in outputs/c, with other torch 2.12 (here 2.13); it is trained anew",
    ]


def test_a_long_list_of_reused_runs_is_cut() -> None:
    reused = [trial(None, None, seed, "done", run=f"outputs/{seed}", reused=True) for seed in range(12)]
    lines = texts(plan_lines(study(*reused), [], [], None))
    assert lines[0] == "12 finished runs are used again:"
    assert lines[1:11] == [f"  baseline seed={seed}: outputs/{seed}" for seed in range(10)]
    assert lines[11] == "  and 2 more; --json lists all"


def test_a_study_that_is_done_says_so_and_asks_for_nothing() -> None:
    record = study(trial(None, None, 0, "done"), trial(None, None, 1, "done"))
    assert list(closing_lines(record, FOLDER, COMMAND, ["baseline seed=0", "baseline seed=1"])) == [
        "Study rank-1234: 2 of 2 runs finished, 0 failed, 0 missing",
        "Study directory: multirun/rank-1234",
    ]


def test_the_end_says_what_failed_what_is_missing_and_how_to_go_on() -> None:
    record = study(
        trial(None, None, 0, "done", status="finished"),
        trial(None, None, 1, "running", status="running", run="outputs/r"),
        trial("lora.rank", 8, 0, "failed", status="diverged", reason="loss is nan", run="outputs/d"),
        trial("lora.rank", 8, 1, "missing", status="killed", reason="its process is gone", run="outputs/k"),
        trial("lora.rank", 32, 0, "missing"),
        trial("lora.rank", 64, 0, "missing"),  # of an earlier start of the study, not asked for now
    )
    planned = [each.name for each in record.trials[:-1]]
    table, *lines = closing_lines(record, FOLDER, COMMAND, planned)
    assert rows(table) == [
        ("lora.rank=8 seed=0", "diverged", "loss is nan", "outputs/d/job.log"),
        ("lora.rank=8 seed=1", "killed", "its process is gone", "outputs/k/job.log"),
    ]
    assert lines == [
        "Study rank-1234: 1 of 5 runs finished, 1 failed, 2 missing, 1 running",
        "Missing: lora.rank=8 seed=1; lora.rank=32 seed=0",
        "Study directory: multirun/rank-1234",
        f"To go on, the same command: {COMMAND}",
    ]


def test_a_trial_that_was_not_run_has_no_log() -> None:
    table = failures_table([trial("lora.rank", 8, reason="the machine has no such device")], FOLDER)
    assert rows(table) == [("lora.rank=8 seed=0", "not run", "the machine has no such device", "")]


def test_a_job_that_left_no_run_has_what_it_printed(tmp_path: Path) -> None:
    folder = StudyDir(tmp_path)
    failed = trial("lora.rank", 8, reason="no such module")
    printed = folder.job(failed.name, failed.fingerprint["train"]) / "console.log"
    printed.parent.mkdir(parents=True)
    printed.write_text("Traceback")
    ((*_, log),) = rows(failures_table([failed], folder))
    assert log == str(printed)


def test_the_log_that_is_named_is_the_runs() -> None:
    ((*_, log),) = rows(failures_table([trial(None, None, 0, "failed", run="outputs/a")], FOLDER))
    assert Path(log) == RunDir(Path("outputs/a")).log


@pytest.mark.parametrize("text", ["[q_proj]", "[bold]x", "a [/] b"])
def test_brackets_are_printed_and_not_read_as_markup(text: str) -> None:
    record = study(
        trial(None, None),
        trial("f", text, 0, "failed", reason=f"because {text}"),
        factors=[{"name": "f", "baseline": text}],
    )
    console = Console(file=io.StringIO(), width=200)
    console.print(arms_table(record))
    console.print(failures_table(record.trials[1:], FOLDER))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count(text) == 4  # the baseline, the level, the failed run's name and its reason
