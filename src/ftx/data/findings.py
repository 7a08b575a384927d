"""What a person should know before paying: each finding graded, with the remedy in its words."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ftx.config.schema import DataConfig
from ftx.errors import ConfigError

Grade = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. A `problem` refuses a run, a `note` is said and recorded, `ok` was looked at."""

    grade: Grade
    topic: str
    """One or two words: splits, lengths, checkpoints."""
    detail: str
    """The field, the value, what was expected, and for a problem the remedy."""


def refuse_problems(findings: Iterable[Finding]) -> None:
    """Raise ConfigError with every problem; nothing where there is none."""
    problems = [finding.detail for finding in findings if finding.grade == "problem"]
    if problems:
        raise ConfigError(problems)


def notes(findings: Iterable[Finding]) -> list[str]:
    """The details of all notes."""
    return [finding.detail for finding in findings if finding.grade == "note"]


def data_findings(record: Mapping[str, Any], config: DataConfig) -> list[Finding]:
    """What can be seen in the record's `dataset`."""
    topics: tuple[Callable[[Mapping[str, Any], DataConfig], Iterator[Finding]], ...] = (
        _rows,
        _repeats,
        _overlap,
        _template,
        _lengths,
        _supervision,
    )
    return [finding for topic in topics for finding in topic(record, config)]


def _rows(record: Mapping[str, Any], config: DataConfig) -> Iterator[Finding]:
    for file in record["files"]:
        count, rows = file["bad_rows"]["count"], file["rows"]
        blank = f", {file['blank_lines']} blank lines passed over" if file["blank_lines"] else ""
        if not count:
            yield Finding("ok", "rows", f"{file['path']}: {rows} rows for {file['split']}{blank}")
            continue
        kinds = ", ".join(f"{number} x {kind}" for kind, number in file["bad_rows"]["kinds"].items())
        bad = f"{file['path']}: {count} of {rows} rows cannot be used ({kinds}){blank}"
        first = f"the first: {file['bad_rows']['shown'][0]}"
        if config.on_bad_row == "error":
            yield Finding("problem", "rows", f"{bad}: mend them ({first}), or leave them out by data.on_bad_row=skip")
        elif count / rows > config.max_dropped:
            yield Finding(
                "problem",
                "rows",
                f"{bad} and are skipped, more than data.max_dropped={config.max_dropped:g} allows: mend them "
                f"({first}), or allow more with data.max_dropped",
            )
        else:
            yield Finding("note", "rows", f"{bad} and are skipped ({first})")


def _repeats(record: Mapping[str, Any], config: DataConfig) -> Iterator[Finding]:
    for split, repeats in record["repeats"].items():
        if repeats["prompts"]:
            detail = f"{split}: rows with the prompt of an earlier row: {repeats['prompts']}"
            yield Finding("note", "duplicates", f"{detail}, of them equal in all: {repeats['rows']}")
        else:
            yield Finding("ok", "duplicates", f"{split}: every prompt stands once")


def _overlap(record: Mapping[str, Any], config: DataConfig) -> Iterator[Finding]:
    for overlap in record["overlap"]:
        words = overlap_in_words(overlap)
        if config.allow_overlap:
            yield Finding("note", "overlap", f"{words} (allowed by data.allow_overlap)")
        else:
            remedy = "take them out of one of the two, or say data.allow_overlap=true if you mean it"
            if record["split"]["group_by"] is not None:
                remedy = "equal prompts stand in several groups of data.group_by: leave it out, or allow_overlap=true"
            yield Finding("problem", "overlap", f"{words}: {remedy}")
    if not record["overlap"]:
        yield Finding("ok", "overlap", f"no prompt stands in two of {', '.join(record['content'])}")


def overlap_in_words(overlap: Mapping[str, Any]) -> str:
    """How many rows of a split have a prompt of another, and the first of them."""
    return (
        f"{overlap['rows']} of {overlap['of']} {overlap['second']} prompts are also in {overlap['first']}: "
        f"{'; '.join(overlap['shown'])}"
    )


_REMARKS = {
    "unended": "that do not end in an end token, so that the model does not learn to stop (another data.template?)",
    "no bos": "without the BOS token that this tokenizer puts in front of texts, because the template leaves it out",
    "control": "with a control token of the template in their text (a turn's end, say), which is read as that token",
    "reasoning": "with earlier answers that the template shortens or changes, as it does to reasoning",
    "tools": "with tools that the template says nothing of",
}


def _template(record: Mapping[str, Any], config: DataConfig) -> Iterator[Finding]:
    remarked = False
    for split, counts in record["remarks"].items():
        for remark, count in counts.items():
            remarked = True
            yield Finding("note", "template", f"{split}: rows {_REMARKS[remark]}: {count}")
    if not remarked:
        hashed = record["template_sha256"]
        which = "no chat template" if hashed is None else f"chat template {hashed[:8]}"
        yield Finding("ok", "template", f"{which}: every answer stands whole in its row and is ended by an end token")


def _lengths(record: Mapping[str, Any], config: DataConfig) -> Iterator[Finding]:
    for split, counts in record["lengths"].items():
        yield _length_finding(split, counts, config)


def _length_finding(split: str, counts: Mapping[str, Any], config: DataConfig) -> Finding:
    name = "max_seq_len" if split == "train" else "eval_max_seq_len"
    asked, limit = getattr(config, name), counts["limit"]
    is_ours = limit == asked
    bound = f"data.{name}={limit}" if is_ours else f"the model's own limit of {limit}"
    remedy = (
        f"raise data.{name}, shorten the rows" if is_ours else "shorten the rows, take a model with a longer context"
    )
    too_long = f"{counts['too_long']} of {counts['rows']} {split} rows are longer than {bound} tokens"
    if not counts["too_long"]:
        allowed = "no limit" if limit is None else f"at most {limit}"
        detail = f"{split}: the longest row has {counts['longest']} tokens ({allowed})"
        if not is_ours and asked is not None and split != "train":
            return Finding("note", "lengths", f"{detail}: data.{name}={asked} is more than the model can take")
        return Finding("ok", "lengths", detail)
    if config.on_long == "error":
        return Finding("problem", "lengths", f"{too_long}: {remedy}, or say data.on_long=drop or truncate")
    lost = f"{too_long}: {_what_became(counts, config)}"
    if (counts["dropped"] + counts["answers_cut"]) / counts["rows"] > config.max_dropped:
        allowed = f"more than data.max_dropped={config.max_dropped:g} allows"
        return Finding("problem", "lengths", f"{lost}, {allowed}: {remedy}, or allow more with data.max_dropped")
    return Finding("note", "lengths", lost)


def _what_became(counts: Mapping[str, Any], config: DataConfig) -> str:
    share = counts["target_tokens_lost"] / max(counts["target_tokens_lost"] + counts["target_tokens"], 1)
    tokens = f"{counts['target_tokens_lost']} target tokens lost ({share:.1%})"
    if config.on_long == "drop":
        return f"{counts['dropped']} dropped, {tokens}"
    return (
        f"{counts['dropped']} lost their whole answer and are dropped, {counts['truncated']} were cut, "
        f"{counts['answers_cut']} of them inside the answer, {tokens}"
    )


def _supervision(record: Mapping[str, Any], config: DataConfig) -> Iterator[Finding]:
    for split, counts in record["lengths"].items():
        if counts["target_tokens"]:
            share = counts["target_tokens"] / counts["tokens"]
            detail = f"{split}: {counts['target_tokens']:,} of {counts['tokens']:,} tokens carry loss ({share:.0%})"
            yield Finding("ok", "supervised", detail)
        elif not counts["rows"]:
            detail = f"data.weights={config.weights} leaves no {split} row: raise them, or give longer files"
            yield Finding("problem", "supervised", detail)
        else:
            detail = f"no {split} row has a token to learn from: all {counts['rows']} were dropped for their length"
            yield Finding("problem", "supervised", f"{detail}; raise the limit or shorten the rows")
