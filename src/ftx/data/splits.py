"""Which row is on which side, and whether the sides share prompts.

A row's side depends on the text of its prompt (or on its group) and on `data.split_seed` alone, so that the run's seed
never moves it, equal prompts stay together, and adding rows moves no old row.
"""

import hashlib
import json
import unicodedata
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftx.data.rows import Row

SPLITS = ("train", "validation", "test")
MOST_SHOWN = 3


def prompt_key(row: Row) -> str:
    """What makes two rows the same question: the prompt without differences in spacing or Unicode form.

    A chat's prompt is what stands before its last answer; a single question is the same one as text and as a turn.
    """
    if row.kind == "text":
        return _normalised(str(row.target))
    if isinstance(row.context, str):
        return _normalised(row.context)
    turns = row.context
    if row.kind == "messages":
        last = max(at for at, turn in enumerate(turns) if turn["role"] == "assistant")
        turns = turns[:last] or turns
    said = [[turn["role"], _normalised(turn.get("content") or "")] for turn in turns]
    return said[0][1] if [role for role, _ in said] == ["user"] else json.dumps(said, ensure_ascii=False)


def side_position(row: Row, prompt: str, seed: int) -> float:
    """A place in [0, 1) by the row's group, else by its prompt; below the fraction is held out."""
    return _position(prompt if row.group is None else f"group {row.group}", seed)


def draw_position(row: Row, seed: int) -> float:
    """A place in [0, 1) by the row's whole content: which rows a weight below 1 keeps."""
    return _position(f"draw {row.content()}", seed)


def _normalised(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _position(text: str, seed: int) -> float:
    digest = hashlib.sha256(f"{seed}\n{text}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64


@dataclass
class Contents:
    """The content of one split, row by row, kept as hashes: 80 bytes a row."""

    _ordered: Any = field(default_factory=hashlib.sha256)
    _rows: list[bytes] = field(default_factory=list)
    _prompts: "array[int]" = field(default_factory=lambda: array("Q"))

    def add(self, row: Row, prompt: str) -> None:
        """Take the next row in."""
        content = row.content().encode()
        self._ordered.update(content + b"\n")
        self._rows.append(hashlib.sha256(content).digest())
        self._prompts.append(int.from_bytes(hashlib.blake2b(prompt.encode(), digest_size=8).digest()))

    def hashes(self) -> dict[str, str]:
        """sha256 of the rows in their order, and of the same rows in any order."""
        any_order = hashlib.sha256(b"".join(sorted(self._rows))).hexdigest()
        return {"ordered": self._ordered.hexdigest(), "any_order": any_order}

    @property
    def prompts(self) -> NDArray[np.uint64]:
        """A 64-bit hash of each prompt: of a million rows, two different ones agree once in 40 million cases."""
        return np.frombuffer(self._prompts, dtype=np.uint64)

    def repeats(self) -> dict[str, int]:
        """Rows whose prompt an earlier row has, and those that repeat an earlier row whole."""
        return {
            "prompts": len(self._prompts) - len(np.unique(self.prompts)),
            "rows": len(self._rows) - len(set(self._rows)),
        }


def overlaps(contents: Mapping[str, Contents]) -> list[dict[str, Any]]:
    """Every pair of splits that shares prompts: how many rows of the second, and the first of them by number."""
    found = []
    for (first, some), (second, others) in combinations(contents.items(), 2):
        shared = np.flatnonzero(np.isin(others.prompts, some.prompts))
        if len(shared):
            pairs = [(int(at), _first(some.prompts, others.prompts[at])) for at in shared[:MOST_SHOWN]]
            found.append(
                {"first": first, "second": second, "rows": len(shared), "of": len(others.prompts), "pairs": pairs}
            )
    return found


def _first(prompts: NDArray[np.uint64], wanted: Any) -> int:
    return int(np.flatnonzero(prompts == wanted)[0])
