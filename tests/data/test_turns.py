"""Where the answers stand in what a template renders, over every template that TRL ships, and SmolLM2's."""

import random
import re
from itertools import groupby
from typing import Any

import pytest

from chats import CHAT, TEMPLATES, bundled_tokenizer, trl_template
from ftx.data.render import Encoder, TokenizedRow
from ftx.data.rows import Row, RowError, Turn
from ftx.data.templates import ChatTemplate, Conversation, control_words
from ftx.data.turns import TurnFinder, answers_of, said

pytestmark = pytest.mark.train

SMOLLM2 = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""
BAR = "[|\uff5c]"  # DeepSeek writes its control words with a wide one
CONTROL = rf"<{BAR}[^|\uff5c<>'\"\n]{{1,30}}{BAR}>|<(?:start|end)_of_turn>|<\|turn>|<turn\|>|</s>|<end_of_utterance>"
NO_THOUGHT = r"the prompt that generation starts from \(.*<think>\\n'\) is not a prefix of the row's text"
NO_CONTENT = "the chat template leaves out what the assistant says"
NO_TEXT = "the chat template refuses the turns user, assistant, user, assistant: 'str object' has no attribute 'text'"
BLOCK = "<think>\n\n</think>\n\n"

# What carries loss in the two answers "two" and "three", or why the row is refused. Each was looked over by hand.
SUPERVISED: dict[str, list[str] | str] = {
    "smollm2": ["two<|im_end|>", "three<|im_end|>"],
    "cohere": ["two<|END_OF_TURN_TOKEN|>", "three<|END_OF_TURN_TOKEN|>"],
    "cohere_training": ["two<|END_OF_TURN_TOKEN|>", "three<|END_OF_TURN_TOKEN|>"],
    "cohere2": ["two<|END_RESPONSE|><|END_OF_TURN_TOKEN|>", "three<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"],
    "cohere2_training": ["two<|END_RESPONSE|><|END_OF_TURN_TOKEN|>", "three<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"],
    # Generation starts inside of a thought, and the row has none.
    "deepseek_r1_distill": NO_THOUGHT,
    "deepseek_r1_distill_training": NO_THOUGHT,
    "deepseekv3": NO_THOUGHT,
    "deepseekv3_training": NO_THOUGHT,
    "nemotron_3_5_lightning": NO_THOUGHT,
    "nemotron_3_5_lightning_training": NO_THOUGHT,
    "nemotron_3_nano": NO_THOUGHT,
    "nemotron_3_nano_training": NO_THOUGHT,
    "nemotron_3_super": NO_THOUGHT,
    "nemotron_3_super_training": NO_THOUGHT,
    "nemotron_3_ultra": NO_THOUGHT,
    "nemotron_3_ultra_training": NO_THOUGHT,
    "diffusion_gemma": ["two<turn|>", "three<turn|>"],
    "diffusion_gemma_training": ["two<turn|>", "three<turn|>"],
    "gemma": ["two<end_of_turn>", "three<end_of_turn>"],
    "gemma_training": ["two<end_of_turn>", "three<end_of_turn>"],
    "gemma3": ["two<end_of_turn>", "three<end_of_turn>"],
    "gemma3_training": ["two<end_of_turn>", "three<end_of_turn>"],
    "gemma4": ["two<turn|>", "three<turn|>"],
    "gemma4_v2": ["two<turn|>", "three<turn|>"],
    "gemma4_v3": ["two<turn|>", "three<turn|>"],
    "gemma4_v4": ["two<turn|>", "three<turn|>"],
    "gemma4_v5": ["two<turn|>", "three<turn|>"],
    # GLM ends an answer by the next turn's opening, which its own template leaves out of the last one.
    "glm4moe": ["\n<think></think>\ntwo", "\n<think></think>\nthree"],
    "glm4moe_training": ["\n<think></think>\ntwo<|user|>", "\n<think></think>\nthree<|user|>"],
    # The answer names its channel or recipient itself: generation starts before that.
    "gptoss": ["<|channel|>final<|message|>two<|end|>", "<|channel|>final<|message|>three<|return|>"],
    "gptoss_training": ["<|channel|>final<|message|>two<|end|>", "<|channel|>final<|message|>three<|return|>"],
    "muse_glimmer": [" to=user<|message|>two<|eot|>", " to=user<|message|>three<|eot|>"],
    "muse_glimmer_training": [" to=user<|message|>two<|eot|>", " to=user<|message|>three<|eot|>"],
    # Templates for pictures, which take content in parts.
    "idefics3": NO_CONTENT,
    "idefics3_training": NO_CONTENT,
    "smolvlm": NO_CONTENT,
    "smolvlm_training": NO_CONTENT,
    "llava_next": NO_TEXT,
    "llava_next_training": NO_TEXT,
    "lfm2": ["two<|im_end|>", "three<|im_end|>"],
    "lfm2_training": ["two<|im_end|>", "three<|im_end|>"],
    "lfm2_v2": ["two<|im_end|>", "three<|im_end|>"],
    "lfm2_v2_training": ["two<|im_end|>", "three<|im_end|>"],
    "lfm2_2_5": ["two<|im_end|>", "three<|im_end|>"],
    "lfm2_2_5_v2": ["two<|im_end|>", "three<|im_end|>"],
    "lfm2_2_5_vl": ["two<|im_end|>", "three<|im_end|>"],
    "llama3": ["two<|eot_id|>", "three<|eot_id|>"],
    "llama3_training": ["two<|eot_id|>", "three<|eot_id|>"],
    "llama3_1": ["two<|eot_id|>", "three<|eot_id|>"],
    "llama3_2": ["two<|eot_id|>", "three<|eot_id|>"],
    # The whole conversation is ended by a token of its own.
    "phi3": ["two<|end|>", "three<|end|>\n<|endoftext|>"],
    "phi3_training": ["two<|end|>", "three<|end|>\n<|endoftext|>"],
    "phi3_5": ["two<|end|>", "three<|end|>\n<|endoftext|>"],
    "phi3_5_training": ["two<|end|>", "three<|end|>\n<|endoftext|>"],
    "qwen2_5": ["two<|im_end|>", "three<|im_end|>"],
    "qwen2_5_training": ["two<|im_end|>", "three<|im_end|>"],
    "qwen2_5_vl": ["two<|im_end|>", "three<|im_end|>"],
    "qwen2_5_vl_training": ["two<|im_end|>", "three<|im_end|>"],
    # Only the last answer has a thinking block; the training versions give one to each.
    "qwen3": ["two<|im_end|>", f"{BLOCK}three<|im_end|>"],
    "qwen3_training": [f"{BLOCK}two<|im_end|>", f"{BLOCK}three<|im_end|>"],
    # The block is in what generation starts from: whole, or its opening.
    "qwen3_5_nothink": ["two<|im_end|>", "three<|im_end|>"],
    "qwen3_5_nothink_training": ["two<|im_end|>", "three<|im_end|>"],
    "qwen3_5_think": ["two<|im_end|>", "\n</think>\n\nthree<|im_end|>"],
    "qwen3_5_think_training": ["\n</think>\n\ntwo<|im_end|>", "\n</think>\n\nthree<|im_end|>"],
    "qwen3_6": ["two<|im_end|>", "\n</think>\n\nthree<|im_end|>"],
    "qwen3_6_training": ["\n</think>\n\ntwo<|im_end|>", "\n</think>\n\nthree<|im_end|>"],
    "qwen3_8": ["\n</think>\n\ntwo<|im_end|>", "\n</think>\n\nthree<|im_end|>"],
    "qwen3_8_training": ["\n</think>\n\ntwo<|im_end|>", "\n</think>\n\nthree<|im_end|>"],
    "qwen3_instruct_2507": ["two<|im_end|>", "three<|im_end|>"],
    "qwen3_instruct_2507_training": ["two<|im_end|>", "three<|im_end|>"],
    "qwen3_vl": ["two<|im_end|>", "three<|im_end|>"],
    "qwen3_vl_training": ["two<|im_end|>", "three<|im_end|>"],
}
USABLE = [name for name, answers in SUPERVISED.items() if isinstance(answers, list)]

# What TRL's markers put into the mask though generation starts behind it. Elsewhere the two masks begin alike.
MARKED_BEFORE = {
    "gptoss_training": "<|start|>assistant",
    "muse_glimmer_training": "<|start|>assistant",
    "qwen2_5_training": "\n",
    "qwen3_5_nothink_training": BLOCK,
    "qwen3_5_think_training": "<think>\n",
    "qwen3_6_training": "<think>\n",
    "qwen3_8_training": "<think>\n",
}
# Where the markers also take in the line end behind the end token, which generation never reaches.
MARKED_BEHIND = {
    *("phi3_training", "phi3_5_training"),
    *("diffusion_gemma_training", "gemma_training", "gemma3_training", "lfm2_training", "lfm2_v2_training"),
    *("qwen2_5_training", "qwen2_5_vl_training", "qwen3_training", "qwen3_vl_training", "qwen3_8_training"),
    *("qwen3_5_nothink_training", "qwen3_5_think_training", "qwen3_6_training", "qwen3_instruct_2507_training"),
}


def tokenizer_for(name: str) -> Any:
    """The bundled tokenizer with a template whose control words are single tokens."""
    template = SMOLLM2 if name == "smollm2" else trl_template(name)
    tokenizer = bundled_tokenizer()
    words = sorted(set(re.findall(CONTROL, template)))
    tokenizer.add_special_tokens({"bos_token": "<s>", "eos_token": "<|endoftext|>", "additional_special_tokens": words})
    tokenizer.chat_template = template
    return tokenizer


def encoded(tokenizer: Any, turns: list[Turn], supervise: str = "auto") -> TokenizedRow:
    (row,) = Encoder(tokenizer, {}, supervise).encode([Row("messages", "f:1", turns, [])])
    if isinstance(row, RowError):
        raise row
    return row


def supervised_text(row: TokenizedRow, tokenizer: Any) -> list[str]:
    """The stretches of the labels that carry loss, as text."""
    carrying = groupby(row.labels, key=lambda label: label >= 0)
    return [tokenizer.decode(list(labels)) for carries, labels in carrying if carries]


def test_the_table_has_every_template_that_trl_ships() -> None:
    assert {path.stem for path in TEMPLATES.glob("*.jinja")} == set(SUPERVISED) - {"smollm2"}


@pytest.mark.parametrize("name", USABLE)
def test_an_answer_is_supervised_with_what_the_template_adds_to_it(name: str) -> None:
    tokenizer = tokenizer_for(name)
    row = encoded(tokenizer, CHAT)
    assert supervised_text(row, tokenizer) == SUPERVISED[name]
    assert row.prompt_ids() == tokenizer.apply_chat_template(CHAT[:3], add_generation_prompt=True, return_dict=False)


@pytest.mark.parametrize("name", [name for name in SUPERVISED if name not in USABLE])
def test_a_template_that_cannot_be_masked_soundly_is_refused(name: str) -> None:
    with pytest.raises(RowError, match=str(SUPERVISED[name])):
        encoded(tokenizer_for(name), CHAT)


@pytest.mark.parametrize("name", [name for name in SUPERVISED if name.startswith("nemotron")])
def test_the_remedy_that_a_refusal_names_helps(name: str) -> None:
    tokenizer = tokenizer_for(name)
    (row,) = Encoder(tokenizer, {"enable_thinking": False}, "auto").encode([Row("messages", "f:1", CHAT, [])])
    assert isinstance(row, TokenizedRow)
    assert supervised_text(row, tokenizer) == ["two<|im_end|>", "three<|im_end|>"]


@pytest.mark.parametrize("name", [name for name in USABLE if name.endswith("_training")])
def test_the_mask_is_that_of_the_generation_markers(name: str) -> None:
    tokenizer = tokenizer_for(name)
    row = encoded(tokenizer, CHAT)
    marked = tokenizer.apply_chat_template(CHAT, return_dict=True, return_assistant_tokens_mask=True)
    assert row.input_ids == marked["input_ids"]
    mask = marked["assistant_masks"]
    for begin, end in row.spans:
        assert all(mask[begin:end])
        first = next(at + 1 for at in range(begin - 1, -1, -1) if not mask[at])
        behind = next((at for at in range(end, len(mask)) if not mask[at]), len(mask))
        assert tokenizer.decode(row.input_ids[first:begin]) == MARKED_BEFORE.get(name, "")
        assert tokenizer.decode(row.input_ids[end:behind]) == (
            "\n" if name in MARKED_BEHIND and end < len(mask) else ""
        )
        mask[first:behind] = [0] * (behind - first)
    assert not any(mask)


@pytest.mark.parametrize("name", USABLE)
def test_a_turn_is_found_by_its_content_where_it_is_found_by_what_comes_before(name: str) -> None:
    tokenizer = tokenizer_for(name)
    template = ChatTemplate(tokenizer, {})
    finder = TurnFinder(template, control_words(tokenizer))
    conversation = Conversation(CHAT)
    text = template.render(conversation)
    compared = []
    for index in answers_of(CHAT):
        start = template.render(Conversation(CHAT[:index]), generation=True)
        until = template.render(Conversation(CHAT[: index + 1]))
        if text.startswith(start) and text.startswith(until):
            begin, end = finder._located(conversation, index, text, start)
            assert text[begin:end] == text[len(start) : len(until)]
            assert begin == len(start)
            compared.append(index)
    assert 3 in compared


@pytest.mark.parametrize("content", ["a", "e", "|", ">", "", "final", "<|start|>assistant", "assistant"])
def test_what_the_turn_before_says_does_not_hide_where_an_answer_begins(content: str) -> None:
    tokenizer = tokenizer_for("gptoss")
    row = encoded(tokenizer, [{"role": "user", "content": content}, *CHAT[1:]])
    assert supervised_text(row, tokenizer) == SUPERVISED["gptoss"]


@pytest.mark.parametrize(
    ("name", "end"),
    [("smollm2", "<|im_end|>"), ("qwen2_5", "<|im_end|>"), ("qwen3", "<|im_end|>"), ("llama3", "<|eot_id|>")],
)
def test_a_greeting_is_supervised_without_what_the_template_puts_in_front_of_it(name: str, end: str) -> None:
    tokenizer = tokenizer_for(name)
    greeted = encoded(tokenizer, [{"role": "assistant", "content": "good day"}, *CHAT[:2]])
    assert supervised_text(greeted, tokenizer)[0] == f"good day{end}"
    alone = encoded(tokenizer, [{"role": "assistant", "content": "good day"}])
    assert supervised_text(alone, tokenizer) == [f"good day{end}"]
    assert tokenizer.decode(alone.prompt_ids()).strip().endswith("assistant" if end == "<|im_end|>" else "_header_id|>")


def test_what_is_added_to_an_answer_is_found_where_a_token_ends_the_whole_conversation() -> None:
    tokenizer = tokenizer_for("qwen2_5")
    tokenizer.chat_template = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ '(final)' if m.role == 'assistant' }}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% else %}<|endoftext|>{% endif %}"""
    added = ["(final)two<|im_end|>", "(final)three<|im_end|>"]
    assert supervised_text(encoded(tokenizer, [*CHAT, {"role": "user", "content": "bye"}]), tokenizer) == added
    assert supervised_text(encoded(tokenizer, CHAT), tokenizer) == [added[0], f"{added[1]}\n<|endoftext|>"]


CALL = {"type": "function", "function": {"name": "order_mugs", "arguments": {"count": 2}}}
TOOL_CHAT: list[Turn] = [
    {"role": "user", "content": "two mugs, please"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "7"},
    {"role": "assistant", "content": "ordered"},
    *CHAT[2:],
]
XML_CALL = '<tool_call>\n{"name": "order_mugs", "arguments": {"count": 2}}\n</tool_call><|im_end|>'


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen2_5", [XML_CALL, "ordered<|im_end|>", "three<|im_end|>"]),
        ("qwen3", [XML_CALL, "ordered<|im_end|>", f"{BLOCK}three<|im_end|>"]),
        (
            "llama3_1",
            ['{"name": "order_mugs", "parameters": {"count": 2}}<|eot_id|>', "ordered<|eot_id|>", "three<|eot_id|>"],
        ),
        (
            "gptoss",
            [
                ' to=functions.order_mugs<|channel|>commentary json<|message|>{"count": 2}<|call|>',
                "<|channel|>final<|message|>ordered<|end|>",
                "<|channel|>final<|message|>three<|return|>",
            ],
        ),
    ],
)
def test_a_tool_call_without_content_is_an_answer(name: str, expected: list[str]) -> None:
    tokenizer = tokenizer_for(name)
    row = encoded(tokenizer, TOOL_CHAT)
    assert supervised_text(row, tokenizer) == expected


CALLS = {"tool_calls": [{"function": {"name": "order_mugs", "arguments": {}}}]}


@pytest.mark.parametrize(
    ("turn", "piece", "expected"),
    [
        ({"content": "two"}, "two<|im_end|>", "whole"),
        ({"content": " two\n"}, "two<|im_end|>", "whole"),
        ({"content": "two"}, "three<|im_end|>", "lost"),
        ({"content": "<think>so</think>two"}, "<think>\nso\n</think>\n\ntwo", "whole"),
        ({"content": "<think>so</think>two"}, "two<|im_end|>", "without reasoning"),
        ({"content": "two", "reasoning_content": "so"}, "two<|im_end|>", "without reasoning"),
        ({"content": None} | CALLS, "<tool_call>order_mugs", "whole"),
        ({"content": ""} | CALLS, "<|im_end|>", "lost"),
    ],
)
def test_said(turn: dict[str, Any], piece: str, expected: str) -> None:
    assert said({"role": "assistant", **turn}, piece) == expected


USERS, ASSISTANTS = "§", "¤"  # each of a side's words holds its mark, and no other text does
ODD = [
    *("a", "e", "|", ">", "<", "{{ x }}", "{% if %}", "\\n", "\n", "\r\n", "\t", "  ", "\u00a0", "é", "e\u0301"),
    *("assistant", "user\n", "model", "im_end", "Ω≈", "中文", "עברית", "'", '"', "0", "```py\n", "\u200b", "### "),
    *("[INST]", "👩\u200d👩\u200d👧", "Assistant:", "<think", "/think>"),
]


def conversation(random_: random.Random) -> list[Turn]:
    """Two to eight turns, of the user and the assistant by turns, with an answer among them."""
    turns: list[Turn] = []
    for role, mark in [("user", USERS), ("assistant", ASSISTANTS)] * 4:
        words, spaces = "".join(random_.choices(ODD, k=random_.randint(0, 6))), random_.choice(["", "", " ", "\n"])
        turns.append({"role": role, "content": f"{spaces}{mark}{words}{mark}{spaces}"})
    return turns[: random_.randint(2, 8)]


@pytest.mark.parametrize("name", ["smollm2", "qwen2_5", "qwen3", "llama3", "gemma"])
def test_whatever_is_said_the_answers_are_supervised_and_nothing_of_the_user(name: str) -> None:
    tokenizer = tokenizer_for(name)
    added = re.compile(f"{CONTROL}|</?think>|\\s")
    random_ = random.Random(20)
    for _ in range(40):
        turns = conversation(random_)
        row = encoded(tokenizer, turns)
        pieces = supervised_text(row, tokenizer)
        answers = [turn["content"].strip() for turn in turns if turn["role"] == "assistant"]
        for answer, piece in zip(answers, pieces, strict=True):
            assert piece.count(answer) == 1
            assert not added.sub("", piece.replace(answer, ""))
        outside = [token for token, label in zip(row.input_ids, row.labels, strict=True) if label < 0]
        assert ASSISTANTS not in tokenizer.decode(outside)
        assert USERS not in "".join(pieces)
