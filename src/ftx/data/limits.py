"""Which of the stored rows a run uses: how often each, how many, and what becomes of those that are too long."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftx.data.store import Store, TokenizedSplit

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True)
class Limited:
    """The rows of one split that a run uses, and the counts of those that it does not."""

    rows: TokenizedSplit
    counts: dict[str, Any]


def drawn(store: Store, weights: list[float] | None, most: int | None) -> NDArray[np.int64]:
    """The numbers of the rows of one epoch, in order.

    Args:
        store: all rows of the split.
        weights: how often the rows of each file stand in an epoch; the part behind the point keeps that share of them,
            chosen by content.
        most: of only the first this many rows.
    """
    numbers = np.arange(len(store))[:most]
    if weights is not None:
        weight = np.asarray(weights)[store.column("file")[numbers]]
        whole = np.floor(weight)
        times = whole + (store.column("position")[numbers] < weight - whole)
        numbers = np.repeat(numbers, times.astype(np.int64))
    return numbers


def limited(store: Store, numbers: NDArray[np.int64], limit: int | None, on_long: str) -> Limited:
    """The rows of at most `limit` tokens; the others dropped, or cut where `on_long` is truncate.

    A row that loses its whole last answer to the cut is dropped: it would train nothing, and be scored on nothing.
    """
    lengths = store.column("length")[numbers]
    long = np.flatnonzero(lengths > limit) if limit is not None else np.empty(0, dtype=np.int64)
    counts: dict[str, Any] = {"rows": len(numbers), "too_long": len(long), "dropped": 0, "truncated": 0}
    counts |= {"answers_cut": 0, "target_tokens_lost": 0, "limit": limit}
    keep = np.ones(len(numbers), dtype=bool)
    for at in long:
        keep[at] = _cut(store, int(numbers[at]), int(limit or 0), on_long, counts)
    kept = TokenizedSplit(store, numbers[keep], limit)
    return Limited(kept, {**counts, **_measured(kept), "quantiles": _quantiles(lengths)})


def _cut(store: Store, number: int, limit: int, on_long: str, counts: dict[str, Any]) -> bool:
    """Count what the limit does to a row that is too long, and say whether what is left of it is used."""
    row = store.row(number)
    cut = row.cut(limit)
    answer_lost = cut.supervised == 0 or limit <= (row.prompt_length or 0)
    used = on_long == "truncate" and not answer_lost
    counts["truncated" if used else "dropped"] += 1
    counts["answers_cut"] += used and cut.supervised < row.supervised
    counts["target_tokens_lost"] += row.supervised - (cut.supervised if used else 0)
    return used


def _measured(rows: TokenizedSplit) -> dict[str, int]:
    return {
        "kept": len(rows),
        "tokens": int(rows.lengths.sum()),
        "target_tokens": int(rows.supervised.sum()),
        "longest": int(rows.lengths.max(initial=0)),
    }


def _quantiles(lengths: NDArray[Any]) -> dict[str, int]:
    """Lengths in tokens before any limit: the smallest that at least this share of the rows does not exceed."""
    if not len(lengths):
        return {}
    found = np.quantile(lengths, list(_QUANTILES.values()), method="inverted_cdf")
    return {name: int(value) for name, value in zip(_QUANTILES, found, strict=True)}
