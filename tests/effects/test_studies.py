"""Studies, from the run directories that they leave."""

import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from effects.asking import Aggregate, Answer
from effects.directories import DEAD, Folder, run_record
from ftx.effects.comparability import comparability
from ftx.record.provenance import process_identity
from ftx.record.run_record import RunRecord

STRANGER = {"run_id": "20270131T000000Z-ffffff", "date": "2027-01-31T00:00:00Z"}
SPLITS = ("train", "validation", "test")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def ask(aggregate: Aggregate, *words: str) -> Answer:
    return aggregate("--format", "json", *words)


def counts(row: dict[str, Any]) -> tuple[int, int, int, int]:
    return row["n_planned"], row["n_ok"], row["n_failed"], row["n_missing"]


def test_a_study_is_a_table(aggregate: Aggregate, folder: Folder) -> None:
    folder.write()
    answer = ask(aggregate)
    rows = answer.rows()
    assert list(rows) == [
        *(("lora.rank", level) for level in (8, 16, 32)),
        *(("optim.lr", level) for level in (1e-4, 2e-4, 5e-4)),
    ]
    assert {counts(row) for row in rows.values()} == {(3, 3, 0, 0)}
    assert rows["lora.rank", 8]["verdict"] == "worse"  # 0.03 more of a loss
    assert rows["optim.lr", 5e-4]["verdict"] == "better"
    assert rows["lora.rank", 32]["verdict"] == "within noise"
    assert rows["lora.rank", 8]["effect"] == pytest.approx(0.03, abs=0.002)
    assert [key for key, row in rows.items() if row["is_baseline"]] == [("lora.rank", 16), ("optim.lr", 2e-4)]
    assert rows["lora.rank", 16]["values"] == rows["optim.lr", 2e-4]["values"]
    assert answer.data["metric"] == {"name": "eval_loss", "direction": "min", "split": "test"}


def test_a_row_says_what_its_level_costs(aggregate: Aggregate, folder: Folder) -> None:
    folder.change("lora.rank=8", cost={"seconds": 10.0, "trainable_parameters": 99})
    folder.change("lora.rank=8", 1, cost={"seconds": 40.0, "peak_memory_bytes": None})
    folder.write()
    rows = ask(aggregate).rows()
    cost = {"train_rows": 156, "seconds": 20.0, "tokens_per_second": 2000.0, "peak_memory_bytes": 2**29}
    cost |= {"trainable_parameters": 99}
    assert rows["lora.rank", 8]["cost"] == pytest.approx(cost)
    assert rows["lora.rank", 16]["cost"]["trainable_parameters"] == 195584
    assert rows["lora.rank", 8]["secondary"]["exact_match"]["n"] == 3


def test_found_is_used_and_what_was_left_out(aggregate: Aggregate, folder: Folder) -> None:
    folder.write()
    outputs = folder.path / "outputs"
    shutil.copytree(outputs / "baseline-s0", outputs / "baseline-s0-copy")
    (outputs / "foreign").mkdir()
    (outputs / "labbook.md").write_text("no folder at all\n")
    whole = (outputs / "baseline-s0" / "run.json").read_bytes()
    damaged = {
        "empty": b"",
        "cut": whole[:500],
        "flipped": whole[:300] + b"\xff" + whole[301:],
        "newer": json.dumps(json.loads(whole) | {"schema_version": 99}).encode(),
        "nan": whole.replace(b'"value": 0.13', b'"value": NaN, "x": 0.13', 1),
    }
    for name, content in damaged.items():
        (outputs / name).mkdir()
        (outputs / name / "run.json").write_bytes(content)
    folder.write_run("again", replace(folder.records["baseline-s2"], **STRANGER))
    other = {"train": "another", "evaluation": "e"}
    folder.write_run(
        "stranger", replace(folder.records["baseline-s2"], **STRANGER | {"run_id": "x"}, fingerprint=other)
    )
    answer = ask(aggregate)
    folders = sum(path.is_dir() for path in outputs.iterdir())
    (summary,) = answer.problems("left_out")
    assert summary.startswith(f"{folders} run folders found, 15 used, left out: ")
    for words in ("5 damaged", "1 foreign", "1 copied", "1 repeated", "1 of no trial of this study"):
        assert words in summary
    by_kind = {problem["kind"]: problem for problem in answer.data["problems"]}
    assert len(by_kind["left_out: damaged"]["runs"]) == len(damaged)
    said = by_kind["left_out: damaged"]["detail"]
    for words in (
        "empty",
        "truncated at byte 500",
        "byte 300 is not UTF-8",
        "written by a newer ftx",
        "NaN is not JSON",
    ):
        assert words in said
    assert by_kind["left_out: copied"]["runs"] == ["outputs/baseline-s0-copy"]
    assert {counts(row) for row in answer.rows().values()} == {(3, 3, 0, 0)}


def test_failed_and_killed_runs_keep_their_place(aggregate: Aggregate, tmp_path: Path) -> None:
    folder = Folder(tmp_path, lora__rank=(16, 8, 32, 64))
    gone = process_identity() | {"pid": 2**22 + 1}
    folder.change("lora.rank=8", 0, status="failed", error="ValueError: no")
    folder.change("lora.rank=8", 1, status="diverged", result={"value": math.nan})
    folder.change("lora.rank=32", 0, status="out_of_memory", result={"value": None})
    folder.change("lora.rank=64", 1, status="running", process=gone, result={"value": None})
    folder.change("lora.rank=64", 2, status="interrupted")
    folder.write()
    shutil.rmtree(folder.path / "outputs" / "lora.rank=32-s2")
    rows = ask(aggregate).rows()
    assert counts(rows[8]) == (3, 1, 2, 0)
    assert counts(rows[32]) == (3, 1, 1, 1)
    assert counts(rows[64]) == (3, 1, 0, 2)
    assert [rows[level]["verdict"] for level in (8, 32, 64)] == ["unstable 2/3", "unstable 1/3", "not enough seeds"]


def test_a_silent_run_of_another_host_counts_as_killed(aggregate: Aggregate, folder: Folder) -> None:
    folder.change("lora.rank=8", 0, status="running", process=DEAD)
    folder.write()
    os.utime(folder.path / "outputs" / "lora.rank=8-s0" / "run.json", (1.0, 1.0))
    assert counts(ask(aggregate).rows()["lora.rank", 8]) == (3, 2, 0, 1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_finished_run_without_a_finite_metric_has_failed(aggregate: Aggregate, folder: Folder, value: float) -> None:
    folder.change("lora.rank=8", 1, result={"value": value})
    folder.write()
    answer = ask(aggregate)
    assert counts(answer.rows()["lora.rank", 8]) == (3, 2, 1, 0)
    assert answer.rows()["lora.rank", 8]["verdict"] == "unstable 1/3"
    json.loads(answer.out, parse_constant=pytest.fail)
    assert aggregate("--format", "terminal").status == 0


def test_a_run_of_another_metric_is_said(aggregate: Aggregate, folder: Folder) -> None:
    folder.change("lora.rank=8", 0, result={"metric": "exact_match", "value": 0.9})
    folder.write()
    answer = ask(aggregate)
    assert counts(answer.rows()["lora.rank", 8]) == (3, 2, 0, 1)
    assert answer.problems("other_metric") == ["1 runs have another metric than eval_loss"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"versions": {"torch": "2.12.0"}}, "versions differ: lora.rank=8"),
        ({"hardware": {"device_name": "another processor"}}, "device differs: lora.rank=8"),
        ({"code": {"config": {"commit": "0" * 40, "dirty": False, "untracked": []}}}, "commit or uncommitted changes"),
        ({"code": {"ftx": {"sources": "0" * 64}}}, "ftx's own code differs: lora.rank=8"),
        ({"dataset": {"sha256": "0" * 64}}, "dataset differs: lora.rank=8"),
        ({"dataset": {"template_sha256": "0" * 64}}, "template differs: lora.rank=8"),
        ({"hyperparameters": {"model.attn_implementation": "eager"}}, "attention kernel differs: lora.rank=8: eager"),
        ({"cost": {"effective_batch": 4}}, "effective batch differs: lora.rank=8: 4 (baseline: 8)"),
    ],
    ids=["torch", "device", "commit", "sources", "dataset", "template", "kernel", "batch"],
)
def test_what_else_differs_is_named_by_arm(
    aggregate: Aggregate, folder: Folder, changes: dict[str, Any], words: str
) -> None:
    folder.change("lora.rank=8", **changes)
    folder.write()
    answer = ask(aggregate)
    (detail,) = answer.problems("differs")
    assert words in detail
    assert "lora.rank=8" in detail
    assert "lora.rank=32" not in detail
    assert answer.problems("follows") == []
    assert counts(answer.rows()["lora.rank", 8]) == (3, 3, 0, 0)
    (problem,) = (each for each in answer.data["problems"] if each["kind"] == "differs")
    assert len(problem["runs"]) == 3
    printed = aggregate("--format", "terminal").out
    assert printed.index("differs: ") < printed.index("verdic")


@pytest.mark.parametrize(("key", "name"), [("precision", "precision"), ("gradient_checkpointing", "gradient")])
def test_other_settings_of_the_hardware_are_named(aggregate: Aggregate, folder: Folder, key: str, name: str) -> None:
    for seed in range(3):
        record = folder.records[f"optim.lr=0.0005-s{seed}"]
        record.config["hardware"][key] = "bf16" if key == "precision" else True
    folder.write()
    (detail,) = ask(aggregate).problems("differs")
    assert detail.startswith(name)
    assert "optim.lr=0.0005" in detail


def test_one_run_of_three_is_enough_to_be_named(aggregate: Aggregate, folder: Folder) -> None:
    folder.change("optim.lr=0.0001", 1, hardware={"device_name": "another"})
    folder.write()
    assert ask(aggregate).problems("differs") == ["device differs: optim.lr=0.0001"]


def test_runs_measured_on_other_rows_are_not_averaged(aggregate: Aggregate, folder: Folder) -> None:
    other = {
        "content": {split: {"any_order": "others"} for split in SPLITS[1:]} | {"train": {"any_order": "rows of train"}}
    }
    folder.change("lora.rank=8", 1, dataset=other, result={"value": 99.0})
    folder.write()
    answer = ask(aggregate)
    row = answer.rows()["lora.rank", 8]
    assert len(row["values"]) == 2
    assert 99.0 not in row["values"]
    assert row["verdict"] == "not enough seeds"
    assert answer.problems("evaluation") == [
        "lora.rank=8: measured on other rows or tokens than the rest, so not compared"
    ]


def test_what_follows_from_the_factor_stands_apart(aggregate: Aggregate, tmp_path: Path) -> None:
    folder = Folder(tmp_path, data__max_seq_len=(1024, 256))
    folder.change("data.max_seq_len=256", cost={"trained_tokens": 9000})
    folder.write()
    answer = ask(aggregate)
    assert answer.problems("differs") == []
    assert answer.problems("follows") == [
        "follows from the factor: trained tokens differ: data.max_seq_len=256: 9000 (baseline: 16893)"
    ]


def test_a_factor_of_the_hardware_may_move_it(aggregate: Aggregate, tmp_path: Path) -> None:
    folder = Folder(tmp_path, hardware__precision=("fp32", "bf16")).write()
    assert folder.records
    answer = ask(aggregate)
    assert (len(answer.problems("follows")), answer.problems("differs")) == (1, [])


def test_tokens_that_differ_between_seeds_do_not_follow_from_the_factor(aggregate: Aggregate, folder: Folder) -> None:
    folder.change("lora.rank=8", 1, cost={"trained_tokens": 9000})
    folder.write()
    answer = ask(aggregate)
    assert (answer.problems("follows"), len(answer.problems("differs"))) == ([], 1)


def test_null_and_list_levels_have_all_their_runs_once(aggregate: Aggregate, tmp_path: Path) -> None:
    Folder(tmp_path, lora__target_modules=(["all-linear"], None, ["q_proj", "v_proj"])).write()
    rows = ask(aggregate).rows()
    assert {counts(row) for row in rows.values()} == {(3, 3, 0, 0)}
    assert list(rows) == ["[all-linear]", None, "[q_proj,v_proj]"]
    assert "9 different runs" in aggregate().out


def test_the_baseline_is_shared_by_the_factors_and_counted_once(aggregate: Aggregate, folder: Folder) -> None:
    folder.write()
    assert "15 different runs" in aggregate().out


def test_replicates_added_after_a_look_are_said(aggregate: Aggregate, folder: Folder) -> None:
    folder.write(launches=[folder.launch(range(3)), folder.launch(range(3))])
    assert ask(aggregate).problems("looks") == []
    folder.write(launches=[folder.launch(range(2)), folder.launch(range(3))])
    (detail,) = ask(aggregate).problems("looks")
    assert "over 2 looks" in detail
    assert "8.7%" in detail
    assert "--looks 2" in detail
    assert ask(aggregate, "--looks", "2").problems("looks") == []


def test_the_newest_study_is_shown_and_named(aggregate: Aggregate, folder: Folder) -> None:
    folder.write()
    folder.write(study="newest")
    os.utime(folder.path / "multirun" / "mine" / "study.json", (1.0, 1.0))
    assert ask(aggregate).data["study"] == "newest"
    assert ask(aggregate, "--study", "mine").data["study"] == "mine"
    both = ask(aggregate, "--study", "mine", "newest")
    assert [table["study"] for table in json.loads(both.out)] == ["mine", "newest"]
    assert "newest: eval_loss" in aggregate().out


def test_a_study_is_found_by_the_start_of_its_name(aggregate: Aggregate, folder: Folder) -> None:
    folder.write(study="rank-1")
    folder.write(study="rank-2")
    assert ask(aggregate, "--study", "rank-2").status == 0
    ambiguous = ask(aggregate, "--study", "rank")
    assert (ambiguous.status, ambiguous.out) == (2, "")
    assert "several: rank-1, rank-2" in ambiguous.err


def test_another_spelling_of_the_root_finds_the_same(aggregate: Aggregate, folder: Folder) -> None:
    folder.write()
    expected = ask(aggregate).data["effects"]
    for root in ("./outputs", str(folder.path / "outputs")):
        assert ask(aggregate, "--root", root).data["effects"] == expected


def test_the_report_lies_beside_the_study(drawing: Aggregate, folder: Folder) -> None:
    folder.write()
    printed = ask(drawing)
    report = folder.path / "multirun" / "mine" / "report"
    names = {path.name for path in report.iterdir()}
    assert {"effects.csv", "runs.csv", "effects.json", "report.md", "table.tex", "report.html"} <= names
    assert {path.suffix for path in report.iterdir()} >= {".svg", ".png"}
    assert json.loads((report / "effects.json").read_text()) == printed.data
    assert printed.err == "Report: multirun/mine/report/report.html\n"


def test_out_is_another_place_for_the_report(aggregate: Aggregate, folder: Folder) -> None:
    folder.write(study="other")
    folder.write()
    aggregate("--study", "mine", "--out", "elsewhere")
    assert Path("elsewhere/effects.csv").read_text().startswith("study,factor,level,")
    assert not (folder.path / "multirun" / "mine" / "report").exists()
    aggregate("--study", "mine", "other", "--out", "both")
    assert sorted(path.name for path in Path("both").iterdir()) == ["mine", "other"]


def test_null_and_the_text_null_are_two_levels(aggregate: Aggregate, tmp_path: Path) -> None:
    Folder(tmp_path, custom__x=(1, None, "null")).write()
    assert [counts(row) for row in ask(aggregate).rows().values()] == [(3, 3, 0, 0)] * 3


def test_an_arm_that_differs_in_several_factors_is_shown(aggregate: Aggregate, folder: Folder) -> None:
    both = {"lora.rank": 8, "optim.lr": 5e-4}
    fingerprint = {"train": "both", "evaluation": "e" * 64}
    role: dict[str, Any] = {"arm": "lora.rank=8 optim.lr=5e-4", "factor": None, "level": None, "levels": both}
    folder.trials.append(replace(folder.trials[1], **role, fingerprint=fingerprint, run="outputs/both"))
    folder.records["both"] = replace(folder.records["lora.rank=8-s0"], run_id="both", fingerprint=fingerprint)
    folder.write()
    assert "lora.rank=8 optim.lr=5e-4" in aggregate("--format", "markdown").out


# An arm that no fingerprint tells apart must not take another arm's run.


def unhashed(path: Path) -> Folder:
    folder = Folder(path, hardware__micro_batch_size=(8, 4))
    for trial in folder.trials:
        trial.fingerprint["train"] = f"seed {trial.replicate}"
        trial.unhashed = {"hardware.micro_batch_size": trial.levels.get("hardware.micro_batch_size", 8)}
        folder.records[f"{trial.arm}-s{trial.replicate}"].fingerprint["train"] = f"seed {trial.replicate}"
    return folder


def test_a_missing_run_is_not_taken_from_an_arm_with_the_same_fingerprint(aggregate: Aggregate, tmp_path: Path) -> None:
    unhashed(tmp_path).write()
    shutil.rmtree(tmp_path / "outputs" / "hardware.micro_batch_size=4-s0")
    assert counts(ask(aggregate).rows()[4]) == (3, 2, 0, 1)


def test_arms_with_the_same_fingerprint_stay_apart_under_another_spelling_of_the_root(
    aggregate: Aggregate, tmp_path: Path
) -> None:
    unhashed(tmp_path).write()
    expected = ask(aggregate).data["effects"]
    assert ask(aggregate, "--root", str(tmp_path / "outputs")).data["effects"] == expected


def test_the_copy_is_not_the_run_that_the_study_names(aggregate: Aggregate, folder: Folder) -> None:
    folder.write()
    shutil.copytree(folder.path / "outputs" / "baseline-s0", folder.path / "outputs" / "x")
    (problem,) = (each for each in ask(aggregate).data["problems"] if each["kind"] == "left_out: copied")
    assert problem["runs"] == ["outputs/x"]


def test_early_stops_stand_apart(aggregate: Aggregate, folder: Folder) -> None:
    for seed in range(3):
        folder.change("lora.rank=8", seed, stop_reason="early stop", cost={"steps": 40 + seed})
    folder.write()
    answer = ask(aggregate)
    assert (len(answer.problems("follows")), answer.problems("differs")) == (1, [])


@pytest.mark.parametrize(
    ("changes"),
    [
        {"fingerprint": {"train": ["a"], "evaluation": "e"}},
        {"status": "running", "process": {"pid": 1}},
        {"result": {"value": "abc"}},
        {"dataset": {"content": {"validation": None}}},
        {"code": {"config": "text"}},
        {"cost": {"seconds": "fast"}},
        {"losses": {"final_train_loss": "abc"}},
        {"dataset": {"sha256": ["x"]}},
        {"versions": {"torch": ["x"]}},
        {"config": {"score": None}},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_a_record_with_a_value_of_the_wrong_kind_costs_only_its_own_run(
    aggregate: Aggregate, folder: Folder, changes: dict[str, Any]
) -> None:
    folder.change("lora.rank=8", 0, **changes)
    folder.write()
    answer = ask(aggregate)
    assert counts(answer.rows()["optim.lr", 5e-4]) == (3, 3, 0, 0)


@pytest.mark.parametrize(("metric", "left_out"), [("eval_loss", {"b"}), ("exact_match", set())])
def test_a_loss_on_other_tokens_is_not_compared_a_score_is(metric: str, left_out: set[str]) -> None:
    def run(name: str, tokens: str) -> RunRecord:
        content = {split: {"ordered": "o", "any_order": "a", "tokens": tokens} for split in ("validation", "test")}
        record = run_record(1, {}, 0, 0.1, dataset={"content": content})
        return replace(record, run_id=name, result=record.result | {"metric": metric})

    runs = [("baseline", run("a", "usual")), ("baseline", run("c", "usual")), ("arm", run("b", "others"))]
    problems, elsewhere = comparability(runs, {})
    assert elsewhere == left_out
    assert [problem.runs for problem in problems if problem.kind == "evaluation"] == [("b",)] * len(left_out)
