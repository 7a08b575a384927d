import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from ftx.errors import RecordError
from ftx.record.labbook import FIELDS, validate_entry
from ftx.record.layout import RunDir
from ftx.record.run_record import RECORD_FIELDS, RunRecord, labbook_entry, new_run_id, utc_date

NOON = datetime(2026, 1, 31, 13, 0, tzinfo=timezone(timedelta(hours=1)))


@pytest.fixture
def record() -> RunRecord:
    return RunRecord(run_id=new_run_id(NOON, b"\x00\xff\x01"), date=utc_date(NOON), model="tiny", seed=0)


def test_run_id_and_date_are_utc() -> None:
    assert new_run_id(NOON, b"\x00\xff\x01\x99") == "20260131T120000Z-00ff01"
    assert utc_date(NOON) == "2026-01-31T12:00:00Z"
    assert utc_date(NOON.astimezone(UTC)) == utc_date(NOON)
    with pytest.raises(ValueError, match="at least 3 bytes"):
        new_run_id(NOON, b"")


def test_a_fresh_record_has_every_field_and_reads_back(tmp_path: Path, record: RunRecord) -> None:
    run_dir = RunDir(tmp_path)
    record.write(run_dir)
    assert RunRecord.read(run_dir.record) == record
    assert tuple(json.loads(run_dir.record.read_text())) == RECORD_FIELDS
    assert record.losses["best_eval_loss"] is None
    assert record.cost["peak_memory_bytes"] is None


def test_nan_comes_back_as_a_number_and_null_as_unknown(tmp_path: Path, record: RunRecord) -> None:
    losses = record.losses | {"final_train_loss": math.nan, "best_eval_loss": math.inf}
    replace(record, status="diverged", losses=losses, notes="NaN").write(RunDir(tmp_path))
    again = RunRecord.read(tmp_path / "run.json")
    assert math.isnan(again.losses["final_train_loss"])
    assert again.losses["best_eval_loss"] == math.inf
    assert again.losses["final_eval_loss"] is None
    assert again.notes == "NaN"


def test_the_labbook_entry_is_valid_and_in_order(record: RunRecord) -> None:
    entry = labbook_entry(record)
    validate_entry(entry)
    assert tuple(entry) == FIELDS


@pytest.mark.parametrize("field", RECORD_FIELDS)
def test_a_record_without_one_of_its_fields_is_refused(tmp_path: Path, record: RunRecord, field: str) -> None:
    record.write(RunDir(tmp_path))
    path = tmp_path / "run.json"
    values = json.loads(path.read_text())
    del values[field]
    path.write_text(json.dumps(values))
    with pytest.raises(RecordError, match=rf"run\.json: {field}: missing"):
        RunRecord.read(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"status": "done"}, "status: expected one of running, finished"),
        ({"status": []}, "status: expected one of running, finished"),
        ({"statsu": "x"}, "statsu: no such field; did you mean status?"),
        ({"losses": {}}, "losses.best_eval_loss: missing; null if not known"),
        ({"losses": None}, "losses: expected an object, got None"),
        ({"command": "python"}, "command: expected a list of texts"),
        ({"made_by": 1}, "made_by: expected an object or null"),
        ({"error": 1}, "error: expected a text or null"),
        ({"seed": 1.5}, "seed: expected an integer, got 1.5"),
        ({"schema_version": 3}, "schema_version: 3 was written by a newer ftx"),
        ({"schema_version": "1"}, "schema_version: expected an integer"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, record: RunRecord, change: dict[str, Any], message: str) -> None:
    record.write(RunDir(tmp_path))
    path = tmp_path / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RecordError) as caught:
        RunRecord.read(path)
    assert f"{path}: {message}" in str(caught.value)


def test_an_invalid_record_is_not_written(tmp_path: Path, record: RunRecord) -> None:
    with pytest.raises(RecordError, match=r"losses\.seconds: missing"):
        replace(record, losses={}).write(RunDir(tmp_path))
    assert list(tmp_path.iterdir()) == []
