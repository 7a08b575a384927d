"""What all formats share: records that cannot be read, text that is UTF-8, JSON that is strict, columns with names."""

import gzip
import io
import json
from dataclasses import dataclass
from typing import Any

from ftx.errors import DataError
from ftx.record.strict_json import JsonError, loads

CHUNK = 1 << 20  # characters or bytes that are read at a time
Raw = io.BufferedReader | gzip.GzipFile
BLANK = object()
"""In a record's place: a line without one."""


@dataclass(frozen=True)
class BadRecord:
    """A record that cannot be read, in a file that can: why, and the same without values, to count records by."""

    reason: str
    kind: str


def text_of(raw: Raw) -> io.TextIOWrapper:
    """Text with every line end as \\n, and with bytes that are not UTF-8 as surrogates, to be named by record."""
    return io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape")


def parsed(text: str, of: str = "") -> Any:
    """One value out of strict JSON, or why it is none; `of` says whose column the message counts."""
    try:
        if bad := bad_byte(text, of):
            return bad
        value = loads(text)
        if "\\u" in text:  # the one way to spell half a character in UTF-8
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        return BadRecord(f"holds half of a character ({half!a}), which is not text", "half of a character")
    except JsonError as error:
        line = "" if error.line == 1 else f"line {error.line}, "
        place = f"at {line}column {error.column}{of}"
        return BadRecord(f"not JSON: {str(error).removesuffix(' at')} {place}", "not JSON")


def bad_byte(text: str, of: str) -> BadRecord | None:
    """Names the first byte that is not UTF-8, if there is one."""
    try:
        text.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeDecodeError as error:
        return BadRecord(f"byte {error.start + 1}{of} is not UTF-8", "not UTF-8")
    return None


def bad_cell(cell: str, of: str) -> BadRecord | None:
    """Names the first byte that is no text, if there is one."""
    if "\0" in cell:
        return BadRecord(f"byte {len(cell.split(chr(0))[0].encode()) + 1}{of} is NUL, which is not text", "NUL")
    return bad_byte(cell, of)


def column_names(names: list[str], origin: str) -> list[str]:
    """The names of columns as they are. Raises DataError where one cannot name a column."""
    for number, name in enumerate(names, start=1):
        if bad := bad_cell(name, f" of column {number}'s name"):
            raise DataError(f"{origin}: {bad.reason}; expected UTF-8 text: save the file as UTF-8")
        if not name.strip():
            raise DataError(
                f"{origin}: column {number} has no name; expected one for each: name it, or take it out (it may be "
                "the index that pandas writes without index=False)"
            )
        if name in names[: number - 1]:
            raise DataError(f"{origin}: two columns are named {name}; expected different names: rename one")
    return names


def first_line(error: Exception) -> str:
    """Of what an exception says; its name where it says nothing."""
    return (str(error) or type(error).__name__).splitlines()[0]
