"""Files that are either the old version or the new one, never half of one."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from ftx.errors import RecordError
from ftx.record.strict_json import JsonError, dumps, loads, strict

__all__ = ["read_json", "strict", "sync_folder", "write_json", "write_text"]


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 aside in the same folder, flush to the disk, then rename over `path`.

    Line ends stay as they are; bytes that were decoded with surrogateescape come out as they came in.
    OSError (a full disk, say) leaves the old file untouched and no leftover.
    """
    aside = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.tmp")
    try:
        with aside.open("xb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, obj: Any) -> None:
    """Write `obj` as indented strict JSON, atomically; see `strict` for NaN and for what is refused."""
    write_text(path, dumps(obj, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in `path`. RecordError names the file and what is wrong with it."""
    text = _read_utf8(path)
    if not text.strip():
        raise RecordError(f"{path}: empty, expected a JSON object")
    try:
        value = loads(text)
    except JsonError as error:
        size = len(text.encode())
        if error.truncated:
            raise RecordError(f"{path}: truncated at byte {size}, the JSON object has no end") from None
        offset = len(text[: error.position].encode())
        raise RecordError(f"{path}: not valid JSON at byte {offset} (line {error.line}): {error}") from None
    if not isinstance(value, dict):
        raise RecordError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def _read_utf8(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: byte {error.start} is not UTF-8 text") from None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from None


def sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut, where the system can do that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
