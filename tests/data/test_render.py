"""The mask, on the ids that go into the batch: the answer and what ends it, nothing before, nothing after."""

from itertools import groupby
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.normalizers import Prepend
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from chats import CHAT, bundled_tokenizer, trl_template
from ftx.data.render import IGNORED, Encoder, TokenizedRow, labels_of
from ftx.data.rows import Row, RowError, Turn

pytestmark = pytest.mark.train

VERBATIM = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def tokenizer_with(template: str | None, end: str = "<|im_end|>") -> Any:
    """The bundled tokenizer with another chat template, its control words being single tokens."""
    tokenizer = bundled_tokenizer()
    words = ["<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<end_of_turn>"]
    tokenizer.add_special_tokens({"additional_special_tokens": [*words, "<start_of_turn>"], "bos_token": "<s>"})
    if template is not None:
        tokenizer.eos_token = end
    tokenizer.chat_template = template
    return tokenizer


def around_texts(tokenizer: Any, frame: str) -> Any:
    """The tokenizer, now putting control tokens around every text: "<s> $A" is what Llama's does."""
    added = [(word, tokenizer.convert_tokens_to_ids(word)) for word in frame.split() if word != "$A"]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=frame, special_tokens=added)
    return tokenizer


def encode(row: Row, tokenizer: Any, supervise: str = "auto", told: dict[str, Any] | None = None) -> TokenizedRow:
    (encoded,) = Encoder(tokenizer, told or {}, supervise).encode([row])
    if isinstance(encoded, RowError):
        raise encoded
    return encoded


def asked(prompt: Any, completion: Any) -> Row:
    return Row("prompt_completion", "f:1", prompt, completion)


def chat(*turns: Turn, tools: list[Any] | None = None) -> Row:
    return Row("messages", "f:1", list(turns), [], tools)


def says(role: str, content: str | None, **more: Any) -> Turn:
    return {"role": role, "content": content, **more}


def supervised_text(row: TokenizedRow, tokenizer: Any) -> list[str]:
    """The stretches of the labels that carry loss, as text."""
    carrying = groupby(row.labels, key=lambda label: label != IGNORED)
    return [tokenizer.decode(list(labels)) for carries, labels in carrying if carries]


# A completion.


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
    row = encode(asked("which colour?", "blue"), tokenizer)
    assert supervised_text(row, tokenizer) == [answer]
    assert row.reference == answer.removesuffix(end)
    assert row.answer_length == row.supervised
    question = [says("user", "which colour?")]
    assert row.prompt_ids() == tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=False)
    whole = [*question, says("assistant", "blue")]
    assert row.input_ids == tokenizer.apply_chat_template(whole, return_dict=False)


def test_an_end_token_that_is_only_marked_as_special_ends_an_answer() -> None:
    tokenizer = bundled_tokenizer()  # Gemma 3's <end_of_turn> is neither its eos nor named otherwise
    marked = [AddedToken(word, special=True) for word in ("<start_of_turn>", "<end_of_turn>")]
    tokenizer.add_tokens(marked, special_tokens=True)
    tokenizer.chat_template = trl_template("gemma")
    row = encode(chat(*CHAT), tokenizer)
    assert "<end_of_turn>" not in tokenizer.all_special_tokens
    assert supervised_text(row, tokenizer) == ["two<end_of_turn>", "three<end_of_turn>"]
    assert row.remarks == ()
    assert row.reference == "three"


# data.supervise

QUESTION, MORE = [says("system", "be short"), *CHAT[:3]], [CHAT[3], says("user", "sure?"), says("assistant", "yes")]
ROWS = {
    "text": asked("which colour?", "blue"),
    "turns": asked(QUESTION, MORE),
    "messages": chat(*CHAT),
    "messages, the user last": chat(*CHAT, says("user", "bye")),
}


@pytest.mark.parametrize(
    ("name", "supervise", "expected"),
    [
        ("text", "auto", ["blue"]),
        ("text", "completion", ["blue"]),
        ("text", "assistant", ["blue"]),
        ("text", "last_turn", ["blue"]),
        ("turns", "auto", ["three", "yes"]),
        ("turns", "completion", ["three", "yes"]),
        ("turns", "assistant", ["two", "three", "yes"]),
        ("turns", "last_turn", ["yes"]),
        ("messages", "auto", ["two", "three"]),
        ("messages", "completion", ["three"]),
        ("messages", "assistant", ["two", "three"]),
        ("messages", "last_turn", ["three"]),
        ("messages, the user last", "auto", ["two", "three"]),
        ("messages, the user last", "completion", ["three"]),
        ("messages, the user last", "assistant", ["two", "three"]),
        ("messages, the user last", "last_turn", ["three"]),
    ],
)
def test_which_answers_are_supervised(name: str, supervise: str, expected: list[str]) -> None:
    tokenizer = tokenizer_with(trl_template("qwen2_5"))
    row = encode(ROWS[name], tokenizer, supervise)
    assert supervised_text(row, tokenizer) == [f"{answer}<|im_end|>" for answer in expected]
    assert row.reference == expected[-1]
    assert tokenizer.decode(row.prompt_ids()).endswith("<|im_start|>assistant\n")
    assert row.input_ids[len(row.prompt_ids()) :][: row.answer_length] == tokenizer.encode(f"{expected[-1]}<|im_end|>")


@pytest.mark.parametrize("name", ROWS)
def test_everything_but_the_first_token_can_be_supervised(name: str) -> None:
    tokenizer = tokenizer_with(trl_template("qwen2_5"))
    row = encode(ROWS[name], tokenizer, "all")
    assert row.labels == [IGNORED, *row.input_ids[1:]]
    only = encode(ROWS[name], tokenizer, "last_turn")
    assert (row.input_ids, row.prompt_length, row.reference) == (only.input_ids, only.prompt_length, only.reference)


def test_labels_of() -> None:
    assert labels_of([5, 6, 7, 8, 9], [(1, 2), (3, 5)]) == [IGNORED, 6, IGNORED, 8, 9]


def test_a_cut_keeps_the_first_tokens_and_their_mask() -> None:
    row = TokenizedRow("f:1", [5, 6, 7, 8, 9], ((1, 2), (3, 5)), 3, 2, "x")
    assert (row.cut(4).input_ids, row.cut(4).spans, row.cut(4).supervised) == ([5, 6, 7, 8], ((1, 2), (3, 4)), 2)
    assert row.cut(3).labels == [IGNORED, 6, IGNORED]
    assert row.cut(9) == row


# Without a template.


@pytest.mark.parametrize("frame", ["$A", "<s> $A", "$A <|end|>", "<s> $A <|end|>"])
@pytest.mark.parametrize("supervise", ["auto", "all"])
def test_without_a_template_prompt_and_completion_are_joined_and_ended(frame: str, supervise: str) -> None:
    tokenizer = around_texts(tokenizer_with(None), frame)
    row = encode(asked("an order", " is here"), tokenizer, supervise)
    begun = "<s>" if "<s>" in frame else ""
    assert tokenizer.decode(row.input_ids) == f"{begun}an order is here<|end|>"
    assert tokenizer.decode(row.prompt_ids()) == f"{begun}an order"
    assert row.remarks == ()
    if supervise == "auto":
        assert supervised_text(row, tokenizer) == [" is here<|end|>"]
    else:
        assert row.labels == [IGNORED, *row.input_ids[1:]]


def test_without_a_template_an_empty_prompt_needs_a_bos_token_to_start_from() -> None:
    begun = around_texts(tokenizer_with(None), "<s> $A")
    row = encode(asked("", "is here"), begun)
    assert supervised_text(row, begun) == ["is here<|end|>"]
    assert row.prompt_ids() == [begun.bos_token_id]
    with pytest.raises(RowError, match=r"the prompt is empty, .* nothing to start an answer from: use rows of plain"):
        encode(asked("", "is here"), around_texts(tokenizer_with(None), "$A"))


def test_without_a_template_chat_turns_are_refused_with_the_remedy() -> None:
    with pytest.raises(RowError, match=r"chat turns need a chat template.*data\.template=plain or data\.template=FILE"):
        encode(chat(*CHAT), tokenizer_with(None))


@pytest.mark.parametrize("frame", ["$A", "<s> $A", "$A <|end|>", "<s> $A <|end|>"])
@pytest.mark.parametrize("text", ["an order is here", "<s>an order is here"])
@pytest.mark.parametrize("supervise", ["auto", "completion"])
def test_plain_text_is_supervised_whole_begun_and_ended_once(frame: str, text: str, supervise: str) -> None:
    tokenizer = around_texts(tokenizer_with(None), frame)
    row = encode(Row("text", "f:1", "", text), tokenizer, supervise)
    begun = "<s>" if "<s>" in frame + text else ""
    assert tokenizer.decode(row.input_ids) == f"{begun}an order is here<|end|>"
    assert row.labels == [IGNORED, *row.input_ids[1:]]
    with pytest.raises(RowError, match="f:1: plain text has no prompt to generate from"):
        row.prompt_ids()


# BOS


@pytest.mark.parametrize("frame", ["$A", "<s> $A"])
@pytest.mark.parametrize(("name", "count"), [("llama3", 1), ("gemma", 1), ("qwen2_5", 0), ("qwen3", 0)])
def test_a_template_s_bos_stands_once_whatever_the_tokenizer_adds(name: str, count: int, frame: str) -> None:
    tokenizer = around_texts(tokenizer_with(trl_template(name)), frame)
    row = encode(chat(*CHAT), tokenizer)
    assert row.input_ids.count(tokenizer.bos_token_id) == count
    assert row.input_ids[:1].count(tokenizer.bos_token_id) == count
    assert ("no bos" in row.remarks) is (count == 0 and frame == "<s> $A")


@pytest.mark.parametrize(
    ("template", "row"),
    [
        ("{{ bos_token }}" + trl_template("llama3"), chat(*CHAT)),
        (None, Row("text", "f:1", "", "<s><s>an order")),
        (None, asked("<s><s>an order", "blue")),
    ],
    ids=["template", "text", "prompt"],
)
def test_two_bos_are_refused(template: str | None, row: Row) -> None:
    with pytest.raises(RowError, match="begins with two BOS tokens"):
        encode(row, tokenizer_with(template))


def test_an_end_token_that_is_also_the_bos_may_stand_twice() -> None:
    tokenizer = tokenizer_with(None)
    tokenizer.bos_token = tokenizer.eos_token  # as GPT-2's
    row = encode(Row("text", "f:1", "", "<|end|><|end|>an order"), tokenizer)
    assert tokenizer.decode(row.input_ids) == "<|end|><|end|>an order<|end|>"


# Remarks


@pytest.mark.parametrize(
    ("name", "turns", "remarks"),
    [
        ("qwen2_5", CHAT, ()),
        ("glm4moe", CHAT, ("unended",)),
        ("qwen2_5", [*CHAT[:3], says("assistant", "it is written <|im_end|>")], ("control",)),
        ("qwen2_5", [says("user", "what is <|im_start|>?"), CHAT[1]], ("control",)),
        ("qwen3", [CHAT[0], says("assistant", "<think>\nhm\n</think>\n\ntwo"), *CHAT[2:]], ("reasoning",)),
        ("qwen3", [CHAT[0], says("assistant", "<think>\nhm\n</think>\n\ntwo")], ()),
        ("qwen3", [CHAT[0], says("assistant", "<think>hm</think>two")], ()),
    ],
)
def test_remarks(name: str, turns: list[Turn], remarks: tuple[str, ...]) -> None:
    assert encode(chat(*turns), tokenizer_with(trl_template(name))).remarks == remarks


def test_reasoning_that_the_template_drops_from_an_earlier_answer_is_not_supervised() -> None:
    tokenizer = tokenizer_with(trl_template("qwen3"))
    turns = [CHAT[0], says("assistant", "<think>\nhm\n</think>\n\ntwo"), *CHAT[2:]]
    expected = ["two<|im_end|>", "<think>\n\n</think>\n\nthree<|im_end|>"]
    assert supervised_text(encode(chat(*turns), tokenizer), tokenizer) == expected
    only = encode(chat(*turns[:2]), tokenizer)
    assert supervised_text(only, tokenizer) == ["<think>\nhm\n</think>\n\ntwo<|im_end|>"]


# Rows that a template refuses.


@pytest.mark.parametrize(
    ("roles", "reason"),
    [
        ("user, user, assistant", "Conversation roles must alternate"),
        ("system, user, assistant", "System role not supported"),
        ("user, judge, assistant", "Conversation roles must alternate"),
    ],
)
def test_only_the_row_that_the_template_refuses_is_refused(roles: str, reason: str) -> None:
    encoder = Encoder(tokenizer_with(trl_template("gemma"), "<end_of_turn>"), {}, "auto")
    bad = chat(*(says(role, "x") for role in roles.split(", ")))
    first, refused, last = encoder.encode([chat(*CHAT), bad, asked("a", "b")])
    assert isinstance(refused, RowError)
    assert str(refused).startswith(f"the chat template refuses the turns {roles}: {reason}")
    assert refused.kind == "the chat template refuses the turns"
    assert [first] == encoder.encode([chat(*CHAT)])
    assert [last] == encoder.encode([asked("a", "b")])


def test_kinds_of_rows_keep_their_order() -> None:
    tokenizer = tokenizer_with(trl_template("qwen2_5"))
    rows = [Row("text", "f:1", "", "x"), asked("a", "b"), Row("text", "f:3", "", "y"), chat(*CHAT)]
    encoder = Encoder(tokenizer, {}, "auto")
    assert encoder.encode(rows) == [one for row in rows for one in encoder.encode([row])]
    assert encoder.encode([]) == []


# Tools, and keys that only some turns have.

TOOL = {"type": "function", "function": {"name": "order_mugs", "parameters": {"type": "object", "properties": {}}}}
CALL = {"type": "function", "function": {"name": "order_mugs", "arguments": {"count": 2}}}


def test_tools_reach_the_template_and_carry_no_loss() -> None:
    tokenizer = tokenizer_with(trl_template("qwen2_5"))
    plain, told = encode(chat(*CHAT), tokenizer), encode(chat(*CHAT, tools=[TOOL]), tokenizer)
    assert "order_mugs" in tokenizer.decode(told.prompt_ids())
    assert "order_mugs" not in tokenizer.decode(plain.input_ids)
    assert supervised_text(told, tokenizer) == supervised_text(plain, tokenizer) == ["two<|im_end|>", "three<|im_end|>"]
    asked_ids = tokenizer.apply_chat_template(CHAT[:3], tools=[TOOL], add_generation_prompt=True, return_dict=False)
    assert told.prompt_ids() == asked_ids


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3"])
def test_a_row_renders_as_if_alone_whatever_keys_its_neighbours_have(name: str) -> None:
    tokenizer = tokenizer_with(trl_template(name))
    encoder = Encoder(tokenizer, {}, "auto")
    calling = [CHAT[0], says("assistant", None, tool_calls=[CALL]), says("tool", "7"), says("assistant", "ordered")]
    rows = [chat(*calling), chat(*CHAT), chat(*calling, tools=[TOOL]), chat(CHAT[0], says("assistant", "x", name="bo"))]
    together = encoder.encode(rows)
    assert together == [one for row in rows for one in encoder.encode([row])]
    texts = [tokenizer.decode(row.input_ids) for row in together if isinstance(row, TokenizedRow)]
    assert texts == [tokenizer.apply_chat_template(row.context, tools=row.tools, tokenize=False) for row in rows]
    assert [("tool_call>" in text, "None" in text) for text in texts] == [
        *[(True, False), (False, False), (True, False), (False, False)]
    ]


# What answers are made of.


@pytest.mark.parametrize("answer", ["\n\nblue", "  indented()", "\tx", "\n", " "])
@pytest.mark.parametrize("supervise", ["auto", "all"])
def test_an_answer_that_begins_with_white_space_starts_where_generation_starts(answer: str, supervise: str) -> None:
    tokenizer = tokenizer_with(VERBATIM)
    row = encode(asked("which colour?", answer), tokenizer, supervise)
    prompt = "<|im_start|>user\nwhich colour?<|im_end|>\n<|im_start|>assistant\n"
    assert row.prompt_ids() == tokenizer.encode(prompt)
    assert tokenizer.decode(row.input_ids) == f"{prompt}{answer}<|im_end|>\n"
    assert row.reference == answer
    if supervise == "auto":
        assert supervised_text(row, tokenizer) == [f"{answer}<|im_end|>"]


@pytest.mark.parametrize(
    "answer",
    [
        "👩\u200d👩\u200d👧 yes",
        "e\u0301te\u0301",
        "\u0301 first",
        "a\r\nb\r\n",
        "\ufeffx",
        "中文",
        "\x00",
        "{{ x }}",
        "<think>",
    ],
)
@pytest.mark.parametrize("question", ["which?", "👩\u200d👩\u200d👧", "a\u0301\r\n", ""])
def test_characters_of_several_tokens_are_supervised_whole(question: str, answer: str) -> None:
    tokenizer = tokenizer_with(VERBATIM)
    row = encode(asked(question, answer), tokenizer)
    assert supervised_text(row, tokenizer) == [f"{answer}<|im_end|>"]
    prompt = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    assert row.prompt_ids() == tokenizer.encode(prompt)
    assert row.input_ids == tokenizer.encode(f"{prompt}{answer}<|im_end|>\n")


def test_a_very_long_row_is_encoded_whole() -> None:
    tokenizer = tokenizer_with(VERBATIM)
    question, answer = "which of these? " * 20_000, "blue and green, " * 20_000
    row = encode(asked(question, answer), tokenizer)
    assert len(row.input_ids) > 100_000 > tokenizer.model_max_length
    assert supervised_text(row, tokenizer) == [f"{answer}<|im_end|>"]


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3", "llama3", "gemma"])
def test_an_empty_prompt_is_an_empty_turn(name: str) -> None:
    tokenizer = tokenizer_with(trl_template(name))
    row = encode(asked("", "blue"), tokenizer)
    nothing = [says("user", "")]
    assert row.prompt_ids() == tokenizer.apply_chat_template(nothing, add_generation_prompt=True, return_dict=False)
    assert row.reference is not None
    assert row.reference.endswith("blue")


# Tokens that would span the beginning of an answer.


def tokenizer_joining_line_ends() -> Any:
    """Every byte a token and two line ends one too, with GPT-2's rule for white space: the last before a word stays."""
    letters = sorted(ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate([*letters, "ĊĊ"])}
    tokenizer = Tokenizer(BPE(vocabulary, [("Ċ", "Ċ")]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = bundled_tokenizer().backend_tokenizer.decoder
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|eot_id|>", bos_token="<s>")
    fast.add_special_tokens({"additional_special_tokens": ["<|start_header_id|>", "<|end_header_id|>"]})
    return fast


BARE = "{% for m in messages %}{{ m.content }}{% endfor %}{{ '<|im_end|>' if not add_generation_prompt }}"


def test_an_answer_that_goes_on_with_the_prompt_s_last_word_has_tokens_of_its_own() -> None:
    tokenizer = tokenizer_with(BARE)
    row = encode(asked("an or", "der is here"), tokenizer)
    assert row.input_ids != tokenizer.encode("an order is here<|im_end|>")
    assert row.prompt_ids() == tokenizer.encode("an or")
    assert supervised_text(row, tokenizer) == ["der is here<|im_end|>"]


def test_an_answer_at_the_very_beginning_loses_the_token_that_nothing_predicts() -> None:
    tokenizer = tokenizer_with(BARE)
    row = encode(chat(says("assistant", "an order is here")), tokenizer)
    assert row.labels == [IGNORED, *row.input_ids[1:]]


def test_a_prompt_is_tokenized_as_for_generation_also_where_what_follows_would_split_it() -> None:
    tokenizer = tokenizer_joining_line_ends()
    tokenizer.chat_template = trl_template("llama3")
    row = encode(asked("which?", "blue"), tokenizer)
    question = [says("user", "which?")]
    generated = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=False)
    whole = tokenizer.apply_chat_template([*question, says("assistant", "blue")], return_dict=False)
    assert whole[: len(generated)] != generated
    assert row.prompt_ids() == generated
    assert supervised_text(row, tokenizer) == ["blue<|eot_id|>"]
    assert tokenizer.decode(row.input_ids) == tokenizer.decode(whole)


def test_a_tokenizer_that_cannot_be_given_prompt_and_answer_apart_is_an_error() -> None:
    tokenizer = tokenizer_joining_line_ends()
    tokenizer.backend_tokenizer.normalizer = Prepend("_")  # SentencePiece puts a blank in front of every text
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert supervised_text(encode(asked("which?", "blue"), tokenizer), tokenizer) == ["blue"]
    with pytest.raises(RowError, match="the prompt's tokens are not a prefix of the row's tokens"):
        encode(asked("which?\n", "\n\nblue"), tokenizer)


def test_a_template_whose_generation_prompt_is_no_prefix_is_an_error() -> None:
    tokenizer = tokenizer_with(VERBATIM.replace("{% if add_generation_prompt %}", "{% if add_generation_prompt %}>> "))
    with pytest.raises(RowError, match=r"the prompt that generation starts from .* is not a prefix of the row's text"):
        encode(chat(*CHAT), tokenizer)


UNSHOWN = says("assistant", "", tool_calls=[{"function": {"name": "order_mugs", "arguments": {}}}])
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize(
    "answer", [UNSHOWN, says("assistant", "two", reasoning_content="one and one")], ids=["tool call", "reasoning"]
)
def test_an_answer_that_the_template_does_not_show_whole_is_refused(answer: Turn) -> None:
    with pytest.raises(RowError, match="leaves out what the assistant says"):
        encode(chat(CHAT[0], answer), tokenizer_with(CHATML))


def test_tools_that_the_template_does_not_show_are_remarked() -> None:
    row = encode(chat(*CHAT, tools=[{"name": "order_mugs"}]), tokenizer_with(CHATML))
    assert row.remarks == ("tools",)


@pytest.mark.parametrize("mark", [{"weight": 0}, {"train": False}], ids=["weight", "train"])
def test_a_turn_that_its_author_left_out_carries_no_loss(mark: dict[str, Any]) -> None:
    tokenizer = tokenizer_with(CHATML)
    first, last = ({**CHAT[at], **mark} for at in (1, 3))
    earlier = encode(chat(CHAT[0], first, *CHAT[2:]), tokenizer)
    assert supervised_text(earlier, tokenizer) == ["three<|im_end|>"]
    later = encode(chat(*CHAT[:3], last), tokenizer)
    assert supervised_text(later, tokenizer) == ["two<|im_end|>"]
    assert later.reference == "two"
    with pytest.raises(RowError, match="has no assistant turn that carries loss"):
        encode(chat(CHAT[0], first), tokenizer)


def test_without_a_template_the_text_is_the_prompt_and_the_completion() -> None:
    """A tokenizer of words puts a space in front of each text: made into tokens alone, `4` would become ` 4`."""
    words = ["<end>", "?", "▁", "2", "+", "=", "4", "▁2", "▁4"]
    made = Tokenizer(
        BPE(vocab={word: at for at, word in enumerate(words)}, merges=[("▁", "2"), ("▁", "4")], unk_token="?")
    )
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", unk_token="?")
    row = encode(asked("2+2=", "4"), tokenizer)
    assert tokenizer.decode(row.input_ids) == "2+2=4<end>"
    assert supervised_text(row, tokenizer) == ["4<end>"]


def test_a_tool_call_that_the_template_leaves_out_is_refused_in_an_earlier_turn_too() -> None:
    with pytest.raises(RowError, match="leaves out what the assistant says"):
        encode(chat(CHAT[0], UNSHOWN, *CHAT[2:]), tokenizer_with(CHATML))
