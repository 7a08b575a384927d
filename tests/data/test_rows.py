"""What makes a record a row: its kind by its fields, its fields by their types, and every refusal in its words."""

import json
from datetime import date
from typing import Any

import pytest

from ftx.config.schema import ColumnsConfig
from ftx.data.rows import Row, RowError, RowReader

ASK = {"role": "user", "content": "a"}
ANSWER = {"role": "assistant", "content": "b"}
CALL = {"function": {"name": "f", "arguments": {}}}


def row(fields: Any, columns: ColumnsConfig | None = None, group_by: str | None = None) -> Row:
    return RowReader(columns or ColumnsConfig(), group_by).row("x:1", fields)


def refused(fields: Any, columns: ColumnsConfig | None = None, group_by: str | None = None) -> RowError:
    with pytest.raises(RowError) as caught:
        row(fields, columns, group_by)
    return caught.value


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(
            {"prompt": "a", "completion": " b\n", "id": 7},
            Row("prompt_completion", "x:1", "a", " b\n"),
            id="prompt and completion, to the letter",
        ),
        pytest.param({"prompt": "", "completion": "b"}, Row("prompt_completion", "x:1", "", "b"), id="an empty prompt"),
        pytest.param(
            {"prompt": [ASK], "completion": [ANSWER]},
            Row("prompt_completion", "x:1", [ASK], [ANSWER]),
            id="prompt and completion as turns",
        ),
        pytest.param({"messages": [ASK, ANSWER]}, Row("messages", "x:1", [ASK, ANSWER], []), id="a chat"),
        pytest.param(
            {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
            Row("messages", "x:1", [ASK, ANSWER], []),
            id="from and value",
        ),
        pytest.param(
            {"messages": [ASK, {"role": "assistant", "content": "c"}], "conversations": [ASK, ANSWER]},
            Row("messages", "x:1", [ASK, {"role": "assistant", "content": "c"}], []),
            id="messages before conversations",
        ),
        pytest.param({"text": "a b"}, Row("text", "x:1", "", "a b"), id="plain text"),
    ],
)
def test_a_row_is_of_the_kind_that_its_fields_say(fields: dict[str, Any], expected: Row) -> None:
    assert row(fields) == expected


@pytest.mark.parametrize(
    ("speaker", "role"),
    [
        ("human", "user"),
        ("user", "user"),
        ("gpt", "assistant"),
        ("assistant", "assistant"),
        ("bot", "assistant"),
        ("chatgpt", "assistant"),
        ("model", "assistant"),
        ("system", "system"),
        ("tool", "tool"),
        ("function_response", "tool"),
        ("observation", "tool"),
    ],
)
def test_every_speaker_has_a_role(speaker: str, role: str) -> None:
    turns = row({"conversations": [{"from": speaker, "value": "a", "weight": 1}, ANSWER]}).context
    assert turns[0] == {"role": role, "content": "a", "weight": 1}


@pytest.mark.parametrize(
    ("columns", "fields", "kind", "context", "target"),
    [
        pytest.param(
            ColumnsConfig(prompt="question", completion="answer"),
            {"question": "a", "answer": "b", "prompt": 3, "text": "t", "messages": []},
            "prompt_completion",
            "a",
            "b",
            id="over the usual names of other kinds",
        ),
        pytest.param(
            ColumnsConfig(prompt="text"),
            {"text": "a", "completion": "b"},
            "prompt_completion",
            "a",
            "b",
            id="the usual name of another kind",
        ),
        pytest.param(
            ColumnsConfig(text="prompt"),
            {"prompt": "a", "completion": "b"},
            "text",
            "",
            "a",
            id="one of two columns as plain text",
        ),
        pytest.param(
            ColumnsConfig(messages="conversations"),
            {"conversations": [ASK, ANSWER], "text": "t"},
            "messages",
            [ASK, ANSWER],
            [],
            id="the other usual name of chats",
        ),
        pytest.param(
            ColumnsConfig(text="unused"),
            {"prompt": "a", "completion": "b", "text": "t"},
            "prompt_completion",
            "a",
            "b",
            id="one kind named away",
        ),
    ],
)
def test_columns_that_one_names_win(
    columns: ColumnsConfig, fields: dict[str, Any], kind: str, context: Any, target: Any
) -> None:
    found = row(fields, columns)
    assert (found.kind, found.context, found.target) == (kind, context, target)


def test_a_chat_column_of_ones_own_is_the_only_one() -> None:
    error = refused({"conversations": [ASK, ANSWER]}, ColumnsConfig(messages="dialogue"))
    assert str(error).startswith("has the fields conversations; expected prompt and completion, or dialogue, or text")


@pytest.mark.parametrize(
    ("fields", "message", "kind"),
    [
        pytest.param(["a", "b"], 'is a list (["a", "b"]), expected an object', "not an object", id="a list"),
        pytest.param("a", 'is text ("a"), expected an object', "not an object", id="text"),
        pytest.param(
            {"question": "a", "answer": "b"},
            "has the fields question, answer; expected prompt and completion, or messages, or text "
            "(data.columns={prompt: YOUR_COLUMN} names yours)",
            "none of the expected fields",
            id="other fields",
        ),
        pytest.param(
            {},
            "has the fields none; expected prompt and completion, or messages, or text "
            "(data.columns={prompt: YOUR_COLUMN} names yours)",
            "none of the expected fields",
            id="no fields",
        ),
        pytest.param(
            {"prompt": "a", "completion": "b", "text": "c"},
            "has prompt and text, which are different kinds of row: keep one, or give the other another name in "
            "data.columns (data.columns.text=unused, say)",
            "several kinds of row in one",
            id="two kinds in one",
        ),
        pytest.param({"prompt": "a"}, "has no field completion", "no field completion", id="no completion"),
        pytest.param({"completion": "b"}, "has no field prompt", "no field prompt", id="no prompt"),
        pytest.param(
            {"prompt": [ASK]}, "has no field completion", "no field completion", id="turns without a completion"
        ),
        pytest.param(
            {"prompt": "a", "completion": ""},
            "completion is empty, so there is nothing to learn",
            "completion is empty",
            id="an empty completion",
        ),
        pytest.param(
            {"prompt": "a", "completion": " \n\t\u3000"},
            "completion is empty, so there is nothing to learn",
            "completion is empty",
            id="a completion of white space",
        ),
        pytest.param(
            {"text": " "}, "text is empty, so there is nothing to learn", "text is empty", id="a text of white space"
        ),
        pytest.param(
            {"messages": "a"},
            'messages is text ("a"), expected a list of chat turns',
            "messages is not a list",
            id="a chat that is text",
        ),
        pytest.param({"messages": []}, "messages has no turns", "messages has no turns", id="a chat without turns"),
        pytest.param(
            {"messages": [ASK]},
            "messages has no assistant turn, so there is nothing to learn",
            "messages has no assistant turn",
            id="a chat without an answer",
        ),
        pytest.param(
            {"prompt": [ASK], "completion": [ASK]},
            "completion has no assistant turn, so there is nothing to learn",
            "completion has no assistant turn",
            id="a completion without an answer",
        ),
        pytest.param(
            {"prompt": [ASK], "completion": "b"},
            'completion is text ("b"), expected a list of chat turns',
            "completion is not a list",
            id="turns answered by text",
        ),
        pytest.param(
            {"messages": [ASK, "b"]},
            'messages, turn 2 is text ("b"), expected an object with role and content',
            "a turn is no object",
            id="a turn that is text",
        ),
        pytest.param(
            {"messages": [{"content": "a"}, ANSWER]},
            "messages, turn 1: role is missing, expected text",
            "a turn's role is not text",
            id="a turn without a role",
        ),
        pytest.param(
            {"messages": [{"role": "user"}, ANSWER]},
            "messages, turn 1: content is missing, expected text",
            "a turn's content is not text",
            id="a turn without content",
        ),
        pytest.param(
            {"messages": [{"role": "user", "content": [{"type": "text"}]}, ANSWER]},
            'messages, turn 1: content is a list ([{"type": "text"}]), expected text',
            "a turn's content is not text",
            id="content in parts",
        ),
        pytest.param(
            {"messages": [ASK, {"role": "assistant", "content": " "}]},
            "messages, turn 2: the assistant's content is empty",
            "an assistant's turn is empty",
            id="an empty answer",
        ),
        pytest.param(
            {"messages": [ASK, {"role": "assistant", "content": "", "name": "x", "tool_calls": []}]},
            "messages, turn 2: the assistant's content is empty",
            "an assistant's turn is empty",
            id="an empty answer with keys that say nothing",
        ),
        pytest.param(
            {"messages": [ASK, {"role": "assistant", "content": None, "tool_calls": None}]},
            "messages, turn 2: content is null (null), expected text",
            "a turn's content is not text",
            id="null content and no call",
        ),
        pytest.param(
            {"conversations": [{"from": "alien", "value": "a"}]},
            'conversations, turn 1: from is text ("alien"), expected one of human, user, gpt, assistant, bot, chatgpt, '
            "model, system, tool, function_response, observation",
            "an unknown speaker",
            id="an unknown speaker",
        ),
        pytest.param(
            {"conversations": [{"from": ["gpt"], "value": "a"}]},
            'conversations, turn 1: from is a list (["gpt"]), expected one of human, user, gpt, assistant, bot, '
            "chatgpt, model, system, tool, function_response, observation",
            "an unknown speaker",
            id="a speaker that is a list",
        ),
        pytest.param(
            {"conversations": [{"from": "human"}, ANSWER]},
            "conversations, turn 1: content is missing, expected text",
            "a turn's content is not text",
            id="a speaker who says nothing",
        ),
        pytest.param(
            {"messages": [ASK, ANSWER], "tools": "{}"},
            'tools is text ("{}"), expected a list',
            "tools is not a list",
            id="tools that are text",
        ),
    ],
)
def test_what_is_no_row_is_said_with_what_was_found_and_expected(fields: Any, message: str, kind: str) -> None:
    error = refused(fields)
    assert (str(error), error.kind) == (message, kind)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (7, "a number (7)"),
        (0.5, "a number (0.5)"),
        (True, "a truth value (true)"),
        (None, "null (null)"),
        ({"a": 1}, 'an object ({"a": 1})'),
        (date(2026, 12, 1), 'date ("2026-12-01")'),
        ("x" * 50, f'text ("{"x" * 39})'),
    ],
    ids=["whole number", "number", "truth value", "null", "object", "date", "long"],
)
def test_types_are_said_in_words(value: Any, words: str) -> None:
    if isinstance(value, str):
        assert f"messages is {words}, expected" in str(refused({"messages": value}))
    else:
        assert str(refused({"prompt": "a", "completion": value})) == f"completion is {words}, expected text"


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            {"prompt": "a", "completion": "b"},
            {"messages": [ASK, ANSWER]},
            "is a row of chat turns in a file of prompt and completion: put them into files of their own",
        ),
        (
            {"text": "a"},
            {"prompt": "a", "completion": "b"},
            "is a row of prompt and completion in a file of plain text: put them into files of their own",
        ),
    ],
    ids=["a chat among prompts", "a prompt among texts"],
)
def test_a_file_holds_one_kind_of_row(first: Any, second: Any, message: str) -> None:
    reader = RowReader(ColumnsConfig())
    reader.row("x:1", first)
    with pytest.raises(RowError) as caught:
        reader.row("x:2", second)
    assert (str(caught.value), caught.value.kind) == (message, "another kind of row")
    assert RowReader(ColumnsConfig()).row("y:1", second).where == "y:1"


@pytest.mark.parametrize("content", [{"content": None}, {"content": ""}, {}], ids=["null", "empty", "no key"])
@pytest.mark.parametrize("said", [{"tool_calls": [CALL]}, {"reasoning_content": "hm"}], ids=["a call", "reasoning"])
def test_a_turn_may_say_something_else_than_content(content: dict[str, Any], said: dict[str, Any]) -> None:
    turn = {"role": "assistant", **content, **said}
    assert row({"messages": [ASK, turn]}).context == [ASK, turn]


def test_a_row_has_the_tools_it_comes_with() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"default": None}}}]
    assert row({"messages": [ASK, ANSWER], "tools": tools}).tools == tools
    assert row({"messages": [ASK, ANSWER], "tools": None}).tools is None
    assert row({"prompt": [ASK], "completion": [ANSWER], "tools": tools}).tools == tools


def test_turns_keep_exactly_the_keys_they_have() -> None:
    named = {**ANSWER, "name": "x", "tool_calls": []}
    assert row({"messages": [ASK, named]}).context == [ASK, named]
    assert set(row({"messages": [ASK, ANSWER]}).context[1]) == {"role", "content"}


@pytest.mark.parametrize(
    ("value", "group"), [("a", '"a"'), ("1", '"1"'), (1, "1"), (0.5, "0.5")], ids=["text", "digits", "number", "part"]
)
def test_the_group_tells_text_and_numbers_apart(value: Any, group: str) -> None:
    assert row({"text": "t", "doc": value}, group_by="doc").group == group


@pytest.mark.parametrize(
    ("fields", "message", "kind"),
    [
        ({"text": "t"}, "has no field doc", "no field doc"),
        (
            {"text": "t", "doc": None},
            "doc is null (null), expected text or a number (data.group_by)",
            "doc is not text or a number",
        ),
    ],
    ids=["missing", "null"],
)
def test_a_row_without_its_group_is_refused(fields: Any, message: str, kind: str) -> None:
    error = refused(fields, group_by="doc")
    assert (str(error), error.kind) == (message, kind)


def test_content_is_all_that_training_sees_and_nothing_else() -> None:
    assert json.loads(row({"prompt": "a", "completion": "b"}).content()) == ["prompt_completion", "a", "b"]
    chat = {"messages": [ASK, ANSWER]}
    assert row(chat).content() == row({**chat, "id": 7, "tools": []}).content()
    assert row(chat).content() == row({"messages": [dict(reversed(ASK.items())), ANSWER]}).content()
    assert row(chat).content() != row({**chat, "tools": [CALL]}).content()
    assert row(chat).content() != row({"messages": [ASK, {**ANSWER, "name": "x"}]}).content()


def test_content_may_hold_dates_as_parquet_gives_them() -> None:
    turn = {**ASK, "at": date(2026, 12, 1)}
    assert '"at": "2026-12-01"' in row({"messages": [turn, ANSWER]}).content()


def test_a_system_prompt_beside_the_turns_is_the_first_turn() -> None:
    system = {"role": "system", "content": "be terse"}
    assert row({"system": "be terse", "conversations": [ASK, ANSWER]}).context == [system, ASK, ANSWER]
    assert row({"system": " ", "messages": [ASK, ANSWER]}).context == [ASK, ANSWER]
    assert row({"system": "be terse", "prompt": "a", "completion": "b"}).context == "a"
    assert str(refused({"system": 7, "messages": [ASK, ANSWER]})) == "system is a number (7), expected text"
