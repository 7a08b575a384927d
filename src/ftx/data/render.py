"""What the model really sees of one row: its token ids, and which of them carry loss.

The template renders the row once, as text. What precedes a turn, as generation would see it, must be a prefix of that
text; what lies between there and the end of the turn is supervised: the answer, and what the template adds to it (an
end token, an empty thinking block). The tokens are those of the whole text, unless one of them spans the beginning of
an answer: then the pieces are made into tokens one by one, as generation will meet them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from jinja2.exceptions import TemplateError

from ftx.data.rows import Row, Turn
from ftx.errors import DataError

IGNORED = -100

Span = tuple[int, int]  # begin and end, the end not included


@dataclass(frozen=True)
class TokenizedRow:
    """One row as token ids. `labels` are the ids where loss applies and -100 elsewhere, never at position 0.

    `prompt_length` is where the last answer begins, None where there is none (plain text); `answer_length` is that
    answer's number of tokens, and `reference` its text without the end token, both of the uncut row.
    """

    where: str
    input_ids: list[int]
    labels: list[int]
    prompt_length: int | None
    answer_length: int
    prompt: str
    reference: str | None

    @property
    def supervised(self) -> int:
        """How many tokens carry loss."""
        return sum(label != IGNORED for label in self.labels)

    def prompt_ids(self) -> list[int]:
        """What generation starts from: everything before the last answer.

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
    return TokenizedRow(row.where, ids, _mask_first(ids), None, 0, "", None)


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
    return TokenizedRow(row.where, ids, _mask_first(labels), len(prompt), len(answer), row.context, row.target)


def _chat(row: Row, tokenizer: Any, supervise: str) -> TokenizedRow:
    turns, supervised = _turns(row, supervise)
    text = _rendered(row, tokenizer, turns)
    spans = _text_spans(row, tokenizer, turns, supervised, text)
    if spans is not None:
        ids, token_spans = _tokens(row, tokenizer, text, spans)
    else:
        ids, token_spans = _marked_tokens(row, tokenizer, turns, supervised)
    token_spans = [(begin, _end_of_turn(tokenizer, ids, begin, end)) for begin, end in token_spans]
    labels = list(ids) if supervise == "all" else [IGNORED] * len(ids)
    for begin, end in token_spans:
        labels[begin:end] = ids[begin:end]
    begin, end = token_spans[-1]
    prompt = tokenizer.decode(ids[:begin])
    reference = tokenizer.decode(ids[begin:end], skip_special_tokens=True)
    return TokenizedRow(row.where, ids, _mask_first(labels), begin, end - begin, prompt, reference)


def _turns(row: Row, supervise: str) -> tuple[list[Turn], list[int]]:
    """The turns of a row, and the indices of those that are supervised (`all` needs only the last)."""
    context = [{"role": "user", "content": row.context}] if isinstance(row.context, str) else list(row.context)
    target = [{"role": "assistant", "content": row.target}] if isinstance(row.target, str) else list(row.target)
    turns: list[Turn] = [*context, *target]
    answers = [index for index, turn in enumerate(turns) if turn["role"] == "assistant"]
    if supervise == "assistant" or (supervise == "auto" and row.kind == "messages"):
        return turns, answers
    if supervise in ("last_turn", "all") or row.kind == "messages":
        return turns, answers[-1:]
    return turns, [index for index in answers if index >= len(context)]


def _text_spans(
    row: Row, tokenizer: Any, turns: Sequence[Turn], supervised: Sequence[int], text: str
) -> list[Span] | None:
    """Where each supervised turn stands in the rendered text; None where its beginning is no prefix of the text."""
    spans = []
    for index in supervised:
        before = _rendered(row, tokenizer, turns[:index], generation=True) if index else ""
        until = _rendered(row, tokenizer, turns[: index + 1])
        if not text.startswith(before) or not text.startswith(until) or len(until) <= len(before):
            return None
        spans.append((len(before), len(until)))
    return spans


def _tokens(row: Row, tokenizer: Any, text: str, spans: Sequence[Span]) -> tuple[list[int], list[Span]]:
    """The ids of a text, and the tokens of each of its spans."""
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = list(encoded["input_ids"]), encoded["offset_mapping"]
    begins = [next((at for at, (_, end) in enumerate(offsets) if end > begin), len(ids)) for begin, _ in spans]
    if all(at < len(ids) and offsets[at][0] >= begin for at, (begin, _) in zip(begins, spans, strict=True)):
        ends = [next((at for at, (begin, _) in enumerate(offsets) if begin >= end), len(ids)) for _, end in spans]
        return ids, list(zip(begins, ends, strict=True))
    return _tokens_by_piece(row, tokenizer, text, spans)


def _tokens_by_piece(row: Row, tokenizer: Any, text: str, spans: Sequence[Span]) -> tuple[list[int], list[Span]]:
    """Each prompt and each answer made into tokens by itself, as generation meets them."""
    cuts = [0, *(edge for span in spans for edge in span), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(cuts)]
    ids: list[int] = []
    edges = []
    for piece in pieces:
        ids += tokenizer(piece, add_special_tokens=False)["input_ids"] if piece else []
        edges.append(len(ids))
    if tokenizer.decode(ids) != tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]):
        raise DataError(
            f"{row.where}: the prompt's tokens are not a prefix of the row's tokens, and this tokenizer cannot be "
            "given the two apart: begin the completion with a word, not with white space"
        )
    return ids, [(edges[2 * number], edges[2 * number + 1]) for number in range(len(spans))]


def _marked_tokens(
    row: Row, tokenizer: Any, turns: Sequence[Turn], supervised: Sequence[int]
) -> tuple[list[int], list[Span]]:
    """Ids and supervised spans by the template's own generation markers."""
    if "generation %}" not in tokenizer.chat_template:
        raise DataError(
            f"{row.where}: the chat template does not render every assistant turn the way it asks for it when "
            "generating, and has no generation markers, so what to supervise cannot be told: use data.supervise="
            "last_turn, or a model whose template has markers"
        )
    marked = _applied(row, tokenizer, turns, return_dict=True, return_assistant_tokens_mask=True)
    ids, mask = list(marked["input_ids"]), [*marked["assistant_masks"], 0]
    starts = [at for at in range(len(ids)) if mask[at] and (at == 0 or not mask[at - 1])]
    answers = [at for at, turn in enumerate(turns) if turn["role"] == "assistant"]
    if len(starts) != len(answers):
        raise DataError(f"{row.where}: the chat template marks {len(starts)} of {len(answers)} assistant turns")
    begins = [starts[answers.index(index)] for index in supervised]
    return ids, [(begin, mask.index(0, begin)) for begin in begins]


def _end_of_turn(tokenizer: Any, ids: list[int], begin: int, end: int) -> int:
    """Leave out what a template puts between turns (a line end): generation stops at the end token before it."""
    special = set(tokenizer.all_special_ids)
    behind = end
    while behind > begin and ids[behind - 1] not in special and not tokenizer.decode(ids[behind - 1]).strip():
        behind -= 1
    return behind if behind > begin and ids[behind - 1] in special else end


def _rendered(row: Row, tokenizer: Any, turns: Sequence[Turn], *, generation: bool = False) -> str:
    return str(_applied(row, tokenizer, turns, tokenize=False, add_generation_prompt=generation))


def _applied(row: Row, tokenizer: Any, turns: Sequence[Turn], **options: Any) -> Any:
    try:
        return tokenizer.apply_chat_template(list(turns), tools=row.tools, **options)
    except TemplateError as error:
        roles = ", ".join(str(turn["role"]) for turn in turns)
        raise DataError(f"{row.where}: the chat template refuses the turns {roles}: {error}") from error


def _mask_first(labels: list[int]) -> list[int]:
    """Nothing comes before the first token, so it can never be predicted."""
    return [IGNORED, *labels[1:]]
