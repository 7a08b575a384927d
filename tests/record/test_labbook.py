import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ftx.errors import RecordError
from ftx.record.labbook import FIELDS, append_entry, read_entries, validate_entry

ENTRY: dict[str, Any] = {
    "run_id": "20260131T120000Z-00ff00",
    "lab": "single",
    "date": "2026-01-31T12:00:00Z",
    "config_commit": None,
    "model": "tiny",
    "dataset": {"path": "orders"},
    "hyperparameters": {"lora.rank": 16},
    "seed": 0,
    "hardware": {"os": "Linux"},
    "versions": {"torch": None},
    "losses": {"final_eval_loss": float("nan")},
    "scores": {},
    "notes": "ü, then\na new line",
}

WRITER = """
import json, os, signal, sys
from pathlib import Path
from ftx.record.labbook import append_entry

book, count, mode, entry = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
if mode == "killed":
    write = os.write
    def half(handle, data):
        write(handle, data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    os.write = half
for number in range(count):
    append_entry(book, entry | {"seed": number, "notes": f"{os.getpid()} " + "x" * 20_000})
"""


def start_writer(book: Path, count: int, *, killed: bool = False) -> subprocess.Popen[bytes]:
    mode = "killed" if killed else "whole"
    return subprocess.Popen([sys.executable, "-c", WRITER, str(book), str(count), mode, json.dumps(ENTRY)])


def test_sixteen_writers_and_one_killed_in_the_middle_of_a_line(tmp_path: Path) -> None:
    book = tmp_path / "labbook.md"
    writers = [start_writer(book, 50) for _ in range(16)]
    assert [writer.wait() for writer in writers] == [0] * 16
    assert start_writer(book, 1, killed=True).wait() == -9
    assert start_writer(book, 1).wait() == 0

    entries, problems = read_entries(book)
    assert len(entries) == 801
    assert len({(entry["notes"].split()[0], entry["seed"]) for entry in entries}) == 801
    assert len(problems) == 1
    assert "labbook.md, line 801: half a line, cut off after" in problems[0]
    assert book.read_bytes().count(b"\n") == 802


def test_the_line_is_strict_json_with_the_thirteen_fields_in_order(tmp_path: Path) -> None:
    book = tmp_path / "notes" / "book.md"
    written = append_entry(book, dict(reversed(ENTRY.items())))
    (line,) = book.read_text(encoding="utf-8").splitlines()

    def refuse(token: str) -> None:
        raise AssertionError(token)

    assert json.loads(line, parse_constant=refuse) == written
    assert tuple(json.loads(line)) == FIELDS
    assert written["losses"] == {"final_eval_loss": "NaN"}
    assert read_entries(book) == ([written], [])


def test_what_a_person_writes_stays_and_is_no_entry(tmp_path: Path) -> None:
    book = tmp_path / "labbook.md"
    book.write_bytes(b"\xef\xbb\xbf# My lab book\r\n\r\nrank 32 next, no newline here")
    append_entry(book, ENTRY)
    entries, problems = read_entries(book)
    assert (len(entries), problems) == (1, [])
    assert book.read_bytes().startswith(b"\xef\xbb\xbf# My lab book\r\n\r\nrank 32 next, no newline here\n{")


def test_invalid_lines_are_reported_with_their_number(tmp_path: Path) -> None:
    book = tmp_path / "labbook.md"
    append_entry(book, ENTRY)
    with book.open("ab") as file:
        file.write(b'{"run_id": NaN}\n{"run_id": "a"}\n{"a": "\xff"}\n')
    entries, problems = read_entries(book)
    assert len(entries) == 1
    assert [problem.partition(":")[0] for problem in problems] == [f"labbook.md, line {n}" for n in (2, 3, 4)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sed": 1}, "sed: no such field; did you mean seed?"),
        ({"seed": True}, "seed: expected an integer, got True"),
        ({"seed": None}, "seed: expected an integer, got None"),
        ({"dataset": []}, "dataset: expected an object"),
        ({"notes": 3}, "notes: expected a text, got 3"),
        ({"config_commit": 3}, "config_commit: expected a text or null"),
    ],
)
def test_a_wrong_entry_is_refused_and_nothing_written(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError) as caught:
        append_entry(tmp_path / "labbook.md", ENTRY | change)
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_every_missing_field_is_named() -> None:
    with pytest.raises(RecordError) as caught:
        validate_entry({"run_id": "a"})
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == list(FIELDS[1:])


def test_a_lab_book_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="the lab book cannot be written"):
        append_entry(tmp_path / "file" / "labbook.md", ENTRY)
    with pytest.raises(RecordError, match="is a folder"):
        append_entry(tmp_path, ENTRY)


def test_two_names_of_one_lab_book_share_a_lock(tmp_path: Path) -> None:
    real = tmp_path / "shared" / "book.md"
    append_entry(real, ENTRY)
    (tmp_path / "link.md").symlink_to(real)
    append_entry(tmp_path / "link.md", ENTRY)
    assert len(read_entries(real)[0]) == 2
    assert not (tmp_path / "link.md.lock").exists()


def test_no_lab_book_yet_is_a_problem_not_an_error(tmp_path: Path) -> None:
    assert read_entries(tmp_path / "labbook.md") == (
        [],
        ["labbook.md: cannot be read (No such file or directory)"],
    )
