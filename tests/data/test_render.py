"""The mask, on the ids that go into the batch: the answer and its end token, nothing before, nothing after."""

from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from ftx.data.render import IGNORED, TokenizedRow, encode
from ftx.data.rows import Row
from ftx.errors import DataError

pytestmark = pytest.mark.train

CHAT = [
    {"role": "user", "content": "one plus one?"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "and one more?"},
    {"role": "assistant", "content": "three"},
]


def tokenizer_with(template: str | None, end: str = "<|im_end|>", *, pad_is_end: bool = False) -> Any:
    """The bundled tokenizer with another chat template, its control words being single tokens."""
    tokenizer = AutoTokenizer.from_pretrained(str(resources.files("ftx") / "bundled" / "tiny"))
    words = ["<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<end_of_turn>"]
    tokenizer.add_special_tokens({"additional_special_tokens": [*words, "<start_of_turn>"], "bos_token": "<s>"})
    if template is not None:
        tokenizer.eos_token = end
    if pad_is_end:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.chat_template = template
    return tokenizer


def trl_template(name: str) -> str:
    return Path(str(resources.files("trl") / "chat_templates" / f"{name}.jinja")).read_text()


def supervised_text(row: TokenizedRow, tokenizer: Any) -> list[str]:
    """The supervised stretches of a row as text."""
    stretches: list[list[int]] = []
    before = IGNORED
    for label in row.labels:
        if label != IGNORED:
            if before == IGNORED:
                stretches.append([])
            stretches[-1].append(label)
        before = label
    return [tokenizer.decode(ids) for ids in stretches]


@pytest.mark.parametrize(
    ("name", "end", "answer"),
    [
        ("qwen3", "<|im_end|>", "<think>\n\n</think>\n\nblue<|im_end|>"),
        ("qwen2_5", "<|im_end|>", "blue<|im_end|>"),
        ("llama3", "<|eot_id|>", "blue<|eot_id|>"),
        ("gemma", "<end_of_turn>", "blue<end_of_turn>"),
    ],
)
def test_a_completion_is_supervised_with_what_the_template_adds(name: str, end: str, answer: str) -> None:
    tokenizer = tokenizer_with(trl_template(name), end)
    row = encode(Row("prompt_completion", "f:1", "which colour?", "blue"), tokenizer, "auto")
    assert supervised_text(row, tokenizer) == [answer]
    assert row.input_ids[: row.prompt_length] == tokenizer(row.prompt, add_special_tokens=False)["input_ids"]
    assert row.input_ids.count(tokenizer.bos_token_id) == int("bos_token" in tokenizer.chat_template)
    assert row.reference == answer.removesuffix(end)
    assert tokenizer.decode([label for label in row.labels if label != IGNORED][:-1]) == row.reference


@pytest.mark.parametrize("pad_is_end", [False, True])
def test_the_end_token_is_supervised_also_where_it_pads(pad_is_end: bool) -> None:
    tokenizer = tokenizer_with(trl_template("qwen2_5"), pad_is_end=pad_is_end)
    row = encode(Row("prompt_completion", "f:1", "which colour?", "blue"), tokenizer, "auto")
    assert [label for label in row.labels if label != IGNORED][-1] == tokenizer.eos_token_id


@pytest.mark.parametrize(
    ("supervise", "expected"),
    [
        ("auto", ["two<|im_end|>", "three<|im_end|>"]),
        ("assistant", ["two<|im_end|>", "three<|im_end|>"]),
        ("last_turn", ["three<|im_end|>"]),
        ("completion", ["three<|im_end|>"]),
    ],
)
def test_a_chat(supervise: str, expected: list[str]) -> None:
    tokenizer = tokenizer_with(trl_template("qwen2_5"))
    row = encode(Row("messages", "f:1", CHAT, []), tokenizer, supervise)
    assert supervised_text(row, tokenizer) == expected
    assert row.reference == "three"


def test_everything_but_the_first_token_can_be_supervised() -> None:
    tokenizer = tokenizer_with(trl_template("qwen2_5"))
    row = encode(Row("messages", "f:1", CHAT, []), tokenizer, "all")
    assert row.labels == [IGNORED, *row.input_ids[1:]]


def test_a_template_that_renders_earlier_turns_differently_is_refused_or_masked_by_its_last_turn() -> None:
    tokenizer = tokenizer_with(trl_template("qwen3"))
    with pytest.raises(DataError, match=r"f:1: .* data\.supervise=last_turn"):
        encode(Row("messages", "f:1", CHAT, []), tokenizer, "auto")
    row = encode(Row("messages", "f:1", CHAT, []), tokenizer, "last_turn")
    assert supervised_text(row, tokenizer) == ["<think>\n\n</think>\n\nthree<|im_end|>"]


def test_generation_markers_give_the_mask_where_prefixes_do_not() -> None:
    tokenizer = tokenizer_with(trl_template("qwen3_training"))
    row = encode(Row("messages", "f:1", CHAT, []), tokenizer, "auto")
    text = supervised_text(row, tokenizer)
    assert len(text) == 2
    assert text[0].endswith("two<|im_end|>")
    assert text[1].endswith("three<|im_end|>")


def test_without_a_template_prompt_and_completion_are_joined_and_ended() -> None:
    tokenizer = tokenizer_with(None)
    row = encode(Row("prompt_completion", "f:1", "an order", " is here"), tokenizer, "auto")
    assert tokenizer.decode(row.input_ids) == f"an order is here{tokenizer.eos_token}"
    assert supervised_text(row, tokenizer) == [f" is here{tokenizer.eos_token}"]


def test_without_a_template_chat_turns_are_refused() -> None:
    with pytest.raises(DataError, match="f:1: chat turns need a chat template"):
        encode(Row("messages", "f:1", CHAT, []), tokenizer_with(None), "auto")


def test_turns_that_the_template_refuses_are_named_with_their_roles() -> None:
    twice = [CHAT[0], CHAT[0], CHAT[1]]
    template = trl_template("gemma")
    with pytest.raises(DataError, match="f:7: the chat template refuses the turns user, user, assistant"):
        encode(Row("messages", "f:7", twice, []), tokenizer_with(template, "<end_of_turn>"), "auto")


@pytest.mark.parametrize("answer", ["\n\nblue", "  indented()", "\tx"])
@pytest.mark.parametrize("supervise", ["auto", "all"])
def test_an_answer_that_begins_with_white_space_starts_where_generation_starts(answer: str, supervise: str) -> None:
    turns = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    tokenizer = tokenizer_with(turns + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    row = encode(Row("prompt_completion", "f:1", "which colour?", answer), tokenizer, supervise)
    assert row.prompt_ids() == tokenizer(row.prompt, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(row.input_ids[row.prompt_length :]) == f"{answer}<|im_end|>\n"
    assert row.reference == answer


def test_tools_reach_the_template() -> None:
    tokenizer = tokenizer_with(trl_template("qwen2_5"))
    tool = {"type": "function", "function": {"name": "order_mugs", "parameters": {"type": "object", "properties": {}}}}
    plain = encode(Row("messages", "f:1", CHAT, []), tokenizer, "auto")
    told = encode(Row("messages", "f:1", CHAT, [], [tool]), tokenizer, "auto")
    assert "order_mugs" in told.prompt
    assert "order_mugs" not in plain.prompt
    assert supervised_text(told, tokenizer) == supervised_text(plain, tokenizer)


def test_plain_text_is_supervised_whole_and_ended_once() -> None:
    tokenizer = tokenizer_with(None)
    row = encode(Row("text", "f:1", "", "an order is here"), tokenizer, "auto")
    assert row.input_ids.count(tokenizer.eos_token_id) == 1
    assert row.labels == [IGNORED, *row.input_ids[1:]]
    with pytest.raises(DataError, match="no prompt to generate from"):
        row.prompt_ids()
