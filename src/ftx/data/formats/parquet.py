"""Parquet, a batch of rows at a time."""

import gzip
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ftx.data.formats.record import CHUNK, Raw, column_names, first_line
from ftx.errors import DataError

BATCH_ROWS = 1000


def without_nulls(value: Any) -> Any:
    """Drop the nulls that Arrow tables put where a row lacks a key, so that templates never see them."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def read_parquet(raw: Raw, origin: str) -> Iterator[tuple[int, Any]]:
    """Records with the number of their row, from 1. Raises DataError."""
    import pyarrow as pa  # slow to import, and needed by no other format
    import pyarrow.parquet as pq

    with _seekable(raw) as source:
        try:
            table = pq.ParquetFile(source, buffer_size=CHUNK)
            column_names(table.schema_arrow.names, origin)
            records = (record for batch in table.iter_batches(BATCH_ROWS) for record in batch.to_pylist())
            for number, record in enumerate(records, start=1):
                yield number, without_nulls(record)
        except (pa.ArrowException, OSError, ValueError, OverflowError, LookupError) as error:
            raise DataError(
                f"{origin} is damaged, or holds what cannot be read ({first_line(error)}); expected "
                f"a Parquet file: copy or write it again"
            ) from error


@contextmanager
def _seekable(raw: Raw) -> Iterator[Any]:
    """The file itself, or what a .gz holds in a temporary file: Parquet is read from its end."""
    if not isinstance(raw, gzip.GzipFile):
        yield raw
        return
    with tempfile.TemporaryFile() as unpacked:
        shutil.copyfileobj(raw, unpacked, CHUNK)
        yield unpacked
