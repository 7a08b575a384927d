"""The lab book: a file that a person owns, to which every run adds one line of strict JSON.

Any number of processes may append at once. Lines that do not start with "{" are the person's own.
"""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ftx.errors import FtxError, RecordError
from ftx.record.lines import append_line, parse_object, read_lines
from ftx.record.strict_json import dumps, strict

FIELDS = (
    "run_id",
    "lab",
    "date",
    "config_commit",
    "model",
    "dataset",
    "hyperparameters",
    "seed",
    "hardware",
    "versions",
    "losses",
    "scores",
    "notes",
)
"""The thirteen fields of the run log, in the order in which they are written."""

_OBJECTS = {"dataset", "hyperparameters", "hardware", "versions", "losses", "scores"}
_LOCK_SECONDS = 60.0


def validate_entry(entry: Mapping[str, Any]) -> None:
    """Check that `entry` has exactly the thirteen fields and their types; RecordError names every problem."""
    unknown = [field for field in entry if field not in FIELDS]
    missing = [field for field in FIELDS if field not in entry]
    problems = [unknown_field(field, FIELDS) for field in unknown]
    problems += [f"{field}: missing; a value that is not known is null" for field in missing]
    problems += [problem for field in FIELDS if field in entry for problem in type_problem(field, entry[field])]
    if problems:
        raise RecordError("\n".join(problems))


def unknown_field(field: str, known: tuple[str, ...]) -> str:
    """Say that `field` does not exist, naming the nearest that does."""
    nearest = get_close_matches(field, known, n=1)
    return f"{field}: no such field" + (f"; did you mean {nearest[0]}?" if nearest else f" ({', '.join(known)})")


def type_problem(field: str, value: Any) -> list[str]:
    """Return no or one problem: the value does not have the type of this field of the run log."""
    if field in _OBJECTS:
        right, expected = isinstance(value, Mapping), "an object"
    elif field == "seed":
        right, expected = isinstance(value, int) and not isinstance(value, bool), "an integer"
    elif field == "config_commit":
        right, expected = value is None or isinstance(value, str), "a text or null"
    else:
        right, expected = isinstance(value, str), "a text"
    return [] if right else [f"{field}: expected {expected}, got {_shown(value)}"]


def lock_path(path: Path) -> Path:
    """Return the lock file of a lab book: beside the real file, so that two names of it share one lock."""
    real = path.resolve()
    return real.with_name(f"{real.name}.lock")


def append_entry(path: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Append `entry` as one line, under a lock beside the file, and return it as written.

    The line is on the disk when this returns. Creates the file and its folder. RecordError on a bad entry
    or a file that cannot be written.
    """
    validate_entry(entry)
    written: dict[str, Any] = strict({field: entry[field] for field in FIELDS})
    line = dumps(written)
    if path.is_dir():
        raise RecordError(f"{path}: is a folder, the lab book must be a file (labbook.md, say)")
    try:
        path.resolve().parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock_path(path)).acquire(timeout=_LOCK_SECONDS, poll_interval=0.01):
            append_line(path.resolve(), line, durable=True)
    except Timeout:
        raise RecordError(
            f"{path}: locked by another process for {_LOCK_SECONDS:.0f} s; "
            f"nothing was written. See which process holds {lock_path(path)}"
        ) from None
    except OSError as error:
        raise RecordError(f"{path}: the lab book cannot be written ({error.strerror})") from None
    return written


def read_entries(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the entries in file order, and a problem with its line number for each half or invalid one."""
    entries: list[dict[str, Any]] = []
    problems = []
    try:
        for number, line in read_lines(path):
            if not line.startswith(b"{"):
                continue
            try:
                entry = parse_object(line)
                validate_entry(entry)
                entries.append(entry)
            except RecordError as error:
                problems.append(f"{path.name}, line {number}: {str(error).replace(chr(10), '; ')}")
    except OSError as error:
        problems.append(f"{path.name}: cannot be read ({error.strerror})")
    return entries, problems


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def refuse_unwritable(path: str | None) -> None:
    """Raise FtxError now if a lab book could not be written at the end of a run; None: there is none."""
    if path is None:
        return
    target = Path(path).absolute()
    folder = next(parent for parent in target.parents if parent.exists())
    place = target if target.exists() else folder
    if target.is_dir() or not folder.is_dir() or not os.access(place, os.W_OK):
        raise FtxError(f"labbook={path}: cannot be written; give another file, or labbook=null for none")
