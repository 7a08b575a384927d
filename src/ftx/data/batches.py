"""Rows as a batch: the one way from token ids to what the model is given, in training, evaluation and `ftx.inspect`."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ftx.data.render import IGNORED, labels_of
from ftx.data.store import TokenizedSplit, spans_of


def examples(rows: TokenizedSplit) -> Any:
    """A split as a `datasets.Dataset` of `input_ids` and `labels`, each row read from its file when asked for."""
    from datasets import Dataset  # a second
    from datasets.table import InMemoryTable

    table = InMemoryTable(rows.store.table(["input_ids", "spans"]))
    # Without a fingerprint, `datasets` would read and pickle the whole table to make one.
    made = Dataset(table, fingerprint="rows").select(rows.numbers)
    return made.with_transform(partial(_examples, limit=rows.limit))


def _examples(columns: Mapping[str, list[list[int]]], limit: int | None) -> dict[str, list[list[int]]]:
    ids = columns["input_ids"]
    labels = [labels_of(each, spans_of(edges)) for each, edges in zip(ids, columns["spans"], strict=True)]
    return {"input_ids": [each[:limit] for each in ids], "labels": [each[:limit] for each in labels]}


class Collator:
    """Pads rows on the right; the labels say what is padding, so the pad token may be the end token.

    TRL's collator does the same, and takes four seconds to import.
    """

    def __init__(self, pad_token_id: int) -> None:
        self._pad = pad_token_id

    def __call__(self, rows: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, Any]:
        """Tensors `input_ids`, `attention_mask` and `labels`, each of shape (rows, longest row)."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        ids = [torch.as_tensor(row["input_ids"], dtype=torch.long) for row in rows]
        labels = [torch.as_tensor(row["labels"], dtype=torch.long) for row in rows]
        return {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=self._pad),
            "attention_mask": pad_sequence([torch.ones_like(each) for each in ids], batch_first=True),
            "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
        }
