"""A copy of every file that was read, named by its hash, so that a run's rows outlive what becomes of the files."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ftx.data.files import SUFFIXES
from ftx.data.sources import HubSplit, Source
from ftx.errors import DataError
from ftx.record.provenance import file_sha256


def keep_snapshots(sources: Sequence[Source], files: Sequence[dict[str, Any]], folder: Path) -> None:
    """Copy what is not there yet, and put each copy's path into its entry of `files` as `snapshot`.

    Args:
        sources: of the run.
        files: the entries of the same sources in the record's `dataset`.
        folder: where the copies are.

    Raises:
        DataError: a file is no longer what was read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for source, file in zip(sources, files, strict=True):
        copy = folder / f"{file['sha256']}{_suffix(source)}"
        if not copy.exists():
            _keep(source, copy, file["sha256"])
        file["snapshot"] = str(copy)


def _keep(source: Source, copy: Path, sha256: str) -> None:
    with tempfile.TemporaryDirectory(prefix=".", dir=copy.parent) as folder:
        aside = Path(folder) / copy.name
        if source.path is not None:
            shutil.copyfile(source.path, aside)
            found = file_sha256(aside)
        elif isinstance(source.records, HubSplit):
            source.records.save(aside)
            found = source.records.sha256()
        if found != sha256:
            raise DataError(f"data.snapshot: {source.records.origin} was changed after it was read; start again")
        aside.replace(copy)


def _suffix(source: Source) -> str:
    name = source.path.name.lower() if source.path is not None else ".jsonl"
    return max((suffix for suffix in SUFFIXES if name.endswith(suffix)), key=len)
