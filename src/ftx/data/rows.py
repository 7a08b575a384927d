"""Strict reading of rows: every bad row named by file, physical line, field, type found and type wanted."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast

from ftx.config.schema import ColumnsConfig
from ftx.errors import DataError
from ftx.record.strict_json import JsonError, loads

Turn = Mapping[str, Any]
Kind = Literal["prompt_completion", "messages", "text"]

MOST_PROBLEMS_SHOWN = 20

_OTHER_FILES = {b"\x1f\x8b": "gzip-compressed", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"PAR1": "Parquet"}

_TYPE_WORDS = {
    str: "text",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


@dataclass(frozen=True)
class Row:
    """One example as it stands in its file.

    `context` is what the model is given and `target` what it should answer: both text, or both chat turns.
    A chat (`messages`) has all its turns in `context`; plain text has it all in `target`. `tools` are what the chat
    template is told of tools.
    """

    kind: Kind
    where: str
    context: str | list[Turn]
    target: str | list[Turn]
    tools: list[Any] | None = None

    def content(self) -> str:
        """Everything that training sees of this row, as canonical JSON."""
        parts = [self.kind, self.context, self.target, *([self.tools] if self.tools else [])]
        return json.dumps(parts, ensure_ascii=False, sort_keys=True)


@dataclass(frozen=True)
class Table:
    """The rows of one file or Hub split, with what was read to get them."""

    origin: str
    rows: list[Row]
    sha256: str
    blank_lines: int = 0
    revision: str | None = None


def bundled_path(name: str, split: str) -> Path:
    """The file of a bundled data set's split."""
    return Path(str(resources.files("ftx"))) / "bundled" / name / f"{split}.jsonl"


def read_jsonl(path: Path, columns: ColumnsConfig, *, origin: str | None = None) -> Table:
    """Read JSON lines: UTF-8 with or without BOM, any line ends, blank lines counted and passed over.

    Raises:
        DataError: naming every bad row (the first 20, then a count).
    """
    origin = origin or str(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{origin} cannot be read: {error.strerror}") from error
    for signature, kind in _OTHER_FILES.items():
        if raw.startswith(signature):
            raise DataError(f"{origin} is {kind}; expected UTF-8 text, one JSON object a line")
    if raw.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"[":
        raise DataError(f"{origin} holds a JSON array; expected one JSON object a line (jq -c '.[]' converts it)")
    lines = raw.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    blank = sum(not line.strip() for line in lines[:-1])
    parsed = ((number, _parse(line)) for number, line in enumerate(lines, start=1) if line.strip())
    rows = rows_from(((f"{origin}:{number}", fields) for number, fields in parsed), columns, origin)
    return Table(origin, rows, hashlib.sha256(raw).hexdigest(), blank)


def rows_from(records: Iterable[tuple[str, Any]], columns: ColumnsConfig, origin: str) -> list[Row]:
    """Turn parsed records, each with the place it came from, into rows of one kind.

    Raises:
        DataError: naming every bad row (the first 20, then a count), or that there is none.
    """
    rows: list[Row] = []
    problems: list[str] = []
    kind: Kind | None = None
    for where, fields in records:
        try:
            if isinstance(fields, _BadLine):
                raise DataError(fields.reason)
            if not isinstance(fields, dict):
                raise DataError(f"{_type_of(fields)}, expected an object")
            kind = kind or _kind_of(fields, columns)
            rows.append(_row(kind, where, fields, columns))
        except DataError as error:
            problems.append(f"{where}: {error}")
    if problems:
        hidden = len(problems) - MOST_PROBLEMS_SHOWN
        more = [f"... and {hidden} more bad rows"] if hidden > 0 else []
        raise DataError("\n".join(problems[:MOST_PROBLEMS_SHOWN] + more))
    if not rows:
        raise DataError(f"{origin} has no rows")
    return rows


@dataclass(frozen=True)
class _BadLine:
    reason: str


def _parse(line: bytes) -> Any:
    try:
        fields = loads(line.decode("utf-8"))
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        return _BadLine(f"byte {error.start + 1} is not UTF-8")
    except UnicodeEncodeError as error:
        return _BadLine(f"holds half of a character ({error.object[error.start]!a}), which is not text")
    except JsonError as error:
        return _BadLine(f"not JSON: {error} at column {error.column}")
    return fields


def _kind_of(fields: Mapping[str, Any], columns: ColumnsConfig) -> Kind:
    if columns.prompt in fields or columns.completion in fields:
        return "prompt_completion"
    if columns.messages in fields:
        return "messages"
    if columns.text in fields:
        return "text"
    raise DataError(
        f"has the fields {', '.join(fields) or 'none'}; expected {columns.prompt} and {columns.completion}, or "
        f"{columns.messages}, or {columns.text} (data.columns.prompt=YOUR_COLUMN names yours)"
    )


def _row(kind: Kind, where: str, fields: Mapping[str, Any], columns: ColumnsConfig) -> Row:
    if kind == "messages":
        turns = _turns(fields, columns.messages)
        if not any(turn["role"] == "assistant" for turn in turns):
            raise DataError(f"{columns.messages} has no assistant turn, so there is nothing to learn")
        return Row(kind, where, turns, [], _tools(fields))
    if kind == "text":
        return Row(kind, where, "", _text(fields, columns.text))
    prompt = _field(fields, columns.prompt)
    if isinstance(prompt, list):
        context, target = _turns(fields, columns.prompt), _turns(fields, columns.completion)
        if not any(turn["role"] == "assistant" for turn in target):
            raise DataError(f"{columns.completion} has no assistant turn, so there is nothing to learn")
        return Row(kind, where, context, target, _tools(fields))
    return Row(kind, where, _text(fields, columns.prompt, empty=True), _text(fields, columns.completion))


def _field(fields: Mapping[str, Any], name: str) -> Any:
    if name not in fields:
        raise DataError(f"has no field {name}")
    return fields[name]


def _text(fields: Mapping[str, Any], name: str, *, empty: bool = False) -> str:
    value = _field(fields, name)
    if not isinstance(value, str):
        raise DataError(f"{name} is {_type_of(value)}, expected text")
    if not empty and not value.strip():
        raise DataError(f"{name} is empty, so there is nothing to learn")
    return value


def _turns(fields: Mapping[str, Any], name: str) -> list[Turn]:
    value = _field(fields, name)
    if not isinstance(value, list):
        raise DataError(f"{name} is {_type_of(value)}, expected a list of chat turns")
    if not value:
        raise DataError(f"{name} has no turns")
    for number, turn in enumerate(value, start=1):
        if not isinstance(turn, dict):
            raise DataError(f"{name}, turn {number} is {_type_of(turn)}, expected an object with role and content")
        for part in ("role", "content"):
            if not isinstance(turn.get(part), str):
                found = _type_of(turn[part]) if part in turn else "missing"
                raise DataError(f"{name}, turn {number}: {part} is {found}, expected text")
        if turn["role"] == "assistant" and not turn["content"].strip() and set(turn) == {"role", "content"}:
            raise DataError(f"{name}, turn {number}: the assistant's content is empty")
    return cast(list[Turn], value)


def _tools(fields: Mapping[str, Any]) -> list[Any] | None:
    tools = fields.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise DataError(f"tools is {_type_of(tools)}, expected a list")
    return tools


def _type_of(value: Any) -> str:
    return f"{_TYPE_WORDS.get(type(value), type(value).__name__)} ({json.dumps(value)[:40]})"


def without_nulls(value: Any) -> Any:
    """Drop the nulls that Arrow tables put where a row lacks a key, so that templates never see them."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def iterate_lines(rows: Iterable[Row]) -> Iterator[str]:
    """The content of each row, in order."""
    return (row.content() for row in rows)
