"""Runs that no study claims, compared by the keys in which they differ."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from effects.asking import Aggregate, Answer
from effects.directories import Folder, run_record
from ftx.record.layout import RunDir
from ftx.record.run_record import RunRecord

BASE = (0.130, 0.1312, 0.1325, 0.1308)
OTHER = (0.180, 0.1809, 0.1828)


def write(records: Sequence[RunRecord]) -> None:
    for number, record in enumerate(records):
        folder = Path("outputs") / f"r{number}"
        folder.mkdir(parents=True)
        record.write(RunDir(folder))


def two_arms(base: dict[str, Any], other: dict[str, Any], **changes: Any) -> list[RunRecord]:
    """Four runs of one setting, then three newer ones of another; `changes` are of the newer ones."""
    older = [run_record(seed, base, seed, value) for seed, value in enumerate(BASE)]
    return older + [run_record(10 + seed, other, seed, value, **changes) for seed, value in enumerate(OTHER)]


def ask(aggregate: Aggregate, *words: str) -> Answer:
    return aggregate("--runs", "outputs", "--format", "json", *words)


def test_the_key_that_differs_is_the_factor(aggregate: Aggregate) -> None:
    write(two_arms({"lora.rank": 16}, {"lora.rank": 8}))
    answer = ask(aggregate)
    rows = answer.rows()
    assert {row["factor"] for row in rows.values()} == {"lora.rank"}
    assert (rows[16]["is_baseline"], rows[16]["n_ok"]) == (True, 4)
    assert (rows[8]["n_planned"], rows[8]["n_ok"], rows[8]["verdict"]) == (3, 3, "worse")
    assert rows[8]["effect"] == pytest.approx(0.05, abs=0.001)


def test_keys_that_move_together_are_one_factor(aggregate: Aggregate) -> None:
    write(two_arms({"lora.rank": 16, "lora.alpha": 32.0}, {"lora.rank": 8, "lora.alpha": 16.0}))
    assert {row["factor"] for row in ask(aggregate).data["effects"]} == {"lora.rank"}


def test_names_and_notes_are_no_factors(aggregate: Aggregate) -> None:
    write(two_arms({"lora.rank": 16, "notes": "a"}, {"lora.rank": 8, "notes": "b", "name": "x"}))
    assert {row["factor"] for row in ask(aggregate).data["effects"]} == {"lora.rank"}


def test_runs_of_a_study_are_not_loose(aggregate: Aggregate, tmp_path: Path) -> None:
    Folder(tmp_path).write()
    assert ask(aggregate).status == 1
    folder = Path("outputs/loose")
    for seed in range(2):
        RunDir(folder.with_name(f"loose{seed}")).path.mkdir()
        run_record(100 + seed, {"lora.rank": 4 + seed}, 0, 0.2 + seed).write(RunDir(folder.with_name(f"loose{seed}")))
    assert {row["level"] for row in ask(aggregate).data["effects"]} == {4, 5}


def test_nothing_to_compare_is_said(aggregate: Aggregate) -> None:
    write([run_record(0, {}, 0, 0.1)])
    answer = ask(aggregate)
    assert (answer.status, answer.out) == (1, "")
    assert "a comparison needs two" in answer.err


def test_repeated_runs_count_once(aggregate: Aggregate) -> None:
    records = two_arms({"lora.rank": 16}, {"lora.rank": 8})
    write([*records, replace(records[0], run_id="again", date="2020-01-31T00:00:00Z")])
    answer = ask(aggregate)
    assert answer.rows()[16]["n_ok"] == 4
    assert answer.problems("repeated") == ["1 runs repeat another of the same settings and seed"]


def test_runs_of_another_metric_are_left_out(aggregate: Aggregate) -> None:
    records = two_arms({"lora.rank": 16}, {"lora.rank": 8})
    odd = run_record(50, {"lora.rank": 4, "metric.name": "exact_match"}, 0, 0.9)
    write([*records, odd])
    answer = ask(aggregate)
    assert set(answer.rows()) == {16, 8}
    assert answer.problems("other_metric")


def test_runs_measured_on_other_rows_are_not_averaged(aggregate: Aggregate) -> None:
    records = two_arms({"lora.rank": 16}, {"lora.rank": 8})
    others = {"content": {split: {"any_order": "others"} for split in ("train", "validation", "test")}}
    records[1] = run_record(1, {"lora.rank": 16}, 1, 99.0, dataset=others)
    write(records)
    answer = ask(aggregate)
    assert answer.problems("evaluation")
    assert 99.0 not in answer.rows()[16]["values"]


def test_a_key_that_only_the_older_runs_have_is_a_factor_too(aggregate: Aggregate) -> None:
    write(two_arms({"custom.beta": 0.1}, {}))
    assert set(ask(aggregate).rows()) == {0.1, None}


def test_a_key_that_only_the_newer_runs_have_is_a_factor(aggregate: Aggregate) -> None:
    write(two_arms({}, {"custom.beta": 0.1}))
    assert set(ask(aggregate).rows()) == {0.1, None}


def test_a_newer_failure_does_not_take_the_place_of_a_finished_run(aggregate: Aggregate) -> None:
    failed = run_record(90, {"lora.rank": 8}, 0, None, status="failed", error="x")
    write([*two_arms({"lora.rank": 16}, {"lora.rank": 8}), failed])
    assert ask(aggregate).rows()[8]["n_ok"] == 3


def test_runs_that_differ_in_data_seed_are_replicates(aggregate: Aggregate) -> None:
    records = [run_record(n, {"lora.rank": 16, "data_seed": n}, 0, value) for n, value in enumerate(BASE)]
    records += [run_record(9 + n, {"lora.rank": 8, "data_seed": n}, 0, value) for n, value in enumerate(OTHER)]
    write(records)
    assert [row["n_ok"] for row in ask(aggregate).data["effects"]] == [3, 4]


def test_the_root_may_be_spelled_otherwise(aggregate: Aggregate, tmp_path: Path) -> None:
    Folder(tmp_path).write()
    assert aggregate("--runs", str(tmp_path / "outputs")).status == 1


def test_a_run_without_a_configuration_is_left_out(aggregate: Aggregate) -> None:
    records = two_arms({"lora.rank": 16}, {"lora.rank": 8})
    write([*records, replace(run_record(70, {}, 0, 0.1), config={})])
    assert ask(aggregate).rows()[8]["n_ok"] == 3


def test_a_newer_run_on_other_rows_does_not_take_the_place_of_one_that_counts(aggregate: Aggregate) -> None:
    records = two_arms({"lora.rank": 16}, {"lora.rank": 8})
    others = {"content": {split: {"any_order": "others"} for split in ("train", "validation", "test")}}
    newer = run_record(99, {"lora.rank": 16}, 0, 99.0, dataset=others)
    write([*records, replace(newer, date="2036-01-31T00:00:00Z")])
    row = ask(aggregate).rows()[16]
    assert row["n_ok"] == 4
    assert 99.0 not in row["values"]


def test_runs_that_differ_in_nothing_but_the_seed_are_no_comparison(aggregate: Aggregate) -> None:
    write([run_record(number, {"lora.rank": 16}, number, 0.1) for number in range(3)])
    answer = ask(aggregate)
    assert answer.status == 1
    assert "its 3 runs differ in no setting but the seed" in answer.err


def test_settings_that_change_no_number_are_no_factors(aggregate: Aggregate) -> None:
    settings = {"preflight": False, "data.cache_gb": 0.0, "data.snapshot": True}
    write(two_arms({"lora.rank": 16}, {"lora.rank": 8} | settings))
    assert {row["factor"] for row in ask(aggregate).data["effects"]} == {"lora.rank"}
