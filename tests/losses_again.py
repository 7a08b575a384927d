"""The evaluation loss computed a second way, to check the recorded one against."""

from typing import Any

import torch

from ftx.config.schema import DataConfig
from ftx.data.prepare import prepare
from ftx.job.trainer import supervised_logits


def eval_loss_of(model: Any, tokenizer: Any) -> float:
    """The token-weighted loss of a model on the bundled validation rows, computed one row at a time."""
    data = prepare(DataConfig(source="bundled", name="orders"), tokenizer, 512)
    total, count = 0.0, 0
    model.eval()
    for row in data.validation:
        inputs = {
            "input_ids": torch.tensor([row.input_ids]),
            "attention_mask": torch.ones(1, len(row.input_ids), dtype=torch.long),
            "labels": torch.tensor([row.labels]),
        }
        with torch.no_grad():
            logits, targets = supervised_logits(model, inputs)
        total += float(torch.nn.functional.cross_entropy(logits, targets, reduction="sum"))
        count += len(targets)
    return total / count
