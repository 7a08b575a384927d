"""All run directories under a folder: found = runs + what was left out, each with a reason."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from effects.directories import run_record
from ftx.record.layout import RunDir
from ftx.record.ledger import Ledger


def write(root: Path, name: str, number: int, **changes: object) -> Path:
    (root / name).mkdir(parents=True)
    replace(run_record(number, {"lora.rank": 8}, number, 0.1), **changes).write(RunDir(root / name))
    return root / name


def kinds(ledger: Ledger) -> dict[str, str]:
    return {each.path.name: each.kind for each in ledger.left_out}


def test_found_is_runs_and_left_out(tmp_path: Path) -> None:
    original = write(tmp_path, "a", 1)
    write(tmp_path, "b", 2, status="failed", error="x")
    shutil.copytree(original, tmp_path / "a-copy")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "notes.txt").write_text("no folder")
    for name, content in (("empty", ""), ("cut", '{"a": '), ("list", "[]"), ("less", '{"schema_version": 1}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(content)
    ledger = Ledger.scan(tmp_path)
    assert [found.run.path.name for found in ledger] == ["b", "a"]
    assert kinds(ledger) == {
        **dict.fromkeys(("empty", "cut", "list", "less"), "damaged"),
        "a-copy": "copied",
        "foreign": "foreign",
    }
    assert len(ledger.runs) + len(ledger.left_out) == sum(path.is_dir() for path in tmp_path.iterdir())
    assert all(each.reason for each in ledger.left_out)
    assert len(ledger.problems) == 5
    assert not any("foreign" in problem for problem in ledger.problems)


def test_a_newer_schema_is_damaged_and_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, "a", 1) / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 99}))
    (left,) = Ledger.scan(tmp_path).left_out
    assert (left.kind, "99 was written by a newer ftx" in left.reason) == ("damaged", True)


@pytest.mark.parametrize("position", range(0, 2000, 97))
def test_a_flipped_byte_never_stops_the_scan(tmp_path: Path, position: int) -> None:
    path = write(tmp_path, "a", 1) / "run.json"
    write(tmp_path, "b", 2)
    content = bytearray(path.read_bytes())
    content[position] ^= 0x80
    path.write_bytes(bytes(content))
    ledger = Ledger.scan(tmp_path)
    assert [found.run.path.name for found in ledger] == ["b"]
    assert kinds(ledger) == {"a": "damaged"}


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_record_never_stops_the_scan(tmp_path: Path, share: float) -> None:
    path = write(tmp_path, "a", 1) / "run.json"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert kinds(Ledger.scan(tmp_path)) == {"a": "damaged"}


def test_two_roots_share_their_copies(tmp_path: Path) -> None:
    write(tmp_path / "one", "a", 1)
    write(tmp_path / "two", "b", 2)
    shutil.copytree(tmp_path / "one" / "a", tmp_path / "two" / "a-again")
    ledger = Ledger()
    for name in ("one", "two"):
        ledger.add(Ledger.scan(tmp_path / name))
    assert [found.run.path.name for found in ledger] == ["b", "a"]
    assert kinds(ledger) == {"a-again": "copied"}


def test_a_link_that_leads_nowhere_and_an_empty_root(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert Ledger.scan(tmp_path).runs == []
    assert Ledger.scan(tmp_path / "none") == Ledger()


def test_the_frame_has_a_row_a_run_and_a_column_a_setting(tmp_path: Path) -> None:
    write(tmp_path, "a", 1)
    run = run_record(2, {"custom.beta": [1, 2]}, 2, math.nan, status="diverged")
    (tmp_path / "b").mkdir()
    run.write(RunDir(tmp_path / "b"))
    frame = Ledger.scan(tmp_path).to_frame().set_index("run_id")
    assert len(frame) == 2
    assert list(frame["status"]) == ["diverged", "finished"]
    assert list(frame["lora.rank"]) == [16, 8]
    assert math.isnan(frame["value"].iloc[0])
    assert frame["value"].iloc[1] == 0.1
    assert frame["custom.beta"].iloc[0] == [1, 2]
    assert {"cost.seconds", "losses.final_train_loss", "scores.test.exact_match", "seed", "path"} <= set(frame)


def test_a_scan_of_many_runs_keeps_the_newest_first(tmp_path: Path) -> None:
    for number in (3, 1, 2):
        write(tmp_path, f"r{number}", number)
    assert [found.record.seed for found in Ledger.scan(tmp_path)] == [3, 2, 1]
