"""Strict streaming: the same records whatever the format, line ends and chunks; every refusal in its words."""

import csv
import gzip
import hashlib
import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ftx.data.files import SUFFIXES, DataFile
from ftx.data.formats import csv_table, json_array, parquet
from ftx.data.formats.parquet import without_nulls
from ftx.data.formats.record import BadRecord
from ftx.errors import DataError

ROWS = [{"prompt": "a, b", "completion": 'say "é"\nthen 𝄞'}, {"prompt": "", "completion": "\u2028x\x85"}]
JSONL = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
JSON = json.dumps(ROWS, ensure_ascii=False, indent=1) + "\n"
CSV = 'prompt,completion\n"a, b","say ""é""\nthen 𝄞"\n"",\u2028x\x85\n'
TEXTS = {".jsonl": JSONL, ".json": JSON, ".csv": CSV}
BOM = "\ufeff"


def save(folder: Path, name: str, content: str | bytes) -> Path:
    """`content` under that name, gzipped where the name says so."""
    path = folder / name
    raw = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def save_parquet(path: Path, columns: Any, **options: Any) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(columns if isinstance(columns, pa.Table) else pa.Table.from_pylist(columns), path, **options)
    return path


def read(path: Path) -> list[tuple[str, Any]]:
    return list(DataFile(path, "x").records())


def records(path: Path) -> list[Any]:
    return [record for _, record in read(path)]


def places(path: Path) -> list[int]:
    return [int(where.removeprefix("x:")) for where, _ in read(path)]


@contextmanager
def peak_below(limit: int) -> Iterator[None]:
    """Python's own memory stays under so many bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        list(DataFile(path).records())
    (line,) = str(caught.value).splitlines()
    assert path.name in line
    return line


VARIANTS: dict[str, Callable[[str], str]] = {
    "clean": lambda text: text,
    "bom": lambda text: BOM + text,
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "cr": lambda text: text.replace("\n", "\r"),
    "bom and crlf": lambda text: BOM + text.replace("\n", "\r\n"),
    "no last newline": lambda text: text.removesuffix("\n"),
    "blank lines around": lambda text: "\n" + text + "\n\n",
}


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("suffix", TEXTS)
def test_the_same_records_whatever_the_line_ends(tmp_path: Path, suffix: str, variant: str, packed: str) -> None:
    path = save(tmp_path, f"x{suffix}{packed}", VARIANTS[variant](TEXTS[suffix]))
    assert records(path) == ROWS


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_the_same_records_from_parquet(tmp_path: Path, packed: str) -> None:
    path = save_parquet(tmp_path / "y.parquet", ROWS)
    path = save(tmp_path, f"x.parquet{packed}", path.read_bytes())
    assert read(path) == [("x:1", ROWS[0]), ("x:2", ROWS[1])]


def test_a_name_in_capitals(tmp_path: Path) -> None:
    assert records(save(tmp_path, "X.JSONL", JSONL)) == ROWS


def test_every_suffix_is_read() -> None:
    endings = (".jsonl", ".json", ".csv", ".parquet")
    assert set(SUFFIXES) == {*endings, *(f"{ending}.gz" for ending in endings)}


@pytest.mark.parametrize(
    ("name", "content", "lines", "blank"),
    [
        ("x.jsonl", '\n{"a": 1}\n \t\n\n{"a": 2}\n\n', [2, 5], 4),
        ("x.jsonl", '{"a": 1}\r\n\r\n{"a": 2}', [1, 3], 1),
        ("x.csv", '\na,b\n\n1,"x\ny"\n  \n2,z\n', [4, 7], 3),
        ("x.csv", 'a,b\r\n1,"x\r\ny"\r\n2,z\r\n', [2, 4], 0),
        ("x.csv", 'a\n" "\n\n2\n', [2, 4], 1),
        ("x.json", '\n[\n {\n  "a": 1},\n\n {"a": 2}, 3]', [3, 6, 6], 0),
        ("x.json", '[\r\n{"a":\r\n1},\r\n{"a": 2}]', [2, 4], 0),
    ],
    ids=["jsonl", "jsonl crlf", "csv", "csv crlf", "csv of one column", "json", "json crlf"],
)
def test_lines_are_physical_and_blank_ones_counted(
    tmp_path: Path, name: str, content: str, lines: list[int], blank: int
) -> None:
    path = save(tmp_path, name, content)
    assert places(path) == lines
    file = DataFile(path)
    for _ in range(2):  # counted anew each time
        assert len(list(file.records())) == len(lines)
        assert file.blank_lines == blank


def test_messages_call_the_file_by_its_path_or_as_told(tmp_path: Path) -> None:
    path = save(tmp_path, "x.jsonl", JSONL)
    assert DataFile(path).origin == str(path)
    assert next(DataFile(path, "bundled/train").records())[0] == "bundled/train:1"


BAD_JSON = {
    "syntax": ('{"a": 1 "b": 2}', "not JSON: Expecting ',' delimiter at column 9", "not JSON"),
    "nan": ('{"a": NaN}', "not JSON: NaN is not JSON; write", "not JSON"),
    "key twice": ('{"a": 1, "a": 2}', 'not JSON: key "a" is given twice at column 10', "not JSON"),
    "bytes": ('{"a": "é\udcff"}', "byte 10 is not UTF-8", "not UTF-8"),
    "surrogate": ('{"a": ["\\uD800"]}', "holds half of a character ('\\ud800'), which is not text", "half of a"),
    "many digits": ('{"a": ' + "1" * 5000 + "}", "not JSON: not readable", "not JSON"),
    "too large": ('{"a": 1e999}', "not JSON: 1e999 is larger than any floating-point number at column 7", "not JSON"),
}


@pytest.mark.parametrize("case", [*BAD_JSON, "cut off", "too deep"])
def test_a_bad_line_is_named_and_reading_goes_on(tmp_path: Path, case: str) -> None:
    more = {
        "cut off": ('{"a": "b', "not JSON: Unterminated string starting at column 7", "not JSON"),
        "too deep": ("[" * 100_000, "not JSON: not readable", "not JSON"),
    }
    line, reason, kind = (BAD_JSON | more)[case]
    found = records(save(tmp_path, "x.jsonl", f'{{"a": 0}}\r\n{line}\r\n{{"a": 2}}'))
    assert [found[0], found[2]] == [{"a": 0}, {"a": 2}]
    assert isinstance(found[1], BadRecord)
    assert found[1].reason.startswith(reason)
    assert found[1].kind.startswith(kind)


@pytest.mark.parametrize("case", [case for case in BAD_JSON if case != "syntax"])
def test_a_bad_element_is_named_and_reading_goes_on(tmp_path: Path, case: str) -> None:
    element, reason, kind = BAD_JSON[case]
    found = records(save(tmp_path, "x.json", f'[{{"a": 0}},\n {element}, {{"a": 2}}]'))
    assert [found[0], found[2]] == [{"a": 0}, {"a": 2}]
    assert isinstance(found[1], BadRecord)
    assert found[1].reason.replace(" of the element", "").startswith(reason)
    assert found[1].kind.startswith(kind)


def test_the_place_within_an_element_of_several_lines(tmp_path: Path) -> None:
    ((where, bad),) = read(save(tmp_path, "x.json", '[\n\n  {"a": 1,\n   "b": NaN}]'))
    assert where == "x:3"
    assert bad.reason.endswith("at line 2, column 9 of the element")


@pytest.mark.parametrize("value", ['"a pair \\ud834\\udd1e"', '"\\\\ud800"'], ids=["pair", "no escape"])
def test_what_only_looks_like_half_a_character(tmp_path: Path, value: str) -> None:
    assert records(save(tmp_path, "x.jsonl", f'{{"a": {value}}}')) == [{"a": json.loads(value)}]


SYNTAX = {
    "missing comma": ('[{"a": 1},\n {"b" 2}]', "x.json:2: not JSON: Expecting ':' delimiter at column 7"),
    "trailing comma": ('[{"a": 1},\n]', "x.json:2: not JSON: Expecting value at column 1"),
    "no comma between": ('[{"a": 1}\n  {"a": 2}]', "x.json:2: not JSON: Expecting ',' at column 3"),
    "cut off between": ('[{"a": 1},\n{"a": 2}\n', "x.json:3: not JSON: Expecting ',' at column 1 (the file ends"),
    "cut off within": ('[{"a": 1},\n{"a": ', "x.json:2: not JSON: Expecting value at column 7 (the file ends"),
    "cut off in text": ('[\n{"a": "bcd', "x.json:2: not JSON: Unterminated string starting at column 7"),
    "a number cut off": ("[1.", "x.json:1: not JSON: Expecting ',' at column 3"),
    "only a bracket": ("[", "x.json:1: not JSON: Expecting value at column 2 (the file ends"),
    "two arrays": ("[1]\n [2]", "x.json:2: not JSON: Extra data behind the array at column 2;"),
    "bytes between": ("[1,\udcff2]", "x.json:1: not JSON: Expecting value at column 4"),
    "too deep": ("[\n" + "[" * 100_000 + "]", "x.json:2: not JSON: Nested too deep at column 1"),
}


@pytest.mark.parametrize("chunk", [1 << 20, 1, 5])
@pytest.mark.parametrize("case", SYNTAX)
def test_a_syntax_error_in_an_array_is_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, chunk: int
) -> None:
    monkeypatch.setattr(json_array, "CHUNK", chunk)
    content, expected = SYNTAX[case]
    message = refusal(save(tmp_path, "x.json", content))
    assert expected in message
    assert message.endswith("; expected an array of objects: mend it there")


def test_rows_before_a_syntax_error_are_given_first(tmp_path: Path) -> None:
    found = DataFile(save(tmp_path, "x.json", '[{"a": 1}, {"a": }]')).records()
    assert next(found)[1] == {"a": 1}
    with pytest.raises(DataError):
        next(found)


ARRAY = r"""[

  { "é" : [1.5e+10, -0.25, true, null, "\u00e9\ud834\udd1e𝄞\\\"]"] }, -12.5e-3, "]",
{},1
,NaN, -Infinity,{"a":1,"a":2}, false ]
"""


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 13, 50])
def test_an_array_read_in_pieces_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    path = save(tmp_path, "x.json", ARRAY)
    whole = read(path)
    assert places(path) == [3, 3, 3, 4, 4, 5, 5, 5, 5]
    assert [isinstance(record, BadRecord) for _, record in whole] == [False] * 5 + [True] * 3 + [False]
    monkeypatch.setattr(json_array, "CHUNK", chunk)
    assert read(path) == whole


def test_many_elements_smaller_and_larger_than_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"n": n, "text": "é𝄞" * (3000 if n % 5000 == 7 else n % 9)} for n in range(20_000)]
    path = save(tmp_path, "x.json", "[" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "]")
    monkeypatch.setattr(json_array, "CHUNK", 1000)
    assert read(path) == [(f"x:{number}", row) for number, row in enumerate(rows, start=1)]


def test_a_large_element_is_not_parsed_once_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    extent = json_array._JsonText._extent
    monkeypatch.setattr(json_array._JsonText, "_extent", lambda text: (parsed.append(1), extent(text))[1])
    monkeypatch.setattr(json_array, "CHUNK", 10)
    assert len(records(save(tmp_path, "x.json", json.dumps([["a" * 100] * 1000])))) == 1
    assert len(parsed) < 20


def test_an_error_is_found_without_reading_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_array, "CHUNK", 100)
    path = save(tmp_path, "x.json", '[{"a" 1},' + '{"a": "b"},' * 100_000)
    with peak_below(500_000):
        assert "Expecting ':' delimiter at column 7" in refusal(path)


OTHER_CONTENT = {
    "gzip": (
        gzip.compress(b"{}"),
        "x.jsonl",
        "is gzip-compressed; expected UTF-8 text, one JSON object a line: add .gz",
    ),
    "gzip twice": (gzip.compress(b"{}"), "x.csv.gz", "is gzip-compressed; expected UTF-8 text, comma-separated"),
    "packed parquet": (gzip.compress(b"PAR1"), "x.parquet", "is gzip-compressed; expected a Parquet file: add .gz"),
    "utf-16": (JSONL.encode("utf-16"), "x.jsonl", "is UTF-16; expected UTF-8 text"),
    "utf-16 be": (BOM.encode("utf-16-be") + JSON.encode("utf-16-be"), "x.json", "is UTF-16; expected UTF-8 text"),
    "utf-16 unmarked": (CSV.encode("utf-16-le"), "x.csv", "is UTF-16; expected UTF-8 text"),
    "utf-16 be unmarked": (CSV.encode("utf-16-be"), "x.csv", "is UTF-16; expected UTF-8 text"),
    "parquet": (
        b"PAR1\x15\x04",
        "x.jsonl",
        "is Parquet; expected UTF-8 text, one JSON object a line: rename it to .parq",
    ),
    "spreadsheet": (b"PK\x03\x04\x14", "x.csv", "is a ZIP archive or a spreadsheet"),
    "text": (JSONL.encode(), "x.parquet", "begins with b'{\"pr'; expected a Parquet file: rename"),
    "empty parquet": (b"", "x.parquet", "begins with b''; expected a Parquet file"),
    "array": (
        BOM.encode() + b"\n [\n{}]",
        "x.jsonl",
        "holds a JSON array; expected one JSON object a line: rename it to .js",
    ),
    "lines": (
        b'\n{"a": 1}\n{"a": 2}\n',
        "x.json",
        "holds JSON lines; expected an array of objects: rename it to .jsonl",
    ),
    "object": (
        b'{"data": [{}], "version": 1}',
        "x.json",
        "holds an object with the keys data, version; expected an array",
    ),
    "empty json": (b" \n", "x.json", "is empty; expected an array of objects"),
    "a text": (b' "abc"', "x.json", "begins with '\"abc\"'; expected an array of objects"),
    "empty csv": (b"\n\n", "x.csv", "is empty; expected a header row"),
}


@pytest.mark.parametrize("case", OTHER_CONTENT)
def test_another_kind_of_content_is_named(tmp_path: Path, case: str) -> None:
    content, name, words = OTHER_CONTENT[case]
    assert f"{name} {words}" in refusal(save(tmp_path, name, content))


def test_a_large_object_is_named_by_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_array, "CHUNK", 100)
    path = save(tmp_path, "x.json", json.dumps({"data": [{"a": "b"}] * 100_000}))
    with peak_below(500_000):
        assert """x.json begins with '{"data": [{"a": "b"}, """ in refusal(path)


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    assert "gone.jsonl cannot be read: No such file" in refusal(tmp_path / "gone.jsonl")
    with pytest.raises(DataError, match=r"gone\.csv cannot be read: No such file"):
        DataFile(tmp_path / "gone.csv").sha256()
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(DataError, match=r"folder\.jsonl is a folder; expected a file"):
        DataFile(tmp_path / "folder.jsonl")


@pytest.mark.parametrize(("name", "ending"), [("x.txt", ".txt"), ("x", "none"), ("x.txt.gz", ".gz"), ("x.gz", ".gz")])
def test_an_unknown_ending_lists_those_that_are_read(name: str, ending: str) -> None:
    with pytest.raises(DataError) as caught:
        DataFile(Path(name))
    assert f"{name} has the ending {ending}; expected one of {', '.join(SUFFIXES)}: " in str(caught.value)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
def test_a_gz_that_is_not_whole_gzip(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}.gz"
    path.write_text("plain text")
    assert "is not gzip-compressed; expected gzip data: take .gz off its name" in refusal(path)
    content = save_parquet(tmp_path / "y", ROWS).read_bytes() if suffix == ".parquet" else TEXTS[suffix].encode()
    packed = gzip.compress(content)
    path.write_bytes(packed[:-9])
    assert "is damaged or cut off (Compressed file ended before" in refusal(path)
    path.write_bytes(packed[:10] + b"\xff" * 20 + packed[30:])
    assert "is damaged or cut off (Error -3 while decompressing" in refusal(path)
    path.write_bytes(packed[:-8] + bytes(8))
    assert "is damaged or cut off (CRC check failed" in refusal(path)


@pytest.mark.parametrize("damage", ["cut off", "foot", "page"])
def test_a_damaged_parquet_file(tmp_path: Path, damage: str) -> None:
    path = save_parquet(tmp_path / "x.parquet", [{"a": str(n)} for n in range(5000)])
    raw = path.read_bytes()
    damaged = {"cut off": raw[:-1], "foot": raw[:-60] + bytes(40) + raw[-20:], "page": raw[:4] + bytes(99) + raw[103:]}
    path.write_bytes(damaged[damage])
    assert "x.parquet is damaged, or holds what cannot be read (" in refusal(path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('a,b\n1,"x\ny\n2,z\n', "x.csv:2: not CSV: unexpected end of data; expected quoted cells that are closed"),
        ('a,b\n1,z\n1,"x "y" z"\n', "x.csv:3: not CSV: ',' expected after '\"'"),
        (",a\n1,2\n", "x.csv: column 1 has no name; expected one for each"),
        ("a,b,\n1,2,3\n", "x.csv: column 3 has no name"),
        ("a,b,a\n1,2,3\n", "x.csv: two columns are named a; expected different names"),
        ("a,b\udce9\n1,2\n", "x.csv: byte 2 of column 2's name is not UTF-8; expected UTF-8 text: save the file as"),
        ("a,b\0\n1,2\n", "x.csv: byte 2 of column 2's name is NUL"),
    ],
    ids=["open quote", "stray quote", "no name", "no last name", "name twice", "latin-1 name", "nul in a name"],
)
def test_a_csv_file_that_is_refused(tmp_path: Path, content: str, expected: str) -> None:
    assert expected in refusal(save(tmp_path, "x.csv", content))


@pytest.mark.parametrize(
    ("line", "reason", "kind"),
    [
        ("1", "has 1 fields, expected the 2 of the header", "another number of fields than the header"),
        ("1,2,3", "has 3 fields, expected the 2 of the header", "another number of fields than the header"),
        ("1,é\udcff", "byte 3 of b is not UTF-8", "not UTF-8"),
        ("é\0,1", "byte 3 of a is NUL, which is not text", "NUL"),
    ],
    ids=["fewer", "more", "latin-1", "nul"],
)
def test_a_bad_csv_record_is_named_and_reading_goes_on(tmp_path: Path, line: str, reason: str, kind: str) -> None:
    found = read(save(tmp_path, "x.csv", f"a,b\n0,0\n{line}\n2,2\n"))
    assert [found[0], found[2]] == [("x:2", {"a": "0", "b": "0"}), ("x:4", {"a": "2", "b": "2"})]
    where, bad = found[1]
    assert where == "x:3"
    assert bad.reason.startswith(reason)
    assert bad.kind == kind


def test_a_csv_header_alone_and_an_empty_array_have_no_records(tmp_path: Path) -> None:
    assert records(save(tmp_path, "x.csv", "a,b\n")) == []
    assert records(save(tmp_path, "x.json", " [ ] ")) == []
    assert records(save(tmp_path, "x.jsonl", "")) == []


def test_large_csv_cells_leave_the_limit_of_others_alone(tmp_path: Path) -> None:
    usual, cell = csv.field_size_limit(), "é" * 200_000
    assert usual < len(cell)
    found = DataFile(save(tmp_path, "x.csv", f'a\n{cell}\n"{cell}"\n')).records()
    assert next(found)[1] == {"a": cell}
    assert csv.field_size_limit() == usual
    assert next(found)[1] == {"a": cell}
    assert csv.field_size_limit() == usual


def test_a_quote_left_open_does_not_take_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_table, "LARGEST_CELL", 1000)
    assert "x.csv:2: not CSV: field larger" in refusal(save(tmp_path, "x.csv", 'a\n"b\n' + "c\n" * 1000 + '"\n'))


def test_csv_values_are_text(tmp_path: Path) -> None:
    assert records(save(tmp_path, "x.csv", "a,b,c\n1, NULL,\n")) == [{"a": "1", "b": " NULL", "c": ""}]


def test_nulls_that_arrow_puts_for_missing_keys_are_dropped(tmp_path: Path) -> None:
    rows = [
        {"messages": [{"role": "user", "tools": None}, {"role": "user", "tools": [{"a": None, "b": 1}, None]}], "x": 1},
        {"messages": [], "x": None},
    ]
    clean = [{"messages": [{"role": "user"}, {"role": "user", "tools": [{"b": 1}, None]}], "x": 1}, {"messages": []}]
    assert [without_nulls(row) for row in rows] == clean
    assert records(save_parquet(tmp_path / "x.parquet", rows)) == clean


def test_parquet_values_without_a_json_form_are_left_as_they_are(tmp_path: Path) -> None:
    row = {"raw": b"\xff", "price": Decimal("1.50"), "truth": True, "share": 0.5}
    assert records(save_parquet(tmp_path / "x.parquet", [row])) == [row]


def test_parquet_columns_of_the_same_name(tmp_path: Path) -> None:
    import pyarrow as pa

    table = pa.table([pa.array(["1"]), pa.array(["2"])], names=["a", "a"])
    assert "two columns are named a" in refusal(save_parquet(tmp_path / "x.parquet", table))


def test_parquet_rows_are_counted_across_batches_and_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "BATCH_ROWS", 3)
    path = save_parquet(tmp_path / "x.parquet", [{"a": n} for n in range(1, 12)], row_group_size=5)
    assert read(path) == [(f"x:{n}", {"a": n}) for n in range(1, 12)]


def test_unpacked_parquet_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, "x.parquet.gz", save_parquet(tmp_path / "y", ROWS).read_bytes())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    found = DataFile(path).records()
    assert next(found)[1] == ROWS[0]
    found.close()  # left in the middle
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv.gz"])
def test_the_hash_is_of_the_bytes_on_disk(tmp_path: Path, name: str) -> None:
    path = save(tmp_path, name, CSV * 3)
    assert DataFile(path).sha256() == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_edited_in_place_is_read_anew(tmp_path: Path) -> None:
    path = save(tmp_path, "x.jsonl", '{"a": 1}\n')
    file = DataFile(path)
    before, times = file.sha256(), path.stat()
    assert [record for _, record in file.records()] == [{"a": 1}]
    path.write_text('{"a": 2}\n')
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (times.st_size, times.st_mtime_ns)
    assert [record for _, record in file.records()] == [{"a": 2}]
    assert file.sha256() == hashlib.sha256(b'{"a": 2}\n').hexdigest() != before


@pytest.mark.parametrize("name", ["x.jsonl", "x.json", "x.csv", "x.jsonl.gz", "x.json.gz", "x.csv.gz"])
def test_a_file_is_never_in_memory_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    rows, text = 2000, "b" * 2000  # 4 MB
    line = json.dumps({"a": text})
    whole = {
        "x.jsonl": f"{line}\n" * rows,
        "x.json": "[" + f"{line},\n" * rows + "1]",
        "x.csv": "a\n" + f"{text}\n" * rows,
    }
    path = save(tmp_path, name, whole[name.removesuffix(".gz")])
    monkeypatch.setattr(json_array, "CHUNK", 1 << 16)
    file = DataFile(path)
    with peak_below(600_000):
        assert sum(1 for _ in file.records()) >= rows
        file.sha256()
