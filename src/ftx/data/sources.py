"""Where the rows of each split come from: bundled files, files of one's own, the Hub."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from ftx.config.resolve import paths_of
from ftx.config.schema import DataConfig
from ftx.data.files import DataFile
from ftx.data.formats.parquet import without_nulls
from ftx.data.splits import SPLITS
from ftx.errors import DataError

_COMMIT = re.compile("[0-9a-f]{40}")


class RecordSource(Protocol):
    """One file or Hub split, as records."""

    origin: str
    """What messages call it."""
    blank_lines: int
    """Known once all records are read."""

    def sha256(self) -> str:
        """Of the bytes read; of a Hub split, of its records."""

    def records(self) -> Iterator[tuple[str, Any]]:
        """Each with its place, `origin:line`."""


@dataclass(frozen=True)
class Source:
    """A source and the split that its rows are for."""

    split: str
    records: RecordSource
    revision: str | None = None
    path: Path | None = None


def sources_of(config: DataConfig) -> list[Source]:
    """Every source, training first, in the order given.

    Raises:
        DataError: a Hub data set that cannot be had.
    """
    if config.source == "bundled":
        name = str(config.name)
        return [_file(split, bundled_path(name, split), f"{name}/{split}.jsonl") for split in SPLITS]
    if config.source == "hub":
        named = {"train": config.split, "validation": config.eval_split, "test": config.test_split}
        name, commit = str(config.name), _commit_of(str(config.name), config.revision)
        return [
            Source(split, HubSplit(name, theirs, commit or config.revision), revision=commit)
            for split, theirs in named.items()
            if theirs
        ]
    given = {"train": config.path, "validation": config.eval_path, "test": config.test_path}
    return [_file(split, Path(path).expanduser(), path) for split, paths in given.items() for path in paths_of(paths)]


def bundled_path(name: str, split: str) -> Path:
    """The file of a bundled data set's split."""
    return Path(str(resources.files("ftx"))) / "bundled" / name / f"{split}.jsonl"


def _file(split: str, path: Path, origin: str) -> Source:
    return Source(split, DataFile(path, origin), path=path)


class HubSplit:
    """A split of a data set on the Hub, or in a local folder that `datasets` reads."""

    blank_lines = 0

    def __init__(self, name: str, split: str, revision: str | None) -> None:
        self.origin = f"{name}[{split}]"
        self._rows = _loaded(name, split, revision)

    def sha256(self) -> str:
        """Of all records as JSON, in order."""
        return self._sha256

    @cached_property
    def _sha256(self) -> str:
        digest = hashlib.sha256()
        for _, record in self.records():
            digest.update(json.dumps(record, sort_keys=True, default=str).encode() + b"\n")
        return digest.hexdigest()

    def records(self) -> Iterator[tuple[str, Any]]:
        """Rows with exactly the keys they have: Arrow tables put nulls where a row lacks one."""
        for number, row in enumerate(self._rows, start=1):
            yield f"{self.origin}:{number}", without_nulls(row)

    def save(self, path: Path) -> None:
        """Write all records as JSON lines."""
        with path.open("w", encoding="utf-8") as file:
            for _, record in self.records():
                file.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")


def _commit_of(name: str, revision: str | None) -> str | None:
    """The commit that a branch or tag means now; None for a local folder, or where the Hub cannot be asked."""
    if Path(name).exists():
        return None
    from huggingface_hub import HfApi  # half a second, and only for Hub data

    try:
        return str(HfApi().dataset_info(name, revision=revision).sha)
    except Exception:  # a missing network has many names, by the HTTP library in use
        # Whether the data set can be had nevertheless, from the local cache, loading shows.
        return revision if revision is not None and _COMMIT.fullmatch(revision) else None


def _loaded(name: str, split: str, revision: str | None) -> Any:
    from datasets import load_dataset  # heavy, and only for data=hub

    # It knows the files of a local folder by their times, which an edit may leave as they were.
    mode = "force_redownload" if Path(name).exists() else None
    try:
        return load_dataset(name, revision=revision, split=split, download_mode=mode)
    except Exception as error:
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise DataError(
            f"data.name={name}, split {split}: cannot be loaded ({type(error).__name__}: {reason}); "
            "check the name and the network, or use data=file with a local file"
        ) from error
