"""What has become of a trial, out of run directories alone."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ftx.config.fingerprint import NEITHER
from ftx.record.layout import RunDir
from ftx.record.ledger import SILENT_SECONDS, FoundRun, Ledger
from ftx.record.provenance import process_identity
from ftx.record.run_record import STATUSES, RunRecord
from ftx.record.study_record import STATES
from ftx.study.states import STATE_OF_STATUS, State, Surroundings, Wanted, state_of, watched_keys

NOW = 1_800_000_000.0
VERSIONS = {"torch": "2.13", "transformers": "5.24", "trl": "1.16", "peft": "0.21", "accelerate": "1.10"}
HERE = Surroundings("f" * 64, VERSIONS, ("cuda", "NVIDIA X"))
WANTED = Wanted({"train": "t", "evaluation": "e"}, {})
IMPOSSIBLE_PID = 2**22 + 1  # above the largest process number that Linux gives


def record(status: str = "finished", **changes: Any) -> RunRecord:
    """A run of the wanted trial in the surroundings of here."""
    made = RunRecord(
        run_id="20260131T120000Z-00ff01",
        date="2026-01-31T12:00:00Z",
        model="tiny",
        seed=0,
        status=status,
        versions=dict(VERSIONS) | {"ftx": "0.1", "numpy": "2.4"},
        code={"ftx": {"sources": "f" * 64}},
        fingerprint={"train": "t", "evaluation": "e"},
        made_by={"study": "mine", "arm": "baseline"},
        config={"hardware": {"micro_batch_size": 8}, "custom": {}},
    )
    made.hardware |= {"accelerator": "cuda", "device_name": "NVIDIA X"}
    return replace(made, **changes)


def found(made: RunRecord, folder: str | Path = "outputs/a") -> FoundRun:
    return FoundRun(RunDir(Path(folder)), made)


def state(*candidates: FoundRun, wanted: Wanted = WANTED, reuse: str = "same", study: str = "mine") -> State:
    return state_of(wanted, candidates, HERE, reuse=reuse, study=study, now=NOW)


def test_no_run_is_missing() -> None:
    assert state() == State("missing")


def test_every_status_has_a_state() -> None:
    assert set(STATE_OF_STATUS) == set(STATUSES)
    assert set(STATE_OF_STATUS.values()) == set(STATES)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("finished", "done"),
        ("running", "running"),
        ("failed", "failed"),
        ("diverged", "failed"),
        ("out_of_memory", "failed"),
        ("interrupted", "missing"),
        ("killed", "missing"),
    ],
)
def test_a_records_status_and_its_state(status: str, expected: str) -> None:
    run = found(record(status, process=process_identity() if status == "running" else None))
    assert (state(run).state, state(run).status, state(run).found) == (expected, status, run)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (record("failed", error="ValueError: no"), "ValueError: no"),
        (record("interrupted", stop_reason="Ctrl-C"), "Ctrl-C"),
        (record("finished", stop_reason="early stop"), "early stop"),
        (record("finished"), None),
    ],
    ids=["error", "interrupted", "stopped-early", "to-its-end"],
)
def test_the_reason_is_the_records(made: RunRecord, reason: str | None) -> None:
    assert state(found(made)).reason == reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"versions": VERSIONS | {"torch": "2.12"}}, "with other torch 2.12 (here 2.13)"),
        ({"versions": {"torch": "2.13"} | {"trl": "1.16", "peft": "0.21"}}, "transformers None (here 5.24)"),
        ({"code": {"ftx": {"sources": "0" * 64}}}, "with other ftx's own code"),
        ({"code": {}}, "with other ftx's own code"),
        ({"hardware": {"accelerator": "cuda", "device_name": "NVIDIA Y"}}, "with other device NVIDIA Y"),
        ({"hardware": {"accelerator": "cpu", "device_name": None}}, "with other device cpu"),
    ],
    ids=["torch", "not-installed", "sources", "sources-unknown", "another-gpu", "cpu"],
)
def test_a_run_of_other_surroundings_is_named_and_not_used(changes: dict[str, Any], reason: str) -> None:
    run = found(record(**changes), "outputs/old")
    got = state(run)
    assert (got.state, got.status, got.found) == ("missing", "finished", None)
    assert got.reason is not None
    assert got.reason.startswith("finished in outputs/old, ")
    assert reason in got.reason
    assert state(run, reuse="any") == State("done", "finished", None, run)


def test_all_that_differs_is_named() -> None:
    got = state(found(record(versions=VERSIONS | {"torch": "2.12", "trl": "1.15"}, code={}), "outputs/old"))
    assert got.reason == (
        "finished in outputs/old, with other ftx's own code, torch 2.12 (here 2.13), trl 1.15 (here 1.16)"
    )


def test_packages_that_train_nothing_may_differ() -> None:
    assert state(found(record(versions=VERSIONS | {"numpy": "1.0", "rich": "1"}))).state == "done"


@pytest.mark.parametrize(
    ("reuse", "made_by", "expected"),
    [
        ("same", {"study": "other"}, "done"),
        ("same", None, "done"),
        ("any", {"study": "other"}, "done"),
        ("never", {"study": "mine"}, "done"),
        ("never", {"study": "other"}, "missing"),
        ("never", None, "missing"),
    ],
)
def test_whose_finished_runs_count(reuse: str, made_by: dict[str, str] | None, expected: str) -> None:
    got = state(found(record(made_by=made_by)), reuse=reuse)
    assert got.state == expected
    if expected == "missing":
        assert got.reason == "finished in outputs/a, but study.reuse=never"


def test_under_never_an_own_run_of_other_versions_is_trained_anew() -> None:
    got = state(found(record(versions=VERSIONS | {"torch": "2.12"})), reuse="never")
    assert (got.state, got.reason) == ("missing", "finished in outputs/a, with other torch 2.12 (here 2.13)")


@pytest.mark.parametrize("reuse", ["same", "any", "never"])
def test_other_evaluation_rows_are_another_measurement(reuse: str) -> None:
    got = state(found(record(fingerprint={"train": "t", "evaluation": "other"})), reuse=reuse)
    assert (got.state, got.status, got.found) == ("missing", "finished", None)
    assert got.reason == "finished in outputs/a, but evaluated on other rows or by other scores"


def test_keys_outside_the_fingerprint_must_agree() -> None:
    wanted = Wanted(WANTED.fingerprint, {"hardware.micro_batch_size": 4})
    eight, four = found(record(), "outputs/8"), found(record(config={"hardware": {"micro_batch_size": 4}}), "outputs/4")
    assert state(eight, wanted=wanted) == State("missing")
    assert state(eight, four, wanted=wanted).found is four
    failed = found(record("failed"))
    assert state(failed, wanted=wanted) == State("missing")


def test_watched_are_the_changed_keys_that_no_fingerprint_holds() -> None:
    changed = ["lora.rank", "hardware.micro_batch_size", "data.path", "hardware.micro_batch_size", "custom.beta"]
    assert watched_keys(changed) == ["data.path", "hardware.micro_batch_size"]
    assert set(watched_keys(changed)) <= set(NEITHER)


@pytest.mark.parametrize("reuse", ["same", "any"])
def test_a_run_of_the_study_itself_is_preferred(reuse: str) -> None:
    newer, own = found(record(made_by={"study": "other"}), "outputs/newer"), found(record(), "outputs/own")
    assert state(newer, own, reuse=reuse).found is own
    assert state(newer, reuse=reuse).found is newer


def test_of_several_own_runs_the_newest_counts() -> None:
    newer, older = found(record(), "outputs/newer"), found(record(), "outputs/older")
    assert state(newer, older).found is newer


def test_a_usable_run_is_found_behind_others() -> None:
    others = [
        found(record("failed"), "outputs/failed"),
        found(record("running", process=process_identity()), "outputs/running"),
        found(record(versions={}), "outputs/versions"),
    ]
    good = found(record(made_by=None), "outputs/good")
    assert state(*others, good) == State("done", "finished", None, good)


def test_a_running_run_comes_before_failed_and_unusable_ones() -> None:
    running = found(record("running", process=process_identity()), "outputs/running")
    assert state(found(record("failed"), "outputs/f"), running).found is running
    assert state(found(record(versions={}), "outputs/v"), running).state == "running"


def test_of_several_unfinished_runs_the_newest_counts() -> None:
    killed, failed = found(record("killed"), "outputs/killed"), found(record("failed"), "outputs/failed")
    assert state(killed, failed).state == "missing"
    assert state(failed, killed).state == "failed"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "running"),
        ({"pid": IMPOSSIBLE_PID}, "killed"),
        ({"started": 1.0}, "killed"),
        ({"boot_id": "another start of this machine"}, "killed"),
    ],
    ids=["alive", "no-such-process", "number-used-again", "machine-restarted"],
)
def test_a_run_whose_process_is_gone_was_killed(change: dict[str, Any], expected: str) -> None:
    run = found(record("running", process=process_identity() | change))
    got = state(run)
    assert (got.state, got.status) == ({"running": "running", "killed": "missing"}[expected], expected)
    assert got.reason == (None if expected == "running" else "its process is gone")


def test_a_run_that_names_no_process_was_killed() -> None:
    assert state(found(record("running", process=None))).status == "killed"


@pytest.mark.parametrize(
    ("age", "expected"),
    [(0.0, "running"), (SILENT_SECONDS - 1, "running"), (SILENT_SECONDS + 1, "killed")],
    ids=["fresh", "just-fresh", "silent"],
)
def test_a_run_on_another_host_lives_while_it_writes(tmp_path: Path, age: float, expected: str) -> None:
    made = record("running", process=process_identity() | {"host": "far-away.example"})
    run = RunDir(tmp_path)
    made.write(run)
    run.history.write_text("{}\n")
    os.utime(run.record, (NOW - 10 * SILENT_SECONDS,) * 2)
    os.utime(run.history, (NOW - age,) * 2)
    got = state(FoundRun(run, made))
    assert got.status == expected
    if expected == "killed":
        assert (got.state, got.reason) == ("missing", f"no sign of life for {age:.0f} s on far-away.example")


def test_the_ledger_hands_out_runs_newest_first_and_names_what_it_cannot_read(tmp_path: Path) -> None:
    for name, date in (("a", "2026-01-31T12:00:00Z"), ("b", "2026-02-01T12:00:00Z"), ("c", "2025-12-31T12:00:00Z")):
        (tmp_path / name).mkdir()
        record(date=date, run_id=f"20260131T120000Z-00000{name}").write(RunDir(tmp_path / name))
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text(json.dumps({"schema_version": 1}))
    ledger = Ledger.scan(tmp_path)
    assert [each.run.path.name for each in ledger] == ["b", "a", "c"]
    assert ledger.problems
    assert all("broken" in problem for problem in ledger.problems)
    assert [each.run.path.name for each in ledger.by_fingerprint()["t"]] == ["b", "a", "c"]
    assert state(*ledger.by_fingerprint()["t"]).found == ledger.runs[0]
    assert Ledger.scan(tmp_path / "nowhere") == Ledger()
