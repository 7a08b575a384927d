"""Tokenised rows on disk: one Arrow file a split, mapped into memory, so that a million rows cost none."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ftx.data.render import TokenizedRow

STORE_SUFFIX = ".arrow"

# Of a row: its own place in the file list and in [0, 1) for data.weights; lengths that limits ask for.
_SCHEMA = pa.schema(
    [
        ("where", pa.string()),
        ("input_ids", pa.list_(pa.int32())),
        ("spans", pa.list_(pa.int32())),
        ("prompt_length", pa.int32()),
        ("answer_length", pa.int32()),
        ("reference", pa.string()),
        ("file", pa.int16()),
        ("position", pa.float64()),
        ("length", pa.int32()),
        ("supervised", pa.int32()),
    ]
)


@dataclass(frozen=True)
class Stored:
    """A tokenised row with the number of the file it came from and its place in [0, 1) by content."""

    row: TokenizedRow
    file: int
    position: float


class StoreWriter:
    """Writes the rows of one split, batch by batch. Close it, or the file is not readable."""

    def __init__(self, path: Path) -> None:
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_stream(self._sink, _SCHEMA)
        self.rows = 0

    def write(self, batch: Sequence[Stored]) -> None:
        """Append rows."""
        if not batch:
            return
        rows = [each.row for each in batch]
        columns: dict[str, list[Any]] = {
            "where": [row.where for row in rows],
            "input_ids": [row.input_ids for row in rows],
            "spans": [[edge for span in row.spans for edge in span] for row in rows],
            "prompt_length": [row.prompt_length for row in rows],
            "answer_length": [row.answer_length for row in rows],
            "reference": [row.reference for row in rows],
            "file": [each.file for each in batch],
            "position": [each.position for each in batch],
            "length": [len(row.input_ids) for row in rows],
            "supervised": [row.supervised for row in rows],
        }
        self._writer.write_batch(pa.RecordBatch.from_pydict(columns, schema=_SCHEMA))
        self.rows += len(batch)

    def close(self) -> None:
        """End the file."""
        self._writer.close()
        self._sink.close()


class Store:
    """The rows of one split as they were written, whatever their length."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with pa.memory_map(str(path)) as source:
            self._table = pa.ipc.open_stream(source).read_all()

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def row(self, number: int) -> TokenizedRow:
        """One row, counted from 0."""
        (found,) = self._table.slice(number, 1).to_pylist()
        return TokenizedRow(
            found["where"],
            found["input_ids"],
            spans_of(found["spans"]),
            found["prompt_length"],
            found["answer_length"],
            found["reference"],
        )

    def table(self, names: Sequence[str]) -> pa.Table:
        """These columns, mapped and not copied."""
        return self._table.select(list(names))

    def answered(self, numbers: NDArray[np.int64]) -> bool:
        """Whether all of these rows have an answer."""
        return int(self._table.column("prompt_length").take(pa.array(numbers)).null_count) == 0

    def column(self, name: str) -> NDArray[Any]:
        """One number of every row: length, supervised, file or position."""
        return np.asarray(self._table.column(name).combine_chunks().to_numpy(zero_copy_only=False))


class TokenizedSplit(Sequence[TokenizedRow]):
    """The rows of a store that are used, in order, a row perhaps several times, none longer than `limit` tokens."""

    def __init__(self, store: Store, numbers: NDArray[np.int64], limit: int | None) -> None:
        self.store = store
        self.numbers = numbers
        self.limit = limit

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> TokenizedRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[TokenizedRow]: ...
    def __getitem__(self, index: int | slice) -> TokenizedRow | list[TokenizedRow]:
        if isinstance(index, slice):
            return [self._row(number) for number in self.numbers[index]]
        return self._row(self.numbers[index])

    def __iter__(self) -> Iterator[TokenizedRow]:
        return (self._row(number) for number in self.numbers)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each row within the limit."""
        lengths = self.store.column("length")[self.numbers].astype(np.int64)
        return lengths if self.limit is None else np.minimum(lengths, self.limit)

    @cached_property
    def supervised(self) -> NDArray[np.int64]:
        """Tokens that carry loss, of each row within the limit."""
        counts = self.store.column("supervised")[self.numbers].astype(np.int64)
        if self.limit is not None:
            longer = np.flatnonzero(self.store.column("length")[self.numbers] > self.limit)
            counts[longer] = [self[int(at)].supervised for at in longer]
        return counts

    def _row(self, number: Any) -> TokenizedRow:
        row = self.store.row(int(number))
        return row if self.limit is None or len(row.input_ids) <= self.limit else row.cut(self.limit)


def spans_of(edges: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Pairs of begin and end out of a flat list."""
    return tuple(zip(edges[::2], edges[1::2], strict=True))
