"""Greedy answers: the same whatever the batches, in the order of the rows, cut at the end token."""

from importlib import resources
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from ftx.config.schema import DataConfig, ModelConfig
from ftx.data.prepare import prepare
from ftx.data.render import TokenizedRow
from ftx.model.base import load_tokenizer
from ftx.scores.exact_match import is_exact, prediction_line, summarise
from ftx.scores.generation import Generated, generate, longest_answer

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(ModelConfig(name="tiny", bundled=True))


@pytest.fixture(scope="module")
def rows(tokenizer: Any) -> list[TokenizedRow]:
    config = DataConfig(source="bundled", name="orders")
    return prepare(config, tokenizer, 512).validation[:7]


@pytest.fixture(scope="module")
def model() -> Any:
    return AutoModelForCausalLM.from_pretrained(str(resources.files("ftx") / "bundled" / "tiny"), dtype=torch.float32)


def test_answers_do_not_depend_on_the_batch(model: Any, tokenizer: Any, rows: list[TokenizedRow]) -> None:
    answers = [
        [item.output for item in generate(model, tokenizer, rows, batch_size=size, max_new_tokens=40)]
        for size in (1, 3, 7)
    ]
    assert answers[0] == answers[1] == answers[2]
    assert len(set(answers[0])) > 1


def test_an_answer_is_what_plain_greedy_decoding_gives(model: Any, tokenizer: Any, rows: list[TokenizedRow]) -> None:
    ids = rows[0].prompt_ids()
    for _ in range(25):
        with torch.no_grad():
            token = int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
        if token == tokenizer.eos_token_id:
            break
        ids.append(token)
    expected = tokenizer.decode(ids[len(rows[0].prompt_ids()) :], skip_special_tokens=True)
    (item, *_) = generate(model, tokenizer, rows, batch_size=7, max_new_tokens=25)
    assert item.output == expected


def test_a_models_own_sampling_settings_are_not_used(model: Any, tokenizer: Any, rows: list[TokenizedRow]) -> None:
    plain = generate(model, tokenizer, rows, batch_size=7, max_new_tokens=20)
    before = model.generation_config
    model.generation_config = type(before)(
        do_sample=True, temperature=5.0, top_k=50, top_p=0.5, repetition_penalty=1.5, min_new_tokens=15,
        no_repeat_ngram_size=2, eos_token_id=before.eos_token_id, pad_token_id=before.pad_token_id,
    )  # fmt: skip
    try:
        sampled = generate(model, tokenizer, rows, batch_size=7, max_new_tokens=20)
    finally:
        model.generation_config = before
    assert [item.output for item in plain] == [item.output for item in sampled]


def test_the_limit_is_counted(model: Any, tokenizer: Any, rows: list[TokenizedRow]) -> None:
    items = generate(model, tokenizer, rows, batch_size=7, max_new_tokens=2)
    assert not any(item.stopped for item in items)
    assert summarise(items)["ran_into_limit"] == 1.0
    assert longest_answer(rows) > 16


def test_exact_match_looks_past_outer_space_alone() -> None:
    row = TokenizedRow("f:1", [1, 2], ((1, 2),), 1, 1, ' {"a": 1}')
    items = [Generated(row, "prompt", text, stopped=True) for text in ('{"a": 1}\n', '{"a":1}')]
    assert [is_exact(item) for item in items] == [True, False]
    assert summarise(items)["exact_match"] == 0.5
    assert prediction_line("test", items[0])["metrics"] == {"exact_match": 1.0}
