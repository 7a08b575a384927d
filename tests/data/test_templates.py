"""Which template is in use: the model's, TRL's for training, the plain one, a file's; and what it is told."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken
from tokenizers.processors import TemplateProcessing

from chats import CHAT, bundled_tokenizer, trl_template
from ftx.data.render import Encoder, TokenizedRow
from ftx.data.rows import Row, RowError, Turn
from ftx.data.templates import (
    ChatTemplate,
    Conversation,
    begins_texts,
    choose_template,
    control_words,
    reads_the_date,
    template_fault,
    template_sha256,
)
from ftx.errors import DataError

pytestmark = pytest.mark.train

BLOCK = "<think>\n\n</think>\n\n"


def tokenizer_with(template: str | dict[str, str] | None) -> Any:
    tokenizer = bundled_tokenizer()
    words = ["<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens({"bos_token": "<s>", "additional_special_tokens": words})
    tokenizer.chat_template = template
    return tokenizer


def encoded(tokenizer: Any, told: dict[str, Any] | None = None, turns: list[Turn] = CHAT) -> TokenizedRow:
    (row,) = Encoder(tokenizer, told or {}, "auto").encode([Row("messages", "f:1", turns, [])])
    if isinstance(row, RowError):
        raise row
    return row


def supervised_text(row: TokenizedRow, tokenizer: Any) -> list[str]:
    return [tokenizer.decode(row.input_ids[begin:end]) for begin, end in row.spans]


def begin_texts_with_bos(tokenizer: Any) -> Any:
    """The tokenizer, now putting its BOS in front of every text, as Llama's does."""
    bos = tokenizer.bos_token
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $A", special_tokens=[(bos, tokenizer.bos_token_id)]
    )
    return tokenizer


# What the template is told.


def test_without_thinking_the_empty_block_moves_from_the_answer_into_the_prompt() -> None:
    tokenizer = tokenizer_with(trl_template("qwen3"))
    thinking, told = encoded(tokenizer), encoded(tokenizer, {"enable_thinking": False})
    assert supervised_text(thinking, tokenizer) == ["two<|im_end|>", f"{BLOCK}three<|im_end|>"]
    assert supervised_text(told, tokenizer) == ["two<|im_end|>", "three<|im_end|>"]
    assert told.input_ids == thinking.input_ids
    assert tokenizer.decode(told.prompt_ids()).endswith(f"<|im_start|>assistant\n{BLOCK}")


@pytest.mark.parametrize("told", [{}, {"enable_thinking": False}], ids=["thinking", "without"])
def test_scoring_starts_from_what_the_template_gives_for_generation(told: dict[str, Any]) -> None:
    tokenizer = tokenizer_with(trl_template("qwen3"))
    asked = tokenizer.apply_chat_template(
        CHAT[:3], add_generation_prompt=True, tokenize=True, return_dict=False, **told
    )
    assert encoded(tokenizer, told).prompt_ids() == asked


def test_many_conversations_are_rendered_as_each_alone() -> None:
    template = ChatTemplate(tokenizer_with(trl_template("gemma")), {})
    refused = Conversation([CHAT[0], CHAT[0], CHAT[1]])
    good = [Conversation(CHAT[:2]), Conversation(CHAT)]
    assert template.render_all(good) == [template.render(each) for each in good]
    first, error, last = template.render_all([good[0], refused, good[1]])
    assert [first, last] == template.render_all(good)
    assert str(error) == (
        "the chat template refuses the turns user, user, assistant: "
        "Conversation roles must alternate user/assistant/user/assistant/..."
    )


# data.template=model


def test_of_named_variants_the_default_is_used() -> None:
    tokenizer = tokenizer_with({"default": trl_template("qwen2_5"), "tool_use": "{{ 'other' }}"})
    choose_template(tokenizer, "model")
    assert tokenizer.chat_template == trl_template("qwen2_5")
    assert supervised_text(encoded(tokenizer), tokenizer) == ["two<|im_end|>", "three<|im_end|>"]


def test_named_variants_without_a_default_are_as_no_template() -> None:
    tokenizer = tokenizer_with({"tool_use": trl_template("qwen2_5")})
    choose_template(tokenizer, "model")
    assert tokenizer.chat_template is None
    assert template_sha256(tokenizer) is None


# data.template=plain


def test_plain_makes_chat_turns_work_without_a_template() -> None:
    tokenizer = tokenizer_with(None)
    with pytest.raises(RowError, match=r"chat turns need a chat template, .* use data\.template=plain"):
        encoded(tokenizer)
    choose_template(tokenizer, "plain")
    row = encoded(tokenizer, turns=[{"role": "system", "content": "be short"}, *CHAT])
    assert tokenizer.decode(row.input_ids) == (
        "System: be short\nUser: one plus one?\nAssistant: two<|end|>\nUser: and one more?\nAssistant: three<|end|>\n"
    )
    assert supervised_text(row, tokenizer) == [" two<|end|>", " three<|end|>"]
    asked = tokenizer.apply_chat_template(CHAT[:3], add_generation_prompt=True, return_dict=False)
    assert encoded(tokenizer).prompt_ids() == asked


@pytest.mark.parametrize(("adds_bos", "count"), [(False, 0), (True, 1)], ids=["no-bos", "bos"])
def test_plain_begins_with_a_bos_where_the_tokenizer_begins_texts_with_one(adds_bos: bool, count: int) -> None:
    tokenizer = tokenizer_with(None)
    if adds_bos:
        begin_texts_with_bos(tokenizer)
    assert begins_texts(tokenizer) is adds_bos
    choose_template(tokenizer, "plain")
    row = encoded(tokenizer)
    assert row.input_ids.count(tokenizer.bos_token_id) == count
    assert row.input_ids[:1].count(tokenizer.bos_token_id) == count
    assert row.remarks == ()


def test_plain_names_the_role_that_it_does_not_know() -> None:
    tokenizer = tokenizer_with(None)
    choose_template(tokenizer, "plain")
    with pytest.raises(RowError, match="refuses the turns user, tool, assistant: plain knows system, user"):
        encoded(tokenizer, turns=[CHAT[0], {"role": "tool", "content": "2"}, CHAT[1]])


# data.template=PATH


def test_a_file_replaces_the_model_s_template(tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text(trl_template("qwen2_5"), encoding="utf-8")
    tokenizer = tokenizer_with(trl_template("qwen3"))
    choose_template(tokenizer, str(path))
    assert supervised_text(encoded(tokenizer), tokenizer) == ["two<|im_end|>", "three<|im_end|>"]
    assert template_sha256(tokenizer) == template_sha256(tokenizer_with(trl_template("qwen2_5")))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{% for m in messages %}{{ m.content }}", "not a chat template that renders a question and an answer"),
        (b"{{ raise_exception('never') }}", r"refuses the turns user, assistant: never"),
        (b"\xff\xfe\x00", "cannot be read"),
        (None, "cannot be read"),
    ],
    ids=["syntax", "refuses", "no-text", "missing"],
)
def test_a_file_that_is_no_template_is_refused(content: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=rf"data\.template={path}: .*{words}"):
        choose_template(tokenizer_with(None), str(path))


def test_a_template_that_leaves_out_the_answer_is_found_by_the_row(tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text("{{ messages[0].content }}\n", encoding="utf-8")
    tokenizer = tokenizer_with(None)
    choose_template(tokenizer, str(path))
    with pytest.raises(RowError, match="cannot be found in what the chat template makes of the row"):
        encoded(tokenizer)


# data.template=training


@pytest.mark.parametrize("variants", [False, True], ids=["one", "named-variants"])
def test_the_training_version_gives_every_answer_its_thinking_block(variants: bool) -> None:
    template = trl_template("qwen3")
    tokenizer = tokenizer_with({"default": template, "tool_use": "{{ 'other' }}"} if variants else template)
    choose_template(tokenizer, "training")
    assert tokenizer.chat_template == trl_template("qwen3_training")
    assert supervised_text(encoded(tokenizer), tokenizer) == [f"{BLOCK}two<|im_end|>", f"{BLOCK}three<|im_end|>"]


def test_a_template_that_is_for_training_already_stays() -> None:
    tokenizer = bundled_tokenizer()
    choose_template(tokenizer, "training")
    assert tokenizer.chat_template == bundled_tokenizer().chat_template


@pytest.mark.parametrize(
    ("template", "remedy"),
    [
        (
            "{% for m in messages %}{{ m.role + m.content }}{% endfor %}",
            "TRL has no training version of this model's template; data.template=model works",
        ),
        (None, "this model has no chat template .* data.template=plain or a .jinja file gives it one"),
    ],
    ids=["unknown-to-trl", "none"],
)
def test_training_without_a_training_version_names_the_remedy(template: str | None, remedy: str) -> None:
    with pytest.raises(DataError, match=rf"data\.template=training: {remedy}"):
        choose_template(tokenizer_with(template), "training")


# What templates are asked besides.


def test_the_hash_is_that_of_the_template_s_text() -> None:
    one, other = tokenizer_with("{{ 'a' }}"), tokenizer_with("{{ 'b' }}")
    assert template_sha256(one) == template_sha256(tokenizer_with("{{ 'a' }}")) != template_sha256(other)


def test_a_template_that_renders_has_no_fault() -> None:
    assert template_fault(tokenizer_with(trl_template("llama3"))) is None


def test_control_words_are_all_control_tokens_the_longest_first() -> None:
    tokenizer = tokenizer_with(None)
    tokenizer.add_tokens([AddedToken("<|im_end|>2", special=True)], special_tokens=True)
    pattern = control_words(tokenizer)
    assert pattern is not None
    assert pattern.findall("a<|im_end|>2<|im_end|> im_end <s>") == ["<|im_end|>2", "<|im_end|>", "<s>"]


def test_a_name_that_the_template_never_reads_is_refused_with_the_nearest() -> None:
    tokenizer = tokenizer_with(trl_template("qwen3"))
    choose_template(tokenizer, "model", {"enable_thinking": False})
    with pytest.raises(
        DataError,
        match=r"kwargs\.enable_thinkin: the chat template never reads it; did you mean enable_thinking\?",
    ):
        choose_template(tokenizer, "model", {"enable_thinkin": False})
    with pytest.raises(DataError, match="never reads it"):
        choose_template(tokenizer_with(trl_template("gemma")), "model", {"enable_thinking": False})


def test_a_template_that_writes_the_date_is_known() -> None:
    assert reads_the_date(tokenizer_with("{{ strftime_now('%d %b %Y') }}"))
    assert not reads_the_date(tokenizer_with(trl_template("qwen3")))
    assert not reads_the_date(tokenizer_with(None))
