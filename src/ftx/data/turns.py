"""The turns of a row: which are supervised, and where each stands in the text that the template makes of them.

Where a turn begins follows from rendering the turns before it, as generation would. Where a template renders earlier
turns differently from the last (Qwen3 drops their thinking blocks), that is no prefix of the text; then the row is
rendered with another text in the turn's place, and what stays the same tells where the turn is.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal

from ftx.data.rows import REASONING, Row, RowError, Turn
from ftx.data.templates import ChatTemplate, Conversation

_STAND_IN = "\ue000\ue001\ue000"  # private characters, which no text of people holds
_END_OF_THINKING = "</think>"
_TELLING = 20  # characters that tell the end of a turn from other places: its control token and a little more

Span = tuple[int, int]
"""Begin and end, the end not included."""


def turns_of(row: Row) -> list[Turn]:
    """All turns of a row that is no plain text."""
    context = [{"role": "user", "content": row.context}] if isinstance(row.context, str) else list(row.context)
    target = [{"role": "assistant", "content": row.target}] if isinstance(row.target, str) else list(row.target)
    return [*context, *target]


def answers_of(turns: Sequence[Turn]) -> list[int]:
    """The indices of the assistant's turns."""
    return [index for index, turn in enumerate(turns) if turn["role"] == "assistant"]


def supervised_of(row: Row, turns: Sequence[Turn], supervise: str) -> list[int]:
    """The indices of the turns that carry loss, the last of them the one to generate; `all` needs only that.

    A turn with `weight: 0` or `train: false` is left out, as those who write so mean it.

    Raises:
        RowError: no turn is left.
    """
    answers = [index for index in answers_of(turns) if _carries_loss(turns[index])]
    of_chats, of_pairs = ("auto", "assistant"), ("auto", "assistant", "completion")
    if row.kind != "messages" and supervise in ("auto", "completion"):
        context = 1 if isinstance(row.context, str) else len(row.context)
        answers = [index for index in answers if index >= context]
    if not answers:
        raise RowError("has no assistant turn that carries loss (weight: 0, train: false)", "no turn carries loss")
    return answers if supervise in (of_chats if row.kind == "messages" else of_pairs) else answers[-1:]


def _carries_loss(turn: Turn) -> bool:
    return turn.get("weight") != 0 and turn.get("train") is not False


def said(turn: Turn, piece: str) -> Literal["whole", "without reasoning", "lost"]:
    """What of a turn its stretch of the text holds: what its author wrote, that without its reasoning, or less.

    White space aside. Reasoning stands in a field of its own, or in the content before `</think>`.
    """
    calls = [call.get("function") or call for call in turn.get("tool_calls") or ()]
    content = str(turn.get("content") or "")
    answer = content.rpartition(_END_OF_THINKING)[2]
    if not _holds(piece, [answer, *(call.get("name") for call in calls)]):
        return "lost"
    return "whole" if _holds(piece, [content, *(turn.get(name) for name in REASONING)]) else "without reasoning"


def _holds(piece: str, told: Sequence[Any]) -> bool:
    return all(squeezed(str(text)) in squeezed(piece) for text in told if text)


def squeezed(text: str) -> str:
    """Without white space, which templates and tokenizers put and take at the edges."""
    return "".join(text.split())


class TurnFinder:
    """Finds turns in rendered text.

    Args:
        template: what renders.
        control: a pattern of the tokenizer's control tokens.
    """

    def __init__(self, template: ChatTemplate, control: re.Pattern[str] | None) -> None:
        self._template = template
        self._control = control

    def find(self, conversation: Conversation, index: int, text: str, before: str | None) -> Span:
        """Where a turn stands in the text. `before` is what generation of the last answer starts from.

        A first turn has nothing before it to render, and begins behind what the template puts in front of its content.
        """
        turns, tools = conversation.turns, conversation.tools
        start = before
        if start is None:
            start = self._template.render(Conversation(turns[:index], tools), generation=True) if index else ""
        elif not text.startswith(start):
            raise RowError(
                f"the prompt that generation starts from ({_tail(start)}) is not a prefix of the row's text: the "
                "template begins an answer in another way when it asks for one; data.template_kwargs="
                "{enable_thinking: false} or another data.template may not",
                "the prompt is not a prefix of the row",
            )
        last = index == len(turns) - 1
        until = text if last else self._template.render(Conversation(turns[: index + 1], tools))
        if start and text.startswith(start) and text.startswith(until) and len(until) > len(start):
            return len(start), len(until)
        located = self._located(conversation, index, text, start)
        return (len(before), located[1]) if before else located

    def _located(self, conversation: Conversation, index: int, text: str, start: str) -> Span:
        """The turn by its content's place in the whole text, where the turns up to it are no prefix of that.

        `start` is what generation would start from if the conversation ended there.
        """
        turns, tools = list(conversation.turns), conversation.tools
        stood_in = [{**turn, "content": _STAND_IN} if at == index else turn for at, turn in enumerate(turns)]
        whole = self._template.render(Conversation(stood_in, tools)).split(_STAND_IN)
        alone = self._template.render(Conversation(stood_in[: index + 1], tools)).split(_STAND_IN)
        if len(whole) != 2 or len(alone) != 2 or not (text.startswith(whole[0]) and text.endswith(whole[1])):
            raise RowError(
                f"turn {index + 1} cannot be found in what the chat template makes of the row, so what to supervise "
                "cannot be told: use data.supervise=last_turn, or another data.template",
                "a turn cannot be found in the text",
            )
        content = (len(whole[0]), len(text) - len(whole[1]))
        begin = self._begin(conversation, index, whole[0], start)
        return begin, content[1] + self._closing(text[content[1] :], alone[1])

    def _begin(self, conversation: Conversation, index: int, before_content: str, start: str) -> int:
        """Where the turn begins: behind the words that ask for an answer, if they stand in front of its content."""
        turns = conversation.turns
        base = self._template.render(Conversation(turns[:index], conversation.tools)) if index else ""
        # Where a template ends every text by a token of its own, what asks for an answer stands in that token's place.
        shared = len(base) if start.startswith(base) else _shared_length(base, start)
        header, tail = start[shared:], base[:shared][-_TELLING:]
        if not header or not tail or tail not in before_content:
            return len(before_content)
        at, behind_previous = before_content.rfind(header), before_content.rfind(tail) + len(tail)
        return at + len(header) if at >= behind_previous else len(before_content)

    def _closing(self, rest: str, alone: str) -> int:
        """How much of what follows an answer closes it: what closes it also when nothing follows.

        Templates that end the whole conversation by a token of its own agree with that only for a while; then the
        control tokens that both have count, at least the first.
        """
        common = _shared_length(rest, alone)
        if common == len(alone):
            return common
        words = list(self._control.finditer(rest)) if self._control else []
        shared = [word.end() for word in words if word.end() <= common]
        if not shared and words and not rest[: words[0].start()].strip():
            return words[0].end()
        return shared[-1] if shared else common


def _shared_length(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _tail(text: str) -> str:
    return f"...{text[-30:]!r}" if len(text) > 30 else repr(text)
