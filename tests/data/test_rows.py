"""Strict reading: the clean file's rows whatever the line ends, and every bad row named."""

import json
from pathlib import Path

import pytest

from ftx.config.schema import ColumnsConfig
from ftx.data.rows import Row, read_jsonl, rows_from, without_nulls
from ftx.errors import DataError

CLEAN = '{"prompt": "a", "completion": "b"}\n{"prompt": "c", "completion": "d é"}\n'


def read(tmp_path: Path, content: str | bytes, columns: ColumnsConfig | None = None) -> list[Row]:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_jsonl(path, columns or ColumnsConfig(), origin="rows.jsonl").rows


def refusal(tmp_path: Path, content: str | bytes) -> str:
    with pytest.raises(DataError) as caught:
        read(tmp_path, content)
    return str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        CLEAN.encode(),
        b"\xef\xbb\xbf" + CLEAN.encode(),
        CLEAN.replace("\n", "\r\n").encode(),
        CLEAN.rstrip("\n").encode(),
        CLEAN.replace("}\n{", "}\n\n  \n{").encode(),
    ],
    ids=["clean", "bom", "crlf", "no last newline", "blank lines"],
)
def test_the_same_rows_whatever_the_line_ends(tmp_path: Path, content: bytes) -> None:
    rows = read(tmp_path, content)
    assert [(row.context, row.target) for row in rows] == [("a", "b"), ("c", "d é")]


def test_blank_lines_are_counted_and_lines_are_physical(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(CLEAN.replace("}\n{", "}\n\n\n{"))
    table = read_jsonl(path, ColumnsConfig())
    assert table.blank_lines == 2
    assert table.rows[1].where == f"{path}:4"


def test_the_hash_is_of_the_bytes_read(tmp_path: Path) -> None:
    import hashlib

    path = tmp_path / "rows.jsonl"
    path.write_text(CLEAN)
    assert read_jsonl(path, ColumnsConfig()).sha256 == hashlib.sha256(CLEAN.encode()).hexdigest()


@pytest.mark.parametrize(
    ("third_line", "expected"),
    [
        ('{"prompt": "a", "completion": 7}', "completion is a number (7), expected text"),
        ('{"prompt": null, "completion": "b"}', "prompt is null (null), expected text"),
        ('{"prompt": "a"}', "has no field completion"),
        ('{"prompt": "a", "completion": "  "}', "completion is empty"),
        ('{"prompt": "a", "completion": "b"},', "not JSON: Extra data at column 35"),
        ('{"prompt": "a", "completion": NaN}', "not JSON: NaN is not JSON"),
        ('["a", "b"]', "a list"),
        ('{"prompt": "a", "completion": "b", "completion": "c"}', 'not JSON: key "completion" is given twice'),
        ('{"prompt": "\\ud800", "completion": "b"}', "holds half of a character ('\\ud800')"),
        ('{"prompt": ' + "[" * 100_000 + "1" + "]" * 100_000 + "}", "not JSON: not readable"),
        ('{"prompt": [{"role": "user"}], "completion": []}', "prompt, turn 1: content is missing, expected text"),
    ],
)
def test_a_bad_row_is_named_by_physical_line_field_and_type(tmp_path: Path, third_line: str, expected: str) -> None:
    assert f"rows.jsonl:3: {expected}" in refusal(tmp_path, CLEAN + third_line + "\n")


def test_bytes_that_are_not_text_are_named(tmp_path: Path) -> None:
    assert "rows.jsonl:3: byte 13 is not UTF-8" in refusal(tmp_path, CLEAN.encode() + b'{"prompt": "\xff"}')


def test_all_bad_rows_are_reported_together_up_to_twenty(tmp_path: Path) -> None:
    lines = refusal(tmp_path, '{"prompt": "a", "completion": 1}\n' * 33).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "... and 13 more bad rows"


def test_a_json_array_under_a_jsonl_name(tmp_path: Path) -> None:
    assert "JSON array" in refusal(tmp_path, json.dumps([{"prompt": "a", "completion": "b"}], indent=1))


@pytest.mark.parametrize(
    ("content", "kind"), [(b"\x1f\x8b\x08\x00", "gzip-compressed"), (CLEAN.encode("utf-16"), "UTF-16")]
)
def test_another_kind_of_file_is_named(tmp_path: Path, content: bytes, kind: str) -> None:
    assert f"rows.jsonl is {kind}" in refusal(tmp_path, content)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_a_file_without_rows(tmp_path: Path, content: str) -> None:
    assert "rows.jsonl has no rows" in refusal(tmp_path, content)


def test_columns_of_ones_own(tmp_path: Path) -> None:
    columns = ColumnsConfig(prompt="question", completion="answer")
    rows = read(tmp_path, '{"question": "a", "answer": "b", "prompt": 3}\n', columns)
    assert (rows[0].context, rows[0].target) == ("a", "b")


def test_fields_that_fit_nothing_say_what_was_expected(tmp_path: Path) -> None:
    assert "data.columns.prompt=YOUR_COLUMN" in refusal(tmp_path, '{"question": "a", "answer": "b"}\n')


def test_chats_keep_exactly_the_keys_they_have(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "tool_calls": []}]
    rows = read(tmp_path, json.dumps({"messages": turns}) + "\n" + json.dumps({"messages": turns[:1] * 2 + turns[1:]}))
    assert rows[0].context == turns
    assert rows[0].kind == "messages"


def test_a_chat_without_an_assistant_has_nothing_to_learn(tmp_path: Path) -> None:
    assert "no assistant turn" in refusal(tmp_path, '{"messages": [{"role": "user", "content": "a"}]}\n')


def test_nulls_that_arrow_puts_for_missing_keys_are_dropped() -> None:
    turn = {"role": "user", "content": "a", "tool_calls": None}
    record = without_nulls({"messages": [turn, {"role": "assistant", "content": "b"}], "extra": None})
    (row,) = rows_from([("x:0", record)], ColumnsConfig(), "x")
    assert row.context[0] == {"role": "user", "content": "a"}
