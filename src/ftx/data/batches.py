"""Rows as a batch: the one way from token ids to what the model is given, in training, evaluation and `ftx.inspect`."""

from collections.abc import Mapping, Sequence
from typing import Any

from ftx.data.render import IGNORED


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
