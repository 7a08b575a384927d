"""One pass over all sources: every row read, put on its side, made into token ids, written down, and counted."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from ftx.config.schema import DataConfig
from ftx.data.formats.record import BadRecord
from ftx.data.render import Encoder
from ftx.data.rows import Row, RowError, RowReader
from ftx.data.sources import Source
from ftx.data.splits import SPLITS, Contents, draw_position, overlaps, prompts_of, side_position
from ftx.data.store import STORE_SUFFIX, Store, Stored, StoreWriter
from ftx.errors import DataError

MOST_PROBLEMS_SHOWN = 20
_NOT_TRIED = "The chat template was not tried on the last rows, behind the first of these."
_BATCH = 1000  # rows that are in memory at once

_Item = TypeVar("_Item")


@dataclass
class Rejected:
    """Rows of one source that cannot be used."""

    shown: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, where: str, reason: str, kind: str) -> None:
        """Count one row; the first are kept in words."""
        self.kinds[kind] += 1
        if len(self.shown) < MOST_PROBLEMS_SHOWN:
            self.shown.append(f"{where}: {reason}")

    @property
    def count(self) -> int:
        """How many."""
        return self.kinds.total()

    def in_words(self, rows: int) -> list[str]:
        """The first of them, how many more there are, and how many of each kind."""
        lines = list(self.shown)
        if self.count > len(lines):
            lines.append(f"... and {self.count - len(lines)} more bad rows")
        if self.count > 1:
            counts = ", ".join(f"{count} x {kind}" for kind, count in self.kinds.most_common())
            lines.append(f"{self.count} of {rows} rows cannot be used: {counts}")
        return lines


class Builder:
    """Writes the rows of all splits into a folder.

    Args:
        config: what decides which row is used, and how.
        encoder: makes token ids.
        folder: where one file per split is written.
    """

    def __init__(self, config: DataConfig, encoder: Encoder, folder: Path) -> None:
        self._config = config
        self._encoder = encoder
        self._folder = folder
        self._writers: dict[str, StoreWriter] = {}
        self._contents: dict[str, Contents] = {}
        self._remarks: dict[str, Counter[str]] = {}
        self._problems: list[str] = []
        self._skipped: list[str] = []

    def build(self, sources: Sequence[Source], hashes: Sequence[str]) -> dict[str, Any]:
        """Read everything; what the record says of it.

        Args:
            sources: of all splits.
            hashes: what the content of each has to have.

        Raises:
            DataError: bad rows, unless they are to be skipped; a split without rows; content of another hash.
        """
        held_out = None if any(source.split == "validation" for source in sources) else self._config.eval_fraction
        try:
            files = [
                self._read(source, number, sha256, held_out)
                for number, (source, sha256) in enumerate(zip(sources, hashes, strict=True))
            ]
        finally:
            for writer in self._writers.values():
                writer.close()
        if self._problems:
            raise DataError("\n".join(self._problems))
        if held_out is not None:
            self._refuse_empty_side()
        self._contents = {name: self._contents[name] for name in SPLITS if name in self._contents}
        return {
            "files": files,
            "split": self._split(held_out),
            "content": {name: contents.hashes() for name, contents in self._contents.items()},
            "repeats": {name: contents.repeats() for name, contents in self._contents.items()},
            "overlap": self._overlap(),
            "remarks": {name: dict(counts) for name, counts in self._remarks.items()},
        }

    def _read(self, source: Source, number: int, sha256: str, held_out: float | None) -> dict[str, Any]:
        is_split = held_out is not None and source.split == "train"
        reader = RowReader(self._config.columns, self._config.group_by if is_split else None)
        rejected, rows, readable, tried = Rejected(), 0, True, True
        for batch in _batched(source.records.records(), _BATCH):
            rows, before = rows + len(batch), rejected.count
            taken = _rows(batch, reader, rejected)
            if readable or self._config.on_bad_row == "skip":
                self._take(taken, source.split, number, held_out, rejected)
            else:  # a row that cannot be read is said in seconds: the rest of the file is only read
                tried &= not taken
            readable &= rejected.count == before
        if rejected.count and (self._config.on_bad_row == "error" or rejected.count == rows):
            self._problems += [*rejected.in_words(rows), *([] if tried else [_NOT_TRIED])]
        elif rejected.count:
            self._skipped += rejected.in_words(rows)
        if rows == 0:
            self._problems.append(f"{source.records.origin} has no rows")
        if source.records.sha256() != sha256:
            raise DataError(f"{source.records.origin} was changed while it was read; start again")
        return {
            "split": source.split,
            "path": source.records.origin,
            "sha256": sha256,
            "revision": source.revision,
            "rows": rows,
            "snapshot": None,
            "blank_lines": source.records.blank_lines,
            "bad_rows": {"count": rejected.count, "kinds": dict(rejected.kinds), "shown": rejected.shown},
        }

    def _take(self, rows: Sequence[Row], split: str, number: int, held_out: float | None, rejected: Rejected) -> None:
        sides: dict[str, list[Stored]] = {}
        for row, made in zip(rows, self._encoder.encode(rows), strict=True):
            if isinstance(made, RowError):
                rejected.add(row.where, str(made), made.kind)
                continue
            prompts = prompts_of(row, self._config.supervise)
            side = split
            if split == "train" and held_out is not None:
                side = "validation" if side_position(row, prompts, self._config.split_seed) < held_out else "train"
            self._contents.setdefault(side, Contents()).add(row, prompts, made.token_bytes())
            self._remarks.setdefault(side, Counter()).update(made.remarks)
            position = draw_position(row, self._config.split_seed)
            sides.setdefault(side, []).append(Stored(made, number, position))
        for side, stored in sides.items():
            self._writer(side).write(stored)

    def _writer(self, split: str) -> StoreWriter:
        if split not in self._writers:
            self._writers[split] = StoreWriter(self._path(split))
        return self._writers[split]

    def _path(self, split: str) -> Path:
        return self._folder / f"{split}{STORE_SUFFIX}"

    def _split(self, held_out: float | None) -> dict[str, Any]:
        seed = None if held_out is None else self._config.split_seed
        group = None if held_out is None else self._config.group_by
        return {"fraction": held_out, "seed": seed, "group_by": group}

    def _refuse_empty_side(self) -> None:
        rows = {name: self._writers[name].rows if name in self._writers else 0 for name in ("train", "validation")}
        if not all(rows.values()):
            refusal = (
                f"data.eval_fraction={self._config.eval_fraction} with data.split_seed={self._config.split_seed} "
                f"leaves {rows['train']} training and {rows['validation']} validation rows of {sum(rows.values())}: "
                "give data.eval_path, or another fraction or split seed"
            )
            raise DataError("\n".join([*self._skipped, refusal]))

    def _overlap(self) -> list[dict[str, Any]]:
        """Shared prompts, their rows named as people find them."""
        found = overlaps(self._contents)
        stores = {name: Store(self._path(name)) for each in found for name in (each["first"], each["second"])}
        for each in found:
            first, second = stores[each["first"]], stores[each["second"]]
            each["shown"] = [f"{second.row(here).where} = {first.row(twin).where}" for here, twin in each.pop("pairs")]
        return found


def _rows(batch: Sequence[tuple[str, Any]], reader: RowReader, rejected: Rejected) -> list[Row]:
    rows = []
    for where, fields in batch:
        if isinstance(fields, BadRecord):
            rejected.add(where, fields.reason, fields.kind)
            continue
        try:
            rows.append(reader.row(where, fields))
        except RowError as error:
            rejected.add(where, str(error), error.kind)
    return rows


def _batched(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
