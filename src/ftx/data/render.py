"""What the model really sees of one row: its token ids, and which of them carry loss.

The mask is found on the ids that go into the batch: the ids of everything before a turn must be a prefix of
the ids of everything up to its end, and what lies between is that turn: the answer, and what the template adds
to it (an end token, an empty thinking block).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2.exceptions import TemplateError

from ftx.data.rows import Row, Turn
from ftx.errors import DataError

IGNORED = -100


@dataclass(frozen=True)
class TokenizedRow:
    """One row as token ids. `labels` are the ids where loss applies and -100 elsewhere, never at position 0."""

    where: str
    input_ids: list[int]
    labels: list[int]
    prompt_length: int | None
    prompt: str
    reference: str | None

    @property
    def supervised(self) -> int:
        """How many tokens carry loss."""
        return sum(label != IGNORED for label in self.labels)

    def prompt_ids(self) -> list[int]:
        """What generation starts from: everything before the answer.

        Raises:
            DataError: plain text has no answer.
        """
        if self.prompt_length is None:
            raise DataError(f"{self.where}: plain text has no prompt to generate from")
        return self.input_ids[: self.prompt_length]


def encode(row: Row, tokenizer: Any, supervise: str) -> TokenizedRow:
    """Token ids and labels of one row.

    Raises:
        DataError: naming the row, when the template refuses it or no sound mask exists.
    """
    if row.kind == "text":
        return _plain_text(row, tokenizer)
    if tokenizer.chat_template is None:
        return _concatenated(row, tokenizer, supervise)
    return _chat(row, tokenizer, supervise)


def _plain_text(row: Row, tokenizer: Any) -> TokenizedRow:
    ids = list(tokenizer(str(row.target))["input_ids"])
    if not ids or ids[-1] != tokenizer.eos_token_id:
        ids.append(tokenizer.eos_token_id)
    return TokenizedRow(row.where, ids, _mask_first(ids), None, "", None)


def _concatenated(row: Row, tokenizer: Any, supervise: str) -> TokenizedRow:
    """Prompt, completion and end token one after the other, for a base model without a chat template."""
    if not isinstance(row.context, str) or not isinstance(row.target, str):
        raise DataError(
            f"{row.where}: chat turns need a chat template, and this model has none: use an instruction-tuned model, "
            "or rows whose prompt and completion are plain text"
        )
    prompt = list(tokenizer(row.context)["input_ids"])
    if prompt and prompt[-1] == tokenizer.eos_token_id:
        prompt.pop()  # some tokenizers end every text, and the text goes on here
    answer = list(tokenizer(row.target, add_special_tokens=False)["input_ids"])
    if not answer or answer[-1] != tokenizer.eos_token_id:
        answer.append(tokenizer.eos_token_id)
    ids = prompt + answer
    labels = list(ids) if supervise == "all" else [IGNORED] * len(prompt) + answer
    return TokenizedRow(row.where, ids, _mask_first(labels), len(prompt), row.context, row.target)


def _chat(row: Row, tokenizer: Any, supervise: str) -> TokenizedRow:
    turns, supervised = _turns(row, supervise)
    ids = _apply(row, tokenizer, turns)
    last = supervised[-1]
    start, end = _span(row, tokenizer, turns, last, ids)
    labels = [IGNORED] * len(ids)
    if supervise == "all":
        labels = list(ids)
    else:
        for turn in supervised:
            first, behind = (start, end) if turn == last else _span(row, tokenizer, turns, turn, ids)
            labels[first:behind] = ids[first:behind]
    prompt = _apply(row, tokenizer, turns[:last], tokenize=False, generation=True)
    return TokenizedRow(row.where, ids, _mask_first(labels), start, prompt, str(turns[last]["content"]))


def _turns(row: Row, supervise: str) -> tuple[list[Turn], list[int]]:
    """The turns of a row, and the indices of those that are supervised (`all` masks by itself)."""
    context = [{"role": "user", "content": row.context}] if isinstance(row.context, str) else list(row.context)
    target = [{"role": "assistant", "content": row.target}] if isinstance(row.target, str) else list(row.target)
    turns: list[Turn] = [*context, *target]
    answers = [index for index, turn in enumerate(turns) if turn["role"] == "assistant"]
    if supervise == "assistant" or (supervise == "auto" and row.kind == "messages"):
        return turns, answers
    if supervise == "last_turn" or row.kind == "messages":
        return turns, answers[-1:]
    return turns, [index for index in answers if index >= len(context)]


def _span(row: Row, tokenizer: Any, turns: Sequence[Turn], index: int, ids: list[int]) -> tuple[int, int]:
    """Where turn `index` begins and ends in the ids of the whole row, up to and including its end token."""
    before = _apply(row, tokenizer, turns[:index], generation=True)
    until = _apply(row, tokenizer, turns[: index + 1])
    if ids[: len(before)] != before or ids[: len(until)] != until or len(until) <= len(before):
        marked = _marked_span(row, tokenizer, turns, index)
        if marked is None:
            raise DataError(
                f"{row.where}: the chat template renders turn {index + 1} differently once more turns follow and has "
                "no generation markers, so what to supervise cannot be told: use data.supervise=last_turn"
            )
        return marked
    return len(before), _end_of_turn(tokenizer, ids, len(before), len(until))


def _end_of_turn(tokenizer: Any, ids: list[int], start: int, end: int) -> int:
    """Leave out what a template puts between turns (a line end): generation stops at the end token before it."""
    special = set(tokenizer.all_special_ids)
    behind = end
    while behind > start and ids[behind - 1] not in special and not tokenizer.decode(ids[behind - 1]).strip():
        behind -= 1
    return behind if behind > start and ids[behind - 1] in special else end


def _marked_span(row: Row, tokenizer: Any, turns: Sequence[Turn], index: int) -> tuple[int, int] | None:
    """The span of a turn by the template's own generation markers, if it has them."""
    if "{% generation %}" not in tokenizer.chat_template and "{%- generation" not in tokenizer.chat_template:
        return None
    marked = _apply_raw(row, tokenizer, turns, return_dict=True, return_assistant_tokens_mask=True)
    mask = [*marked["assistant_masks"], 0]
    starts = [at for at in range(len(mask) - 1) if mask[at] and (at == 0 or not mask[at - 1])]
    answers = [at for at, turn in enumerate(turns) if turn["role"] == "assistant"]
    if len(starts) != len(answers):
        return None
    start = starts[answers.index(index)]
    return start, mask.index(0, start)


def _apply(row: Row, tokenizer: Any, turns: Sequence[Turn], *, tokenize: bool = True, generation: bool = False) -> Any:
    if not turns:
        return [] if tokenize else ""
    return _apply_raw(row, tokenizer, turns, tokenize=tokenize, add_generation_prompt=generation, return_dict=False)


def _apply_raw(row: Row, tokenizer: Any, turns: Sequence[Turn], **options: Any) -> Any:
    try:
        return tokenizer.apply_chat_template(list(turns), **options)
    except TemplateError as error:
        roles = ", ".join(str(turn["role"]) for turn in turns)
        raise DataError(f"{row.where}: the chat template refuses the turns {roles}: {error}") from error


def _mask_first(labels: list[int]) -> list[int]:
    """Nothing comes before the first token, so it can never be predicted."""
    return [IGNORED, *labels[1:]]
