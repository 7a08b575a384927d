"""What the model is given: padded ids, and which of them are attended to and carry loss."""

from typing import Any

import pytest
import torch

from chats import bundled_tokenizer
from ftx.data.batches import Collator
from ftx.data.render import IGNORED, Encoder, TokenizedRow
from ftx.data.rows import Row

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """The bundled tokenizer, padding with its end token, as Llama's and many others do."""
    tokenizer = bundled_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


@pytest.fixture(scope="module")
def rows(tokenizer: Any) -> list[TokenizedRow]:
    """A long and a short answer, and a text."""
    encoded = Encoder(tokenizer, {}, "auto").encode(
        [
            Row("prompt_completion", "f:1", "which colour?", "a rather long list of colours, and blue"),
            Row("prompt_completion", "f:2", "which?", "blue"),
            Row("text", "f:3", "", "blue"),
        ]
    )
    return [row for row in encoded if isinstance(row, TokenizedRow)]


def batch_of(rows: list[TokenizedRow], pad: int) -> dict[str, Any]:
    return dict(Collator(pad)([{"input_ids": row.input_ids, "labels": row.labels} for row in rows]))


def test_small_numbers() -> None:
    batch = Collator(9)([{"input_ids": [1, 2, 9], "labels": [IGNORED, 2, 9]}, {"input_ids": [3], "labels": [IGNORED]}])
    assert {name: tensor.tolist() for name, tensor in batch.items()} == {
        "input_ids": [[1, 2, 9], [3, 9, 9]],
        "attention_mask": [[1, 1, 1], [1, 0, 0]],
        "labels": [[IGNORED, 2, 9], [IGNORED, IGNORED, IGNORED]],
    }
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}


def test_a_real_end_token_is_learnt_and_seen_where_it_also_pads(tokenizer: Any, rows: list[TokenizedRow]) -> None:
    end = tokenizer.eos_token_id
    batch = batch_of(rows, tokenizer.pad_token_id)
    assert tokenizer.pad_token_id == end
    assert len({len(row.input_ids) for row in rows}) == 3
    for number, row in enumerate(rows):
        length = len(row.input_ids)
        assert row.input_ids[-1] == end
        assert batch["labels"][number, length - 1] == end
        assert batch["attention_mask"][number].tolist() == [1] * length + [0] * (batch["labels"].shape[1] - length)
        assert set(batch["input_ids"][number, length:].tolist()) <= {end}
        assert set(batch["labels"][number, length:].tolist()) <= {IGNORED}


def test_a_batch_is_that_of_trl(tokenizer: Any, rows: list[TokenizedRow]) -> None:
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling  # four seconds

    theirs = DataCollatorForLanguageModeling(pad_token_id=tokenizer.pad_token_id)(
        [{"input_ids": row.input_ids, "labels": row.labels} for row in rows]
    )
    ours = batch_of(rows, tokenizer.pad_token_id)
    assert set(ours) == {"input_ids", "attention_mask", "labels"}
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name])
        assert tensor.dtype == theirs[name].dtype
