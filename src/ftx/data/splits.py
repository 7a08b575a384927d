"""Training, validation and test rows: where they come from, and that they do not overlap.

The split of a file depends on the text of each prompt and on `data.split_seed` alone, so that the run's
seed never moves it, equal prompts stay on one side, and adding rows moves no old row.
"""

import hashlib
import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from ftx.config.schema import DataConfig
from ftx.data.rows import Row, Table, bundled_path, iterate_lines, read_jsonl, rows_from, without_nulls
from ftx.errors import DataError

MOST_OVERLAPS_SHOWN = 3
TOLERATED_OVERLAP = 0.05  # of a split's rows, unless data.allow_overlap says otherwise


@dataclass(frozen=True)
class Splits:
    """The rows of a run before any token is made, and what the record says of them."""

    train: list[Row]
    validation: list[Row]
    test: list[Row]
    record: dict[str, Any]

    def by_name(self) -> dict[str, list[Row]]:
        """The splits that have rows."""
        named = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: rows for name, rows in named.items() if rows}


def read_splits(config: DataConfig) -> Splits:
    """Read every file or Hub split that the configuration names and settle which row is where.

    Raises:
        DataError: bad rows, an empty split, or prompts that stand in two splits.
    """
    tables = _tables(config)
    train, validation = tables["train"].rows, tables["validation"].rows if "validation" in tables else []
    test = tables["test"].rows if "test" in tables else []
    fraction = None
    if not validation:
        fraction = config.eval_fraction
        train, validation = split_by_prompt(train, fraction, config.split_seed)
    found = overlaps({"train": train, "validation": validation, "test": test})
    _refuse_overlap(found, config.allow_overlap)
    if config.max_examples is not None:
        train = train[: config.max_examples]
    named = {"train": train, "validation": validation, "test": test}
    record = {
        "path": tables["train"].origin,
        "sha256": tables["train"].sha256,
        "revision": tables["train"].revision,
        **{f"{name}_examples": len(rows) for name, rows in named.items()},
        "files": [
            {
                "split": name,
                "path": table.origin,
                "sha256": table.sha256,
                "rows": len(table.rows),
                "blank_lines": table.blank_lines,
            }
            for name, table in tables.items()
        ],
        "split": {"fraction": fraction, "seed": config.split_seed if fraction else None},
        "content": {name: content_hashes(rows) for name, rows in named.items() if rows},
        "overlap": [overlap.in_words() for overlap in found],
    }
    return Splits(train, validation, test, record)


def split_by_prompt(rows: Sequence[Row], fraction: float, seed: int) -> tuple[list[Row], list[Row]]:
    """Hold out the rows whose prompt's hash falls below `fraction`.

    Raises:
        DataError: when one side would be empty.
    """
    held_out = {prompt for prompt in map(prompt_key, rows) if _position(prompt, seed) < fraction}
    train = [row for row in rows if prompt_key(row) not in held_out]
    validation = [row for row in rows if prompt_key(row) in held_out]
    if not train or not validation:
        raise DataError(
            f"data.eval_fraction={fraction} with data.split_seed={seed} leaves {len(train)} training and "
            f"{len(validation)} validation rows of {len(rows)}: give data.eval_path, or another fraction or split seed"
        )
    return train, validation


def prompt_key(row: Row) -> str:
    """What makes two rows the same question: the prompt without differences in spacing or Unicode form."""
    if row.kind == "text":
        return _normalised(str(row.target))
    if isinstance(row.context, str):
        return _normalised(row.context)
    turns = row.context[:-1] if row.kind == "messages" and len(row.context) > 1 else row.context
    return _normalised(json.dumps([[turn["role"], turn["content"]] for turn in turns], ensure_ascii=False))


@dataclass(frozen=True)
class Overlap:
    """Rows of split `second` whose prompts also stand in split `first`, with their twins there."""

    first: str
    second: str
    rows: int
    pairs: list[tuple[Row, Row]]

    @property
    def share(self) -> float:
        """Share of the second split's rows."""
        return len(self.pairs) / self.rows

    def in_words(self) -> str:
        """How many rows, and the first of them."""
        shown = "; ".join(f"{row.where} = {twin.where}" for row, twin in self.pairs[:MOST_OVERLAPS_SHOWN])
        return f"{len(self.pairs)} of {self.rows} {self.second} prompts are also in {self.first}: {shown}"


def overlaps(splits: dict[str, list[Row]]) -> list[Overlap]:
    """Every pair of splits that shares prompts."""
    found = []
    for (first, some), (second, others) in combinations(splits.items(), 2):
        known = {prompt_key(row): row for row in some}
        pairs = [(row, known[key]) for row in others if (key := prompt_key(row)) in known]
        if pairs:
            found.append(Overlap(first, second, len(others), pairs))
    return found


def _refuse_overlap(found: Sequence[Overlap], allowed: bool | None) -> None:
    limit = {True: 1.0, False: 0.0, None: TOLERATED_OVERLAP}[allowed]
    refused = [overlap.in_words() for overlap in found if overlap.share > limit]
    if refused:
        raise DataError("\n".join([*refused, "Remove them, or say data.allow_overlap=true if you mean it."]))


def content_hashes(rows: Sequence[Row]) -> dict[str, str]:
    """sha256 of the rows in their order, and of the same rows in any order."""
    ordered = hashlib.sha256()
    each = []
    for line in iterate_lines(rows):
        encoded = line.encode()
        ordered.update(encoded + b"\n")
        each.append(hashlib.sha256(encoded).digest())
    return {"ordered": ordered.hexdigest(), "any_order": hashlib.sha256(b"".join(sorted(each))).hexdigest()}


def _normalised(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _position(prompt: str, seed: int) -> float:
    """A place in [0, 1) that depends on the prompt and the split seed alone."""
    digest = hashlib.sha256(f"{seed}\n{prompt}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64


def _tables(config: DataConfig) -> dict[str, Table]:
    if config.source == "bundled":
        name = str(config.name)
        return {
            split: read_jsonl(bundled_path(name, split), config.columns, origin=f"{name}/{split}.jsonl")
            for split in ("train", "validation", "test")
        }
    if config.source == "hub":
        splits = {"train": config.train_split, "validation": config.eval_split, "test": config.test_split}
        return {name: _hub_table(config, split) for name, split in splits.items() if split}
    paths = {"train": config.path, "validation": config.eval_path, "test": config.test_path}
    return {name: read_jsonl(Path(path).expanduser(), config.columns) for name, path in paths.items() if path}


def _hub_table(config: DataConfig, split: str) -> Table:
    from datasets import load_dataset  # heavy, and only for data=hub

    name = str(config.name)
    try:
        loaded = load_dataset(name, revision=config.revision, split=split)
    except Exception as error:
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise DataError(
            f"data.name={name}, split {split}: cannot be loaded ({type(error).__name__}: {reason}); "
            "check the name and the network, or use data=file with a local file"
        ) from error
    records = ((f"{name}[{split}]:{number}", without_nulls(row)) for number, row in enumerate(loaded))
    rows = rows_from(records, config.columns, f"{name}[{split}]")
    return Table(f"{name}[{split}]", rows, content_hashes(rows)["ordered"], revision=_commit(loaded))


def _commit(loaded: Any) -> str | None:
    """The Hub commit in a data set's download addresses (hf://datasets/NAME@COMMIT/...), if it came from there."""
    for address in loaded.info.download_checksums or {}:
        if "@" in address:
            return str(address).partition("@")[2].partition("/")[0]
    return None
