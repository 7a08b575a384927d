"""A plan for people: what each arm changes and takes, what is done, what it will cost and could show."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ftx.config.values import shown
from ftx.record.study_record import StudyRecord
from ftx.report.live import duration
from ftx.report.study import plan_lines

_MOST_DERIVED = 3


def plan_report(record: StudyRecord, notes: Sequence[str], found: Mapping[str, Any]) -> Iterator[Any]:
    """Tables and lines, from `ftx.study.summary`."""
    yield from plan_lines(record, notes, found["to_run"], found["budget"]["max_runs"])
    yield _arms_table(found["arms"])
    yield from (f"Note: {finding['detail']}" for finding in found["findings"])
    yield _estimate_line(found)
    yield _detectable_line(found)
    yield from (f"Left out: {problem}" for problem in found["problems"])


def _arms_table(arms: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="What each arm changes", title_justify="left")
    for heading in ("arm", "changes", "follows", "rows", "steps", "tokens"):
        number = heading in ("rows", "steps", "tokens")
        table.add_column(heading, justify="right" if number else "left", overflow="fold", no_wrap=number)
    for arm in arms:
        cells = (arm["arm"], _changes(arm["changes"]), _changes(arm["derived"]))
        table.add_row(*map(Text, cells), *(f"{arm[name]:,}" for name in ("train_rows", "steps", "tokens")))
    return table


def _changes(changes: Sequence[Mapping[str, Any]]) -> str:
    parts = [f"{change['key']} {shown(change['baseline'])} -> {shown(change['value'])}" for change in changes]
    more = f" and {len(parts) - _MOST_DERIVED} more" if len(parts) > _MOST_DERIVED else ""
    return "\n".join(parts[:_MOST_DERIVED]) + more


def _estimate_line(found: Mapping[str, Any]) -> str:
    if not found["to_run"]:
        return "Time: nothing to run."
    estimate = found["estimate"]
    if estimate is None:
        return "Time and memory: unknown, no run of this model on this device and with as many threads has finished."
    slots = found["slots"]
    memory = estimate["peak_memory_bytes"]
    at_once = min(slots, len(found["to_run"]))
    size = "memory unknown" if memory is None else f"up to {memory / 2**20:,.0f} MiB a run, {at_once} at a time"
    return (
        f"Time: about {duration(estimate['seconds'] / at_once)} on {at_once} slots "
        f"({duration(estimate['seconds'])} of runs); {size}; measured on {', '.join(estimate['sources'])}"
    )


def _detectable_line(found: Mapping[str, Any]) -> str:
    noise, metric = found["detectable_effect"], found["metric"]["name"]
    if noise is None:
        return (
            f"Smallest effect that this design could find: unknown, no arm has two finished replicates here "
            f"(study=seed_noise measures the noise of {metric})."
        )
    sd = f"sd {noise['noise_sd']:.4g} with {noise['noise_df']} degrees of freedom, from {', '.join(noise['sources'])}"
    if noise["effect"] is None:
        return (
            f"Noise of {metric} between replicates: {sd}. A design needs two arms and two replicates to find an effect."
        )
    return f"Smallest effect on {metric} that this design finds with 80% power: {noise['effect']:.4g} ({sd})"
