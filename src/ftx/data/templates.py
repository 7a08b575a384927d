"""The chat template in use, and how turns become text by it."""

import difflib
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment
from jinja2.exceptions import TemplateError
from jinja2.meta import find_undeclared_variables

from ftx.config.checks import TEMPLATES
from ftx.data.rows import RowError, Turn
from ftx.errors import DataError

MODEL, TRAINING, PLAIN = TEMPLATES
_SET_FOR_IT = {"messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now", "range"}
_TEMPLATE_FAULTS = (TemplateError, TypeError, ValueError, KeyError)


@dataclass(frozen=True)
class Conversation:
    """Turns to render, and the tools that the template is told of."""

    turns: Sequence[Turn]
    tools: Sequence[Any] | None = None


class ChatTemplate:
    """A tokenizer's chat template with what it is told besides the turns (`data.template_kwargs`)."""

    def __init__(self, tokenizer: Any, told: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._told = dict(told)

    def render(self, asked: Conversation, *, generation: bool = False) -> str:
        """The conversation as text; `generation` ends it as the beginning of an answer. Raises RowError."""
        try:
            return str(self._applied(list(asked.turns), tools=asked.tools, generation=generation))
        except _TEMPLATE_FAULTS as error:
            roles = ", ".join(str(turn["role"]) for turn in asked.turns)
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise RowError(
                f"the chat template refuses the turns {roles}: {reason}", "the chat template refuses the turns"
            ) from error

    def render_all(self, asked: Sequence[Conversation], *, generation: bool = False) -> list[str | RowError]:
        """Many conversations, a third faster than one by one; a RowError where one is refused."""
        if all(each.tools is None and each.turns for each in asked):
            try:
                return list(self._applied([list(each.turns) for each in asked], tools=None, generation=generation))
            except _TEMPLATE_FAULTS:
                pass  # one of them is at fault: find it
        return [self._or_error(each, generation) for each in asked]

    def _or_error(self, asked: Conversation, generation: bool) -> str | RowError:
        try:
            return self.render(asked, generation=generation) if asked.turns else ""
        except RowError as error:
            return error

    def _applied(self, turns: list[Any], *, tools: Sequence[Any] | None, generation: bool) -> Any:
        return self._tokenizer.apply_chat_template(
            turns, tools=tools, tokenize=False, add_generation_prompt=generation, **self._told
        )


def choose_template(tokenizer: Any, choice: str, told: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Give `tokenizer` the template that `data.template` asks for; what is saved with the adapter is this one.

    Args:
        tokenizer: changed.
        choice: `data.template`.
        told: `data.template_kwargs`, all of which the template has to read.

    Raises:
        DataError: no such file, not a template, no training version of the model's template, a name it never reads.
    """
    if choice == MODEL:
        if isinstance(tokenizer.chat_template, dict):  # named variants; the default is what everybody renders by
            tokenizer.chat_template = tokenizer.chat_template.get("default")
    else:
        _give_template(tokenizer, choice)
    _refuse_unread(tokenizer.chat_template, told)


def _give_template(tokenizer: Any, choice: str) -> None:
    tokenizer.chat_template = _training_template(tokenizer) if choice == TRAINING else _file_template(choice)
    if choice == PLAIN and begins_texts(tokenizer):
        tokenizer.chat_template = "{{- bos_token -}}" + tokenizer.chat_template
    fault = template_fault(tokenizer)
    if fault is not None:
        raise DataError(f"data.template={choice}: {fault}")


def _refuse_unread(template: str | None, told: Mapping[str, Any]) -> None:
    """A name that the template never reads would be another setting and the same run."""
    read = _names_read(template or "")
    for name in told:
        if read is not None and name not in read:
            known = ", ".join(sorted(read - _SET_FOR_IT)) or "nothing but the turns"
            close = difflib.get_close_matches(name, read, n=1)
            meant = f"did you mean {close[0]}? It" if close else "it"
            raise DataError(f"data.template_kwargs.{name}: the chat template never reads it; {meant} reads {known}")


def _names_read(template: str) -> set[str] | None:
    """The names that a template takes from outside; None where it cannot be told."""
    plain = re.sub(r"\{%-?\s*(?:end)?generation\s*-?%\}", "", template)  # markers that jinja itself does not know
    try:
        return find_undeclared_variables(Environment(extensions=["jinja2.ext.loopcontrols"]).parse(plain))
    except TemplateError:
        return None


def begins_texts(tokenizer: Any) -> bool:
    """Whether the tokenizer puts its BOS token in front of every text."""
    return tokenizer.bos_token_id is not None and tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id


def reads_the_date(tokenizer: Any) -> bool:
    """Whether the template writes today's date, as Llama 3's does: what a row's tokens are depends on the day."""
    return "strftime_now" in (tokenizer.chat_template or "")


def template_sha256(tokenizer: Any) -> str | None:
    """The hash of the chat template in use; None for a model without one."""
    template = tokenizer.chat_template
    return None if template is None else hashlib.sha256(str(template).encode()).hexdigest()


def template_fault(tokenizer: Any) -> str | None:
    """Why the template cannot be rendered at all; None where one question and answer pass through it."""
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    try:
        ChatTemplate(tokenizer, {}).render(Conversation(turns))
    except RowError as error:
        return f"not a chat template that renders a question and an answer ({error})"
    return None


def _training_template(tokenizer: Any) -> str:
    from trl.chat_template_utils import get_training_chat_template  # seconds, and only where it is asked for

    if tokenizer.chat_template is None:
        raise DataError(
            "data.template=training: this model has no chat template to make a training version of; "
            "data.template=plain or a .jinja file gives it one"
        )
    try:
        return str(get_training_chat_template(tokenizer) or tokenizer.chat_template)
    except (ValueError, *_TEMPLATE_FAULTS) as error:
        raise DataError(
            "data.template=training: TRL has no training version of this model's template; data.template=model works "
            "without one (earlier turns are found by themselves), or give a .jinja file"
        ) from error


def _file_template(choice: str) -> str:
    path = Path(str(resources.files("ftx"))) / "bundled" / "plain.jinja" if choice == PLAIN else Path(choice)
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"data.template={choice}: cannot be read ({error})") from error


def control_tokens(tokenizer: Any) -> dict[int, str]:
    """Control tokens by id, as text: those with a name (end of text), and those that are only marked as special."""
    marked = getattr(tokenizer, "added_tokens_decoder", {}).items()
    named = zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
    return {number: str(token) for number, token in named} | {
        number: str(token) for number, token in marked if token.special
    }


def control_words(tokenizer: Any) -> re.Pattern[str] | None:
    """A pattern for every control token as text (`<|im_end|>`), the longest first; None where there is none."""
    words = {word for word in control_tokens(tokenizer).values() if word.strip()}
    return re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True)))) if words else None
