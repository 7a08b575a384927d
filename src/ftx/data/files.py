"""One data file as records, strictly and one at a time: JSON lines, a JSON array, CSV or Parquet, each also gzipped.

A file that cannot be what its name says is a DataError. Where only one record is bad and the next can still be
found, the record is a BadRecord and reading goes on.
"""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ftx.config.checks import FILE_ENDINGS
from ftx.data.formats.csv_table import read_csv
from ftx.data.formats.json_array import read_json_array
from ftx.data.formats.json_lines import read_json_lines
from ftx.data.formats.parquet import read_parquet
from ftx.data.formats.record import BLANK, Raw, first_line
from ftx.errors import DataError

_EXPECTED = {
    ".jsonl": "UTF-8 text, one JSON object a line",
    ".json": "UTF-8 text, an array of objects",
    ".csv": "UTF-8 text, comma-separated under a header row",
    ".parquet": "a Parquet file",
}
SUFFIXES = (*FILE_ENDINGS, *(f"{ending}.gz" for ending in FILE_ENDINGS))
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_OTHER_CONTENT = {
    _GZIP: ("gzip-compressed", "add .gz to its name"),
    _PARQUET: ("Parquet", "rename it to .parquet"),
    b"PK\x03\x04": ("a ZIP archive or a spreadsheet", "unpack it or save it as CSV"),
    b"\xff\xfe": ("UTF-16", "save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"),
    b"\xfe\xff": ("UTF-16", "save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"),
}


class DataFile:
    """A file on disk whose name says how to read it; `origin` is what messages call it.

    Nothing is kept: every call reads the file as it then is.

    Raises:
        DataError: the path is a folder, or its ending is none of SUFFIXES.
    """

    def __init__(self, path: Path, origin: str | None = None) -> None:
        self.origin = origin or str(path)
        self.blank_lines = 0
        """Lines passed over; complete when `records` is exhausted."""
        self._path = path
        self._suffix = _suffix_of(path, self.origin)

    def sha256(self) -> str:
        """The hash of the file's bytes as they lie on disk. Raises DataError where it cannot be read."""
        with _in_words(self.origin), self._path.open("rb") as raw:
            return hashlib.file_digest(raw, "sha256").hexdigest()

    def records(self) -> Iterator[tuple[str, Any]]:
        """Each record, or BadRecord, with its place: origin:line where it begins, in Parquet origin:row, from 1.

        Raises:
            DataError: the file cannot be read, or is not what its name says.
        """
        self.blank_lines = 0
        with _in_words(self.origin), _unpacked(self._path, self.origin) as raw:
            _refuse_other_content(raw, self._suffix, self.origin)
            for number, record in _READERS[self._suffix](raw, self.origin):
                if record is BLANK:
                    self.blank_lines += 1
                else:
                    yield f"{self.origin}:{number}", record


def _suffix_of(path: Path, origin: str) -> str:
    if path.is_dir():
        raise DataError(f"{origin} is a folder; expected a file: name one that is in it")
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix not in _EXPECTED:
        raise DataError(
            f"{origin} has the ending {path.suffix or 'none'}; expected one of {', '.join(SUFFIXES)}: "
            "rename it after what it holds, or convert it"
        )
    return suffix


@contextmanager
def _in_words(origin: str) -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{origin} is damaged or cut off ({first_line(error)}); expected whole gzip data: copy or pack it again"
        ) from error
    except OSError as error:
        raise DataError(
            f"{origin} cannot be read: {error.strerror or first_line(error)}; expected a file: check path and access"
        ) from error


@contextmanager
def _unpacked(path: Path, origin: str) -> Iterator[Raw]:
    with path.open("rb") as raw:
        if path.suffix.lower() != ".gz":
            yield raw
            return
        if raw.read(len(_GZIP)) != _GZIP:
            raise DataError(f"{origin} is not gzip-compressed; expected gzip data: take .gz off its name")
        raw.seek(0)
        with gzip.GzipFile(fileobj=raw) as unpacked:
            yield unpacked


def _refuse_other_content(raw: Raw, suffix: str, origin: str) -> None:
    head = raw.read(4)
    raw.seek(0)
    if suffix == ".parquet" and head == _PARQUET:
        return
    if b"\0\0" in (head[::2], head[1::2]):  # UTF-16 without its mark
        head = b"\xff\xfe"
    for signature, (kind, remedy) in _OTHER_CONTENT.items():
        if head.startswith(signature):
            raise DataError(f"{origin} is {kind}; expected {_EXPECTED[suffix]}: {remedy}")
    if suffix == ".parquet":
        raise DataError(f"{origin} begins with {head!r}; expected {_EXPECTED[suffix]}: rename it after what it holds")


_READERS = {".jsonl": read_json_lines, ".json": read_json_array, ".csv": read_csv, ".parquet": read_parquet}
