"""One record as a row: which fields make it a row of which kind, and whether they hold what they should."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from ftx.config.schema import ColumnsConfig
from ftx.errors import DataError

Turn = Mapping[str, Any]
Kind = Literal["prompt_completion", "messages", "text"]

CONVERSATIONS = "conversations"  # what ShareGPT calls messages; read where data.columns.messages names no other
_USUAL = ColumnsConfig()
REASONING = ("reasoning_content", "thinking")
_ANSWERS = ("tool_calls", "function_call", *REASONING)  # what a turn may say instead of content
_SPEAKERS = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "system": "system",
    "tool": "tool",
    "function_response": "tool",
    "observation": "tool",
}
_TYPE_WORDS = {
    str: "text",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


class RowError(DataError):
    """A row that cannot be used; `kind` is the reason without its values, to count rows by."""

    def __init__(self, message: str, kind: str) -> None:
        self.kind = kind
        super().__init__(message)


@dataclass(frozen=True)
class Row:
    """One example as it stands in its file.

    `context` is what the model is given and `target` what it should answer: both text, or both chat turns.
    A chat (`messages`) has all its turns in `context`; plain text has it all in `target`. `tools` are what the chat
    template is told of tools. `group` is the value of `data.group_by`.
    """

    kind: Kind
    where: str
    context: str | list[Turn]
    target: str | list[Turn]
    tools: list[Any] | None = None
    group: str | None = None

    def content(self) -> str:
        """Everything that training sees of this row, as canonical JSON."""
        parts = [self.kind, self.context, self.target, *([self.tools] if self.tools else [])]
        return json.dumps(parts, ensure_ascii=False, sort_keys=True, default=str)  # Parquet has dates


class RowReader:
    """Makes rows of the records of one file, which are all of one kind."""

    def __init__(self, columns: ColumnsConfig, group_by: str | None = None) -> None:
        self._columns = columns
        self._group_by = group_by
        self._kind: Kind | None = None

    def row(self, where: str, fields: Any) -> Row:
        """One row. Raises RowError."""
        if not isinstance(fields, dict):
            raise RowError(f"is {_type_of(fields)}, expected an object", "not an object")
        kind = self._kind_of(fields)
        self._kind = self._kind or kind
        if kind != self._kind:
            words = {"prompt_completion": "prompt and completion", "messages": "chat turns", "text": "plain text"}
            raise RowError(
                f"is a row of {words[kind]} in a file of {words[self._kind]}: put them into files of their own",
                "another kind of row",
            )
        return self._row(kind, where, fields)

    def _kind_of(self, fields: Mapping[str, Any]) -> Kind:
        columns = self._columns
        named: dict[Kind, list[str]] = {
            "prompt_completion": [name for name in (columns.prompt, columns.completion) if name in fields],
            "messages": [name for name in self._chat_columns() if name in fields],
            "text": [columns.text] if columns.text in fields else [],
        }
        kinds = [kind for kind, names in named.items() if names]
        kinds = [kind for kind in kinds if self._chosen(kind, fields)] or kinds
        if not kinds:
            raise RowError(
                f"has the fields {', '.join(fields) or 'none'}; expected {columns.prompt} and {columns.completion}, "
                f"or {columns.messages}, or {columns.text} (data.columns={{prompt: YOUR_COLUMN}} names yours)",
                "none of the expected fields",
            )
        if len(kinds) > 1:
            both = " and ".join(named[kind][0] for kind in kinds)
            raise RowError(
                f"has {both}, which are different kinds of row: keep one, or give the other another name in "
                "data.columns (data.columns.text=unused, say)",
                "several kinds of row in one",
            )
        return kinds[0]

    def _chosen(self, kind: Kind, fields: Mapping[str, Any]) -> bool:
        """Whether `data.columns` names a column of this kind itself, and the row has it."""
        return any(
            getattr(self._columns, role) in fields and getattr(self._columns, role) != getattr(_USUAL, role)
            for role in (("prompt", "completion") if kind == "prompt_completion" else (kind,))
        )

    def _chat_columns(self) -> list[str]:
        named = self._columns.messages
        return [named, CONVERSATIONS] if named == _USUAL.messages else [named]

    def _row(self, kind: Kind, where: str, fields: Mapping[str, Any]) -> Row:
        columns, group = self._columns, self._group(fields)
        if kind == "messages":
            name = next(name for name in self._chat_columns() if name in fields)
            return Row(kind, where, [*_system(fields, name), *_answered(fields, name)], [], _tools(fields), group)
        if kind == "text":
            return Row(kind, where, "", _text(fields, columns.text), None, group)
        if isinstance(_field(fields, columns.prompt), list):
            context, target = _turns(fields, columns.prompt), _answered(fields, columns.completion)
            return Row(kind, where, context, target, _tools(fields), group)
        prompt, completion = _text(fields, columns.prompt, empty=True), _text(fields, columns.completion)
        return Row(kind, where, prompt, completion, None, group)

    def _group(self, fields: Mapping[str, Any]) -> str | None:
        if self._group_by is None:
            return None
        value = _field(fields, self._group_by)
        if not isinstance(value, (str, int, float)) or value == "":
            raise RowError(
                f"{self._group_by} is {_type_of(value)}, expected text or a number (data.group_by)",
                f"{self._group_by} is not text or a number",
            )
        return json.dumps(value)


def _field(fields: Mapping[str, Any], name: str) -> Any:
    if name not in fields:
        close = difflib.get_close_matches(name, fields, n=1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        raise RowError(f"has no field {name}{meant}", f"no field {name}")
    return fields[name]


def _text(fields: Mapping[str, Any], name: str, *, empty: bool = False) -> str:
    value = _field(fields, name)
    if not isinstance(value, str):
        raise RowError(f"{name} is {_type_of(value)}, expected text", f"{name} is not text")
    if not empty and not value.strip():
        raise RowError(f"{name} is empty, so there is nothing to learn", f"{name} is empty")
    return value


def _answered(fields: Mapping[str, Any], name: str) -> list[Turn]:
    """Chat turns with an assistant's among them."""
    turns = _turns(fields, name)
    if not any(turn["role"] == "assistant" for turn in turns):
        raise RowError(f"{name} has no assistant turn, so there is nothing to learn", f"{name} has no assistant turn")
    return turns


def _system(fields: Mapping[str, Any], name: str) -> list[Turn]:
    """The system prompt that some files have beside the turns."""
    system = fields.get("system")
    if system is None or name == "system":
        return []
    if not isinstance(system, str):
        raise RowError(f"system is {_type_of(system)}, expected text", "system is not text")
    return [{"role": "system", "content": system}] if system.strip() else []


def _turns(fields: Mapping[str, Any], name: str) -> list[Turn]:
    value = _field(fields, name)
    if not isinstance(value, list):
        raise RowError(f"{name} is {_type_of(value)}, expected a list of chat turns", f"{name} is not a list")
    if not value:
        raise RowError(f"{name} has no turns", f"{name} has no turns")
    return [_turn(turn, f"{name}, turn {number}") for number, turn in enumerate(value, start=1)]


def _turn(turn: Any, place: str) -> Turn:
    if not isinstance(turn, dict):
        raise RowError(f"{place} is {_type_of(turn)}, expected an object with role and content", "a turn is no object")
    turn = _as_role_and_content(turn, place)
    answers_otherwise = any(turn.get(name) for name in _ANSWERS)
    content = turn.get("content")
    if not isinstance(turn.get("role"), str) or not (
        isinstance(content, str) or (content is None and answers_otherwise)
    ):
        part = "role" if not isinstance(turn.get("role"), str) else "content"
        found = _type_of(turn[part]) if part in turn else "missing"
        raise RowError(f"{place}: {part} is {found}, expected text", f"a turn's {part} is not text")
    if turn["role"] == "assistant" and not answers_otherwise and not str(content).strip():
        raise RowError(f"{place}: the assistant's content is empty", "an assistant's turn is empty")
    return cast(Turn, turn)


def _as_role_and_content(turn: dict[str, Any], place: str) -> dict[str, Any]:
    """The turn itself, or one that is spelled from/value."""
    if "from" not in turn or "role" in turn:
        return turn
    speaker = turn["from"]
    if not isinstance(speaker, str) or speaker not in _SPEAKERS:
        raise RowError(
            f"{place}: from is {_type_of(speaker)}, expected one of {', '.join(_SPEAKERS)}", "an unknown speaker"
        )
    rest = {name: value for name, value in turn.items() if name not in ("from", "value")}
    return {"role": _SPEAKERS[speaker], **({"content": turn["value"]} if "value" in turn else {}), **rest}


def _tools(fields: Mapping[str, Any]) -> list[Any] | None:
    tools = fields.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise RowError(f"tools is {_type_of(tools)}, expected a list", "tools is not a list")
    return tools


def _type_of(value: Any) -> str:
    return f"{_TYPE_WORDS.get(type(value), type(value).__name__)} ({json.dumps(value, default=str)[:40]})"
