"""Files of one record per line that survive a writer killed in the middle of one."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ftx.errors import RecordError
from ftx.record.strict_json import JsonError, loads


def append_line(path: Path, line: str, *, durable: bool = False) -> None:
    """Append `line` and a newline with one write; `durable` waits until the disk has it.

    If the last writer was killed in the middle of a line, starts on a new one: nothing is glued to the
    half. Creates the file. One writer at a time: the caller holds a lock where there may be more.
    """
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        data = _newline_first(handle) + line.encode("utf-8") + b"\n"
        while data:  # one write, unless the system takes only a part of it
            data = data[os.write(handle, data) :]
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield line number (from 1) and content, without line end, byte order mark or outer white space."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            yield number, (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()


def parse_object(line: bytes) -> dict[str, Any]:
    """Parse one line as a JSON object; RecordError says what is wrong in words, without the line's number."""
    try:
        value = loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RecordError(f"byte {error.start} of the line is not UTF-8 text") from None
    except JsonError as error:
        if error.truncated:
            raise RecordError(f"half a line, cut off after {len(line)} bytes") from None
        raise RecordError(f"not valid JSON at character {error.position + 1}: {error}") from None
    if not isinstance(value, dict):
        raise RecordError(f"expected a JSON object, got {type(value).__name__}")
    return value


def _newline_first(handle: int) -> bytes:
    """Return what must come before the next line: a newline if the file ends without one."""
    if os.lseek(handle, 0, os.SEEK_END) == 0:
        return b""
    os.lseek(handle, -1, os.SEEK_END)
    return b"" if os.read(handle, 1) == b"\n" else b"\n"
