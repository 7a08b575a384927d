"""Tokenised data by content: built once, shared by all runs and processes, whole or absent, bounded.

An entry is a folder named by a hash of everything that decides its content, so it can never be out of date. It is built
aside and renamed when it is whole; a second process that wants the same entry waits for the first. Checksums are
compared whenever an entry is opened: a damaged one is built again.
"""

import json
import os
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from ftx.data.store import STORE_SUFFIX, Store

_RECORD = "entry.json"
_CHUNK = 1 << 22
_BUILDING = ".building-"
_ABANDONED_SECONDS = 24 * 3600.0
_LOCKS = "locks"
_ENTRY = re.compile("[0-9a-f]{64}")

Build = Callable[[Path], dict[str, Any]]
"""Writes files into a folder and returns what the record says of them, as JSON."""


@dataclass(frozen=True)
class Entry:
    """Tokenised rows by split, and what their record says. `aside` is why they are not kept, if they are not."""

    stores: dict[str, Store]
    record: dict[str, Any]
    aside: str | None = None


class Cache:
    """Entries in one folder, the ones used last kept.

    Args:
        root: the folder; made when it is first needed.
        limit_bytes: what all entries together may take.
    """

    def __init__(self, root: Path, limit_bytes: int) -> None:
        self._root = root
        self._limit = limit_bytes

    def entry(self, key: str, build: Build) -> Entry:
        """The entry called `key`, a SHA-256, built if it is not there."""
        folder = self._root / key
        try:
            found = _opened(folder)  # without the lock: comparing checksums of much data takes seconds
            return found if found is not None else self._built(folder, build)
        except OSError as error:
            return built_aside(build, f"{self._root} cannot be used ({error.strerror or error}): set FTX_CACHE=FOLDER")

    def _built(self, folder: Path, build: Build) -> Entry:
        self._root.mkdir(parents=True, exist_ok=True)
        with self._locked(folder.name):
            found = _opened(folder)  # by another process, while this one waited
            if found is None:
                self._build(folder, build)
                self._evict(keep=folder)
                found = _opened(folder)
        if found is None:
            raise OSError(f"{folder} was removed as soon as it was built")
        return found

    def _build(self, folder: Path, build: Build) -> None:
        with tempfile.TemporaryDirectory(prefix=_BUILDING, dir=self._root) as name:
            aside = Path(name) / "entry"
            aside.mkdir()
            record = build(aside)
            sums = {file.name: [file.stat().st_size, _checksum(file)] for file in aside.iterdir()}
            (aside / _RECORD).write_text(json.dumps({"files": sums, "record": record}), encoding="utf-8")
            shutil.rmtree(folder, ignore_errors=True)  # a damaged one
            aside.rename(folder)

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """One process at a time builds an entry. A few hundred locks serve all entries, and are never removed."""
        locks = self._root / _LOCKS
        locks.mkdir(exist_ok=True)
        with FileLock(locks / f"{key[:2]}.lock"):
            yield

    def _evict(self, keep: Path) -> None:
        """Remove the entries used longest ago until the rest fits.

        A process of the same host that has one open goes on reading it.
        """
        entries = [(_last_use(folder), folder, _size(folder)) for folder in self._root.iterdir() if _counts(folder)]
        total = sum(size for _, _, size in entries)
        for _, folder, size in sorted(entries):
            if total <= self._limit:
                return
            if folder != keep:
                shutil.rmtree(folder, ignore_errors=True)
                total -= size


def cache_root() -> Path:
    """$FTX_CACHE, else the user's cache folder."""
    given = os.environ.get("FTX_CACHE")
    base = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ftx"
    return base / "data"


def built_aside(build: Build, reason: str | None = None) -> Entry:
    """Rows for this process alone: mapped files stay readable when their folder is gone."""
    with tempfile.TemporaryDirectory(prefix="ftx-data-") as name:
        record = build(Path(name))
        return Entry(_stores(Path(name).iterdir()), record, reason)


def _opened(folder: Path) -> Entry | None:
    """An entry that is whole; None otherwise."""
    try:
        found = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        whole = all(
            (folder / name).stat().st_size == size and _checksum(folder / name) == checksum
            for name, (size, checksum) in found["files"].items()
        )
        os.utime(folder / _RECORD)  # used last
        return Entry(_stores(folder / name for name in found["files"]), dict(found["record"])) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _stores(files: Iterable[Path]) -> dict[str, Store]:
    return {file.stem: Store(file) for file in files if file.suffix == STORE_SUFFIX}


def _checksum(file: Path) -> int:
    """CRC-32: against damage, not against malice, and it reads a gigabyte a second."""
    value = 0
    with file.open("rb") as stream:
        while piece := stream.read(_CHUNK):
            value = zlib.crc32(piece, value)
    return value


def _counts(folder: Path) -> bool:
    """Whether a folder may be removed for room: entries, and what a process that died left half built.

    Whoever points FTX_CACHE at a folder of data may have other folders there.
    """
    if folder.name.startswith(_BUILDING):
        return time.time() - _last_use(folder) > _ABANDONED_SECONDS
    return _ENTRY.fullmatch(folder.name) is not None and folder.is_dir()


def _last_use(folder: Path) -> float:
    for path in (folder / _RECORD, folder):
        with suppress(OSError):
            return path.stat().st_mtime
    return 0.0


def _size(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        with suppress(OSError):
            total += file.stat().st_size
    return total
