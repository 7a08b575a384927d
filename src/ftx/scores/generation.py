"""Greedy generation in batches, independent of how the rows are batched."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig

from ftx.data.render import TokenizedRow

MARGIN_TOKENS = 16

BatchHook = Callable[[int, int], None]


@dataclass(frozen=True)
class Generated:
    """One output. `stopped` is whether it ended by itself; otherwise it ran into the limit."""

    row: TokenizedRow
    prompt: str
    output: str
    stopped: bool


def longest_answer(rows: Sequence[TokenizedRow]) -> int:
    """Tokens of the longest reference answer, and a margin that lets a wrong answer be longer."""
    return max(row.answer_length for row in rows) + MARGIN_TOKENS


def generate(
    model: Any,
    tokenizer: Any,
    rows: Sequence[TokenizedRow],
    *,
    batch_size: int,
    max_new_tokens: int,
    on_batch: BatchHook | None = None,
) -> list[Generated]:
    """The model's own answer to each row's prompt, greedy, in the order of `rows`.

    Rows are batched by length and padded on the left, where the attention mask hides the padding. `on_batch` is told
    after each batch how many are done, and of how many.
    """
    training = model.training
    model.eval()
    by_length = sorted(range(len(rows)), key=lambda index: -(rows[index].prompt_length or 0))
    outputs: dict[int, Generated] = {}
    for start in range(0, len(by_length), batch_size):
        indices = by_length[start : start + batch_size]
        batch = [rows[index] for index in indices]
        for index, item in zip(indices, _generate_batch(model, tokenizer, batch, max_new_tokens), strict=True):
            outputs[index] = item
        if on_batch is not None:
            on_batch(start // batch_size + 1, -(-len(rows) // batch_size))
    model.train(training)
    return [outputs[index] for index in range(len(rows))]


def _generate_batch(model: Any, tokenizer: Any, rows: Sequence[TokenizedRow], max_new_tokens: int) -> list[Generated]:
    prompts = [row.prompt_ids() for row in rows]
    width = max(map(len, prompts))
    ids = torch.full((len(rows), width), tokenizer.pad_token_id, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for position, prompt in enumerate(prompts):
        ids[position, width - len(prompt) :] = torch.tensor(prompt)
        mask[position, width - len(prompt) :] = 1
    ends = end_token_ids(model, tokenizer)
    greedy = GenerationConfig(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        max_new_tokens=max_new_tokens,
        do_sample=False,
        eos_token_id=sorted(ends),
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.inference_mode(), own_settings_aside(model, greedy):
        sequences = model.generate(input_ids=ids.to(model.device), attention_mask=mask.to(model.device))
    return [_cut(row, tokenizer, answer, ends) for row, answer in zip(rows, sequences[:, width:].tolist(), strict=True)]


@contextmanager
def own_settings_aside(model: Any, settings: GenerationConfig) -> Iterator[None]:
    """Generate by `settings` alone: given as an argument, they would be merged with the model's own, which may
    sample, penalise repetition or demand a shortest length.
    """
    own = model.generation_config
    model.generation_config = settings
    try:
        yield
    finally:
        model.generation_config = own


def end_token_ids(model: Any, tokenizer: Any) -> set[int]:
    """Every token that ends an answer: the tokenizer's, and those of the model's generation settings."""
    configured = model.generation_config.eos_token_id
    several = configured if isinstance(configured, list) else [configured]
    return {token for token in (*several, tokenizer.eos_token_id) if token is not None}


def _cut(row: TokenizedRow, tokenizer: Any, answer: list[int], ends: set[int]) -> Generated:
    end = next((position for position, token in enumerate(answer) if token in ends), None)
    kept = answer if end is None else answer[:end]
    output = tokenizer.decode(kept, skip_special_tokens=True)
    return Generated(row, tokenizer.decode(row.prompt_ids()), output, stopped=end is not None)
