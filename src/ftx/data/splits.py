"""Which row is on which side, and whether the sides share prompts.

A row's side depends on the text of its prompt (or on its group) and on `data.split_seed` alone, so that the run's seed
never moves it, equal prompts stay together, and adding rows moves no old row.
"""

import hashlib
import json
import unicodedata
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftx.data.rows import Row, Turn
from ftx.data.turns import answers_of, supervised_of, turns_of

SPLITS = ("train", "validation", "test")
MOST_SHOWN = 3


@dataclass(frozen=True)
class Prompts:
    """What a row asks. Equal prompts are equal texts here, without differences in spacing or Unicode form.

    `first` stands before the first answer, `final` before the one that generation has to give, `answered` are those of
    all answers that carry loss. A single question is the same one as text and as a turn.
    """

    first: str
    final: str
    answered: tuple[str, ...]


def prompts_of(row: Row, supervise: str) -> Prompts:
    """The prompts of a row by `data.supervise`; plain text is one itself."""
    if row.kind == "text":
        text = _normalised(str(row.target))
        return Prompts(text, text, (text,))
    turns = turns_of(row)
    answers = supervised_of(row, turns, supervise)
    answered = tuple(_prompt(turns[:index] or turns) for index in answers)
    first = answered[-1] if row.kind != "messages" else _prompt(turns[: answers_of(turns)[0]] or turns)
    return Prompts(first, answered[-1], answered)


def _prompt(turns: Sequence[Turn]) -> str:
    said = [[turn["role"], _normalised(turn.get("content") or "")] for turn in turns]
    return said[0][1] if [role for role, _ in said] == ["user"] else json.dumps(said, ensure_ascii=False)


def side_position(row: Row, prompts: Prompts, seed: int) -> float:
    """A place in [0, 1) by the row's group, else by its first prompt; below the fraction is held out.

    By the first: a chat and its beginning stay together.
    """
    return _position(prompts.first if row.group is None else f"group {row.group}", seed)


def draw_position(row: Row, seed: int) -> float:
    """A place in [0, 1) by the row's whole content: which rows a weight below 1 keeps."""
    return _position(f"draw {row.content()}", seed)


def _normalised(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _position(text: str, seed: int) -> float:
    digest = hashlib.sha256(f"{seed}\n{text}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64


class Contents:
    """The content of one split, row by row, kept as hashes: some hundred bytes a row."""

    def __init__(self) -> None:
        self._ordered = hashlib.sha256()
        self._rows: list[bytes] = []
        self._tokens: list[bytes] = []
        self._final = array("Q")
        self._answered, self._answering = array("Q"), array("Q")  # each prompt that is answered, and the row that does

    def add(self, row: Row, prompts: Prompts, tokens: bytes) -> None:
        """Take the next row in; `tokens` are its ids and what of them carries loss."""
        content = row.content().encode()
        self._ordered.update(content + b"\n")
        self._answered.extend(map(_hash64, prompts.answered))
        self._answering.extend([len(self._rows)] * len(prompts.answered))
        self._final.append(_hash64(prompts.final))
        self._rows.append(hashlib.sha256(content).digest())
        self._tokens.append(hashlib.blake2b(tokens, digest_size=16).digest())

    def hashes(self) -> dict[str, str]:
        """sha256 of the rows in their order, of the same rows in any order, and of their tokens in any order."""
        return {
            "ordered": self._ordered.hexdigest(),
            "any_order": hashlib.sha256(b"".join(sorted(self._rows))).hexdigest(),
            "tokens": hashlib.sha256(b"".join(sorted(self._tokens))).hexdigest(),
        }

    @property
    def final(self) -> NDArray[np.uint64]:
        """A 64-bit hash of each row's final prompt: of a million, two different ones agree once in 40 million cases."""
        return np.frombuffer(self._final, dtype=np.uint64)

    @property
    def answered(self) -> NDArray[np.uint64]:
        """The same of all prompts whose answers carry loss."""
        return np.frombuffer(self._answered, dtype=np.uint64)

    def __len__(self) -> int:
        return len(self._rows)

    def rows_answering_any(self, prompts: NDArray[np.uint64]) -> dict[int, Any]:
        """The rows with an answer to one of these prompts, and the first such prompt of each."""
        found: dict[int, Any] = {}
        for at in np.flatnonzero(np.isin(self.answered, prompts)):
            found.setdefault(self._answering[int(at)], self.answered[at])
        return found

    def row_answering(self, prompt: Any) -> int:
        """The first row that answers a prompt, given as its hash."""
        return self._answering[int(np.flatnonzero(self.answered == prompt)[0])]

    def repeats(self) -> dict[str, int]:
        """Rows whose final prompt an earlier row has, and those that repeat an earlier row whole."""
        return {
            "prompts": len(self._final) - len(np.unique(self.final)),
            "rows": len(self._rows) - len(set(self._rows)),
        }


def _hash64(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def overlaps(contents: Mapping[str, Contents]) -> list[dict[str, Any]]:
    """Every pair of splits that shares answered prompts: how many rows of the second, and the first of them."""
    found = []
    for (first, some), (second, others) in combinations(contents.items(), 2):
        shared = others.rows_answering_any(some.answered)
        if len(shared):
            pairs = [(row, some.row_answering(prompt)) for row, prompt in list(shared.items())[:MOST_SHOWN]]
            found.append({"first": first, "second": second, "rows": len(shared), "of": len(others), "pairs": pairs})
    return found
