"""What the model really sees of a row: its token ids, and which of them carry loss.

The template renders the row once, as text. Of a supervised turn, everything between what generation starts from and
the end of the turn carries loss: the answer, and what the template adds to it (an end token, an empty thinking block).
The tokens are those of the whole text, unless one of them spans the beginning of an answer: then the pieces are made
into tokens one by one, as generation will meet them.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from ftx.data.rows import Row, RowError
from ftx.data.templates import ChatTemplate, Conversation, begins_texts, control_tokens, control_words
from ftx.data.turns import Span, TurnFinder, said, squeezed, supervised_of, turns_of

IGNORED = -100


@dataclass(frozen=True)
class TokenizedRow:
    """One row as token ids; `spans` are the stretches that carry loss, in order, never position 0.

    `prompt_length` is where the last answer begins, None where there is none (plain text); `answer_length` is that
    answer's number of tokens, and `reference` its text without the end token, both of the uncut row. `remarks` are
    what may surprise about it, see `ftx.data.findings`.
    """

    where: str
    input_ids: list[int]
    spans: tuple[Span, ...]
    prompt_length: int | None
    answer_length: int
    reference: str | None
    remarks: tuple[str, ...] = ()

    @property
    def labels(self) -> list[int]:
        """The ids where loss applies and -100 elsewhere."""
        return labels_of(self.input_ids, self.spans)

    @property
    def supervised(self) -> int:
        """How many tokens carry loss."""
        return sum(end - begin for begin, end in self.spans)

    def prompt_ids(self) -> list[int]:
        """What generation starts from: everything before the last answer.

        Raises:
            RowError: plain text has no answer.
        """
        if self.prompt_length is None:
            raise RowError(f"{self.where}: plain text has no prompt to generate from", "plain text")
        return self.input_ids[: self.prompt_length]

    def token_bytes(self) -> bytes:
        """The ids and what of them carries loss, for hashing."""
        return repr((self.input_ids, self.spans)).encode()

    def cut(self, limit: int) -> "TokenizedRow":
        """The first `limit` tokens."""
        spans = tuple((begin, min(end, limit)) for begin, end in self.spans if begin < limit)
        ids = self.input_ids[:limit]
        return TokenizedRow(self.where, ids, spans, self.prompt_length, self.answer_length, self.reference)


def labels_of(input_ids: Sequence[int], spans: Sequence[Span]) -> list[int]:
    """The ids inside of the spans, and -100 outside."""
    labels = [IGNORED] * len(input_ids)
    for begin, end in spans:
        labels[begin:end] = input_ids[begin:end]
    return labels


@dataclass(frozen=True)
class _Planned:
    """A row's turns, and the indices of those that are supervised; the last one is what generation has to give."""

    row: Row
    conversation: Conversation
    supervised: list[int]

    @property
    def asked(self) -> Conversation:
        """What stands before the answer that generation has to give."""
        return Conversation(self.conversation.turns[: self.supervised[-1]], self.conversation.tools)


@dataclass(frozen=True)
class _Rendered:
    """A row as text, and the parts of it that are supervised. `framed`: BOS and end token are still to be added."""

    row: Row
    text: str
    spans: list[Span]
    remarks: tuple[str, ...] = ()
    framed: bool = False


class Encoder:
    """Makes token ids of rows.

    Args:
        tokenizer: with the chat template to use, or with none.
        told: further arguments of the template (`data.template_kwargs`).
        supervise: `data.supervise`.
    """

    def __init__(self, tokenizer: Any, told: Mapping[str, Any], supervise: str) -> None:
        self._tokenizer = tokenizer
        self._template = ChatTemplate(tokenizer, told)
        self._supervise = supervise
        self._special = set(control_tokens(tokenizer))
        self._control = control_words(tokenizer)
        self._finder = TurnFinder(self._template, self._control)
        self._begins_texts = begins_texts(tokenizer)
        self._alone = lru_cache(maxsize=64)(self._ids)  # what leads to an answer is nearly always the same few words

    def encode(self, rows: Sequence[Row]) -> list[TokenizedRow | RowError]:
        """Token ids and labels of each row, or why there are none: a template that refuses it, no sound mask.

        All texts are made into tokens at once, which the tokenizer does on all cores.
        """
        rendered = self._rendered(rows)
        tokens = iter(self._with_offsets([each.text for each in rendered if isinstance(each, _Rendered)]))
        return [each if isinstance(each, RowError) else self._tokenized(each, *next(tokens)) for each in rendered]

    def _rendered(self, rows: Sequence[Row]) -> list[_Rendered | RowError]:
        chats = [row for row in rows if row.kind != "text" and self._tokenizer.chat_template is not None]
        found = dict(zip(map(id, chats), self._chats(chats), strict=True))
        return [found[id(row)] if id(row) in found else self._joined(row) for row in rows]

    def _joined(self, row: Row) -> _Rendered | RowError:
        """Plain text; or prompt and completion one behind the other, for a base model without a chat template."""
        if row.kind == "text":
            text = str(row.target)
            return _Rendered(row, text, [(0, len(text))], framed=True)
        if not isinstance(row.context, str) or not isinstance(row.target, str):
            return RowError(
                "chat turns need a chat template, and this model has none: use data.template=plain or "
                "data.template=FILE.jinja, an instruction-tuned model, or rows whose prompt and completion are text",
                "no chat template",
            )
        if not row.context and not self._begins_texts:
            return RowError(
                "the prompt is empty, and this tokenizer puts nothing in front of a text, so there is nothing to start "
                "an answer from: use rows of plain text (data.columns.text)",
                "an empty prompt",
            )
        text = row.context + row.target
        return _Rendered(row, text, [(len(row.context), len(text))], framed=True)

    def _chats(self, rows: Sequence[Row]) -> list[_Rendered | RowError]:
        planned = [self._planned(row) for row in rows]
        whole = [each for each in planned if isinstance(each, _Planned)]
        texts = iter(self._template.render_all([each.conversation for each in whole]))
        befores = iter(self._template.render_all([each.asked for each in whole], generation=True))
        return [
            each if isinstance(each, RowError) else self._found(each, next(texts), next(befores)) for each in planned
        ]

    def _planned(self, row: Row) -> _Planned | RowError:
        turns = turns_of(row)
        try:
            return _Planned(row, Conversation(turns, row.tools), supervised_of(row, turns, self._supervise))
        except RowError as error:
            return error

    def _found(self, planned: _Planned, text: str | RowError, before: str | RowError) -> _Rendered | RowError:
        if isinstance(text, RowError):
            return text
        if isinstance(before, RowError):
            return before
        try:
            return self._with_spans(planned, text, before)
        except RowError as error:
            return error

    def _with_spans(self, planned: _Planned, text: str, before: str) -> _Rendered:
        conversation, spans, remarks = planned.conversation, [], []
        for index in planned.supervised:
            is_last = index == planned.supervised[-1]
            span = self._finder.find(conversation, index, text, before if is_last else None)
            spans.append(span)
            held = said(conversation.turns[index], text[slice(*span)])
            if held == "whole":
                continue
            if held == "lost" or is_last:
                raise RowError(
                    "the chat template leaves out what the assistant says (text, reasoning or tool calls); use another "
                    "data.template",
                    "the template leaves out the answer",
                )
            remarks = ["reasoning"]
        if conversation.tools and text == self._template.render(Conversation(conversation.turns)):
            remarks.append("tools")
        return _Rendered(planned.row, text, spans, tuple(remarks))

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) if text else []

    def _with_offsets(self, texts: list[str]) -> list[tuple[list[int], Sequence[Span] | None]]:
        """The ids of each text with the characters of each token; None for a tokenizer that cannot tell."""
        if not texts:
            return []
        told = self._tokenizer.is_fast
        encoded = self._tokenizer(texts, add_special_tokens=False, return_offsets_mapping=told, verbose=False)
        offsets = encoded["offset_mapping"] if told else [None] * len(texts)
        return list(zip(encoded["input_ids"], offsets, strict=True))

    def _tokenized(self, made: _Rendered, ids: list[int], offsets: Sequence[Span] | None) -> TokenizedRow | RowError:
        try:
            ids, spans = self._tokens(made, list(ids), offsets)
            if made.framed:
                ids, spans = self._in_frame(ids, spans)
            else:
                spans = [(begin, self._end_of_turn(ids, begin, end)) for begin, end in spans]
            return self._checked(self._labelled(made, ids, spans), made.row)
        except RowError as error:
            return error

    def _in_frame(self, ids: list[int], spans: list[Span]) -> tuple[list[int], list[Span]]:
        """With the BOS token that this tokenizer puts in front of texts, and an end token, once each."""
        bos, end = self._tokenizer.bos_token_id, self._tokenizer.eos_token_id
        front = [bos] if self._begins_texts and ids[:1] != [bos] else []
        behind = [end] if ids[-1:] != [end] else []
        ((begin, _),) = spans
        ids = [*front, *ids, *behind]
        return ids, [(begin + len(front), len(ids))]

    def _labelled(self, made: _Rendered, ids: list[int], spans: list[Span]) -> TokenizedRow:
        if not made.framed:
            for (begin, end), piece in zip(spans, made.spans, strict=True):
                self._refuse_other_text(ids[begin:end], made.text[slice(*piece)])
        # Every position but the first can be supervised: nothing comes before that.
        carrying = [(1, len(ids))] if self._supervise == "all" else [(max(b, 1), e) for b, e in spans]
        begin, end = spans[-1]
        if made.row.kind == "text":
            return TokenizedRow(made.row.where, ids, tuple(carrying), None, 0, None)
        reference = self._tokenizer.decode(ids[begin:end], skip_special_tokens=True)
        return TokenizedRow(made.row.where, ids, tuple(carrying), begin, end - begin, reference, made.remarks)

    def _tokens(self, made: _Rendered, ids: list[int], offsets: Sequence[Span] | None) -> tuple[list[int], list[Span]]:
        """The ids of a text, and the tokens of each of its spans."""
        if offsets is None:
            return self._tokens_by_piece(made, ids)
        ends = [end for _, end in offsets]
        spans = [(bisect_right(ends, begin), bisect_right(ends, end)) for begin, end in made.spans]
        whole = all(
            at < stop and offsets[at][0] >= begin and self._leads_alone(made.text[:begin], ids[:at], offsets)
            for (at, stop), (begin, _) in zip(spans, made.spans, strict=True)
        )
        return (ids, spans) if whole else self._tokens_by_piece(made, ids)

    def _leads_alone(self, text: str, ids: Sequence[int], offsets: Sequence[Span]) -> bool:
        """Whether a text that an answer follows is made into these tokens also where nothing follows.

        Many tokenizers split white space by what comes after it. They split at control tokens in any case, so what
        stands behind the last of them is enough to look at.
        """
        if not text[-1:].isspace():
            return True
        last = next((at for at in reversed(range(len(ids))) if ids[at] in self._special), 0)
        return self._alone(text[offsets[last][0] :]) == ids[last:]

    def _tokens_by_piece(self, made: _Rendered, together: list[int]) -> tuple[list[int], list[Span]]:
        """Each prompt and each answer made into tokens by itself, as generation meets them."""
        cuts = [0, *(edge for span in made.spans for edge in span), len(made.text)]
        ids: list[int] = []
        edges = []
        for begin, end in pairwise(cuts):
            ids += self._ids(made.text[begin:end])
            edges.append(len(ids))
        if self._tokenizer.decode(ids) != self._tokenizer.decode(together):
            raise RowError(
                "the prompt's tokens are not a prefix of the row's tokens, and this tokenizer cannot be given the two "
                "apart: begin the completion with a word, not with white space",
                "the prompt's tokens are not a prefix of the row's",
            )
        return ids, [(edges[2 * number], edges[2 * number + 1]) for number in range(len(made.spans))]

    def _end_of_turn(self, ids: list[int], begin: int, end: int) -> int:
        """Leave out what a template puts between turns (a line end): generation stops at the end token before it."""
        behind = end
        while behind > begin and ids[behind - 1] not in self._special and self._blank(ids[behind - 1]):
            behind -= 1
        return behind if behind > begin and ids[behind - 1] in self._special else end

    def _blank(self, token: int) -> bool:
        return not self._tokenizer.decode(token).strip()

    def _refuse_other_text(self, ids: list[int], piece: str) -> None:
        """Read the supervised ids back. A tokenizer that loses something of a text loses it here too."""
        read = squeezed(self._tokenizer.decode(ids))
        if read != squeezed(piece) and read != squeezed(self._tokenizer.decode(self._ids(piece))):
            raise RowError(
                f"the supervised tokens read {read[:40]!r} where the text says {squeezed(piece)[:40]!r}",
                "the supervised tokens are not the answer's",
            )

    def _checked(self, row: TokenizedRow, source: Row) -> TokenizedRow:
        """What goes into the batch, looked at once more. Raises RowError."""
        bos = self._tokenizer.bos_token_id
        if bos is not None and bos != self._tokenizer.eos_token_id and row.input_ids[:2] == [bos, bos]:
            raise RowError("begins with two BOS tokens: the text or the template has one too many", "two BOS tokens")
        if row.supervised <= 0:
            raise RowError("has no token that carries loss", "no token carries loss")
        remarks = [*row.remarks, *self._remarks(row, source)]
        return TokenizedRow(**{**vars(row), "remarks": tuple(remarks)})

    def _remarks(self, row: TokenizedRow, source: Row) -> Iterator[str]:
        answer_end = len(row.input_ids) if row.prompt_length is None else row.prompt_length + row.answer_length
        if row.input_ids[answer_end - 1] not in self._special:
            yield "unended"
        if self._begins_texts and row.input_ids[0] != self._tokenizer.bos_token_id:
            yield "no bos"
        if self._control is not None and self._control.search(_own_text(source)):
            yield "control"


def _own_text(row: Row) -> str:
    """All text that came from the person's file, one piece a line."""
    parts = []
    for part in (row.context, row.target):
        parts += [part] if isinstance(part, str) else [str(turn.get("content") or "") for turn in part]
    return "\n".join(parts)
