import math
import os
from pathlib import Path

import pytest

from ftx.errors import RecordError
from ftx.record.atomic import read_json, write_json, write_text


def test_what_is_written_is_read_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": math.nan, "b": "ü"})
    assert read_json(path) == {"a": "NaN", "b": "ü"}
    assert list(tmp_path.iterdir()) == [path]


def test_bytes_and_line_ends_come_out_as_they_came_in(tmp_path: Path) -> None:
    content = b"caf\xe9\r\nx\rend"
    write_text(tmp_path / "code.patch", content.decode("utf-8", "surrogateescape"))
    assert (tmp_path / "code.patch").read_bytes() == content


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    write_json(path, {"old": 1})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"new": 1})
    assert read_json(path) == {"old": 1}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b'{"status": "fini', "truncated at byte 16"),
        ('{"ü": 1'.encode(), "truncated at byte 8"),
        (b"[1]", "expected a JSON object, got list"),
        (b'{"a": \x00}', "not valid JSON at byte 6"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        (b'{"a": NaN}', "not valid JSON at byte 6"),
    ],
    ids=["empty", "blank", "truncated", "truncated-umlaut", "list", "zero-byte", "flipped", "nan"],
)
def test_a_damaged_file_is_named_with_its_damage(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(RecordError) as caught:
        read_json(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"run\.json: cannot be read \(No such file"):
        read_json(tmp_path / "run.json")
