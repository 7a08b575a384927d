"""All splits as token ids within their length limits, with counts of everything that did not fit."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ftx.config.schema import DataConfig
from ftx.data.render import TokenizedRow, encode
from ftx.data.rows import Row
from ftx.data.splits import Splits
from ftx.errors import DataError


@dataclass(frozen=True)
class PreparedData:
    """Token ids of every split, and what the record says of them. `test` may be empty."""

    train: list[TokenizedRow]
    validation: list[TokenizedRow]
    test: list[TokenizedRow]
    record: dict[str, Any]

    def notices(self) -> list[str]:
        """What was left out, cut or found twice, one line each; nothing of it happens in silence."""
        lines = list(self.record["overlap"])
        for name, counts in self.record["lengths"].items():
            if counts["too_long"]:
                lines.append(
                    f"{counts['too_long']} of {counts['rows']} {name} rows are longer than {counts['limit']} tokens: "
                    f"{counts['dropped']} dropped, {counts['truncated']} cut, "
                    f"{counts['target_tokens_lost']} target tokens lost"
                )
        return lines

    def by_name(self) -> dict[str, list[TokenizedRow]]:
        """The splits that have rows."""
        named = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: rows for name, rows in named.items() if rows}


@dataclass(frozen=True)
class Fitted:
    """Rows within a length limit, and what became of the others."""

    rows: list[TokenizedRow]
    counts: dict[str, int]


def prepare(splits: Splits, config: DataConfig, tokenizer: Any, model_limit: int | None) -> PreparedData:
    """Tokenise every split; `model_limit` is the longest sequence the model can take, in tokens.

    Raises:
        DataError: rows the template refuses, too many rows too long, or nothing left to learn from.
    """
    limits = {
        "train": _smaller(config.max_seq_len, model_limit),
        "validation": _smaller(config.eval_max_seq_len, model_limit),
    }
    limits["test"] = limits["validation"]
    ready: dict[str, list[TokenizedRow]] = {}
    counts: dict[str, Any] = {}
    for name, rows in splits.by_name().items():
        fitted = fit(_encode_all(rows, tokenizer, config.supervise), limits[name], config.on_long)
        _refuse_losses(name, fitted, limits[name], config)
        ready[name] = fitted.rows
        counts[name] = {**fitted.counts, "limit": limits[name], **_token_counts(fitted.rows)}
    record = {
        **splits.record,
        "train_examples": len(ready["train"]),
        "validation_examples": len(ready["validation"]),
        "test_examples": len(ready.get("test", [])),
        "supervise": config.supervise,
        "template_sha256": template_sha256(tokenizer),
        "lengths": counts,
    }
    return PreparedData(ready["train"], ready["validation"], ready.get("test", []), record)


def fit(rows: Sequence[TokenizedRow], limit: int | None, on_long: str) -> Fitted:
    """Keep rows of at most `limit` tokens; drop or cut the others as `on_long` says.

    A row that loses its whole last answer to the cut is dropped: it would train nothing, and be scored on nothing.
    """
    kept: list[TokenizedRow] = []
    counts = {"rows": len(rows), "too_long": 0, "dropped": 0, "truncated": 0, "target_tokens_lost": 0}
    for row in rows:
        if limit is None or len(row.input_ids) <= limit:
            kept.append(row)
            continue
        counts["too_long"] += 1
        cut = _cut(row, limit) if on_long == "truncate" else None
        if cut is None or cut.supervised == 0 or limit <= (row.prompt_length or 0):
            counts["dropped"] += 1
            counts["target_tokens_lost"] += row.supervised
        else:
            counts["truncated"] += 1
            counts["target_tokens_lost"] += row.supervised - cut.supervised
            kept.append(cut)
    return Fitted(kept, counts)


def template_sha256(tokenizer: Any) -> str | None:
    """The hash of the chat template in use; None for a model without one."""
    template = tokenizer.chat_template
    return None if template is None else hashlib.sha256(template.encode()).hexdigest()


def _encode_all(rows: Sequence[Row], tokenizer: Any, supervise: str) -> list[TokenizedRow]:
    return [encode(row, tokenizer, supervise) for row in rows]


def _cut(row: TokenizedRow, limit: int) -> TokenizedRow:
    return replace(row, input_ids=row.input_ids[:limit], labels=row.labels[:limit])


def _refuse_losses(name: str, fitted: Fitted, limit: int | None, config: DataConfig) -> None:
    counts = fitted.counts
    key = "data.max_seq_len" if name == "train" else "data.eval_max_seq_len"
    asked = config.max_seq_len if name == "train" else config.eval_max_seq_len
    bound = f"{key}={limit}" if limit == asked else f"the model's own limit of {limit}"
    lost = f"{counts['dropped']} of {counts['rows']} {name} rows are longer than {bound} tokens"
    if config.on_long == "error" and counts["too_long"]:
        raise DataError(
            f"{counts['too_long']} of {counts['rows']} {name} rows are longer than {key}={limit} tokens: raise it, "
            "or say data.on_long=drop or truncate"
        )
    if config.on_long == "truncate":
        lost = f"{lost} and would lose their whole answer"
    if not any(row.supervised for row in fitted.rows):
        raise DataError(f"no {name} row has a token to learn from; {lost}")
    if counts["dropped"] > config.max_dropped * counts["rows"]:
        raise DataError(
            f"{lost}, more than data.max_dropped={config.max_dropped:g} allows: raise {key}, shorten the rows, "
            "or allow more with data.max_dropped"
        )


def _token_counts(rows: Sequence[TokenizedRow]) -> dict[str, int]:
    return {
        "kept": len(rows),
        "tokens": sum(len(row.input_ids) for row in rows),
        "target_tokens": sum(row.supervised for row in rows),
        "longest": max(len(row.input_ids) for row in rows),
    }


def _smaller(limit: int | None, model_limit: int | None) -> int | None:
    known = [bound for bound in (limit, model_limit) if bound is not None]
    return min(known) if known else None
