"""Rows as the model sees them, coloured by what carries loss; lengths, splits and findings."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

MOST_CHARACTERS = 1200  # of a stretch of a row; the middle of a longer one is left out
GRADE_STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}
_CARRIES_LOSS = "bold black on green"
_MARKS = ("[[", "]]")  # around what carries loss, where there are no colours
_PICTURES = {code: chr(0x2400 + code) for code in range(32)} | {0x7F: "␡", ord("\n"): "↵\n"}  # a terminal would obey


def inspection_report(found: Mapping[str, Any], *, colours: bool) -> Iterator[Any]:
    """Tables and lines, from `ftx.job.inspection`."""
    yield from (part for row in found["rows"] for part in _row(row, colours))
    yield _splits_table(found)
    yield _training_line(found["training"])
    yield from (f"cannot be used: {line}".translate(_PICTURES) for line in found["bad_rows"])
    yield _findings_table(found["findings"])


def _row(row: Mapping[str, Any], colours: bool) -> Iterator[Any]:
    text = Text()
    for piece in row["pieces"]:
        words = _shortened(piece["text"]).translate(_PICTURES)
        if piece["supervised"] and not colours:
            words = f"{_MARKS[0]}{words}{_MARKS[1]}"
        text.append(words, style=_CARRIES_LOSS if piece["supervised"] else "dim")
    yield Text(
        f"{row['split']} row {row['where']}: {row['tokens']} tokens, {row['supervised_tokens']} carry loss",
        style="bold",
    )
    yield text
    yield ""


def _shortened(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    half = MOST_CHARACTERS // 2
    return f"{text[:half]} ... {len(text) - 2 * half:,} characters more ... {text[-half:]}"


def _splits_table(found: Mapping[str, Any]) -> Table:
    """A column a split: a terminal is higher than it is wide."""
    table = Table(title=Text(f"{found['data']} for {found['model']}"), title_justify="left")
    table.add_column("")
    for split in found["splits"]:
        table.add_column(split, justify="right")
    for heading, value in _MEASURES.items():
        table.add_row(heading, *(_in_words(value(counts)) for counts in found["splits"].values()))
    return table


_MEASURES: dict[str, Callable[[Mapping[str, Any]], int | None]] = {
    "rows": lambda counts: counts["rows"],
    "rows used": lambda counts: counts["kept"],
    "rows that repeat a prompt": lambda counts: counts["repeats"]["prompts"],
    "tokens": lambda counts: counts["tokens"],
    "tokens that carry loss": lambda counts: counts["target_tokens"],
    "longest allowed row": lambda counts: counts["limit"],
    "rows that are longer": lambda counts: counts["too_long"],
    "median length in tokens": lambda counts: counts["quantiles"].get("p50"),
    "90% of rows are at most": lambda counts: counts["quantiles"].get("p90"),
    "99% of rows are at most": lambda counts: counts["quantiles"].get("p99"),
    "longest row": lambda counts: counts["quantiles"].get("max"),
}


def _in_words(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _training_line(training: Mapping[str, Any]) -> str:
    passes = "" if training["epochs"] is None else f" in {training['epochs']:g} epochs"
    evaluations = training["evaluation_steps"]
    return (
        f"One epoch: {training['tokens_per_epoch']:,} tokens, {training['target_tokens_per_epoch']:,} with loss, "
        f"{training['steps_per_epoch']:,} steps. The run: {training['steps']:,} steps{passes}, "
        f"{training['warmup_steps']:,} of warmup, {len(evaluations)} evaluations after the first."
    )


def _findings_table(findings: list[Mapping[str, Any]]) -> Table:
    table = Table(title="Findings", title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    order = list(GRADE_STYLES)
    for finding in sorted(findings, key=lambda finding: order.index(finding["grade"])):
        grade = Text(finding["grade"], style=GRADE_STYLES[finding["grade"]])
        table.add_row(grade, Text(finding["topic"]), Text(finding["detail"]))
    return table
