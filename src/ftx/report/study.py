"""A study as tables: what it will run, and what has become of it. Differences are for the aggregator to judge."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ftx.config.values import shown
from ftx.record.layout import JOB_OUTPUT, RunDir, StudyDir
from ftx.record.study_record import StudyRecord, TrialRecord

_MARKS = {"done": "done", "running": "running", "failed": "failed", "missing": "to run"}
_MOST_LISTED = 10


def arms_of(record: StudyRecord) -> dict[str, list[TrialRecord]]:
    """The trials of every arm, the baseline first."""
    arms: dict[str, list[TrialRecord]] = {}
    for trial in record.trials:
        arms.setdefault(trial.arm, []).append(trial)
    return dict(sorted(arms.items(), key=lambda item: not item[1][0].is_baseline))


def plan_lines(
    record: StudyRecord, notes: Sequence[str], to_run: Collection[str], max_runs: int | None
) -> Iterator[Any]:
    """What the study is and what this start will run: trials by name, and the budget if there is one."""
    yield arms_table(record)
    yield from notes
    reused = [trial for trial in record.trials if trial.reused]
    if reused:
        yield f"{len(reused)} finished runs are used again:"
        yield from _some(f"  {trial.name}: {trial.run}" for trial in reused)
    other = [trial for trial in record.trials if trial.state == "missing" and trial.status == "finished"]
    yield from _some(f"{trial.name}: {trial.reason}; it is trained anew" for trial in other if trial.name in to_run)
    counts = {state: sum(trial.state == state for trial in record.trials) for state in _MARKS}
    rest = counts["missing"] + counts["failed"] - len(to_run)
    left = f", {rest} left for another time" if rest else ""
    budget = f" (study.max_runs={max_runs})" if rest and max_runs is not None else ""
    yield (
        f"{len(record.trials)} runs: {counts['done']} finished, {counts['running']} running elsewhere, "
        f"{len(to_run)} to run now{left}{budget}"
    )


def _some(lines: Iterable[str]) -> Iterator[str]:
    """The first few lines, and how many more there are."""
    lines = list(lines)
    yield from lines[:_MOST_LISTED]
    if len(lines) > _MOST_LISTED:
        yield f"  and {len(lines) - _MOST_LISTED} more; --json lists all"


def arms_table(record: StudyRecord) -> Table:
    """A row an arm: its level, and how many of its replicates are where."""
    replicates = ", ".join(f"{key}={','.join(map(str, values))}" for key, values in record.replicates.items())
    metric = record.metric
    title = f"Study {record.study}: {record.design}, {replicates}, {metric['name']} ({metric['direction']})"
    table = Table(title=Text(title), title_justify="left")
    table.add_column("factor", overflow="fold")
    table.add_column("level", overflow="fold")
    for heading in _MARKS.values():
        table.add_column(heading, justify="right")
    for trials in arms_of(record).values():
        counts = [sum(trial.state == state for trial in trials) for state in _MARKS]
        table.add_row(*map(Text, _role(record, trials[0])), *(str(count) if count else "" for count in counts))
    return table


def _role(record: StudyRecord, trial: TrialRecord) -> tuple[str, str]:
    if trial.is_baseline:
        values = ", ".join(f"{factor['name']}={_shown(factor['baseline'])}" for factor in record.factors)
        return "baseline", values
    if trial.factor is not None:
        return trial.factor, _shown(trial.level)
    return "+".join(trial.levels), ", ".join(_shown(level) for level in trial.levels.values())


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={shown(item)}" for key, item in value.items())
    return shown(value)


def closing_lines(record: StudyRecord, folder: StudyDir, command: str, planned: Collection[str]) -> Iterator[Any]:
    """What has become of the study; failures with where their tracebacks are; how to go on."""
    mine = [trial for trial in record.trials if trial.name in planned]
    counts = {state: sum(trial.state == state for trial in mine) for state in _MARKS}
    unsuccessful = [
        trial
        for trial in mine
        if trial.state in ("failed", "missing") and trial.status != "finished" and (trial.reason or trial.run)
    ]
    if unsuccessful:
        yield failures_table(unsuccessful, folder)
    running = f", {counts['running']} running" if counts["running"] else ""
    missing = [trial.name for trial in mine if trial.state == "missing"]
    yield (
        f"Study {record.study}: {counts['done']} of {len(mine)} runs finished, {counts['failed']} failed, "
        f"{counts['missing']} missing{running}"
    )
    if missing:
        yield f"Missing: {'; '.join(missing)}"
    yield f"Study directory: {folder.path}"
    if counts["failed"] or counts["missing"]:
        yield f"To go on, the same command: {command}"


def failures_table(trials: Sequence[TrialRecord], folder: StudyDir) -> Table:
    """A row an unsuccessful trial, with the file that holds its traceback."""
    table = Table(title="Unsuccessful runs", title_justify="left")
    for heading in ("run", "status", "reason", "log and traceback"):
        table.add_column(heading, overflow="fold")
    for trial in trials:
        printed = folder.job(trial.name, trial.fingerprint["train"]) / JOB_OUTPUT
        log = RunDir(Path(trial.run)).log if trial.run else printed if printed.is_file() else ""
        table.add_row(*map(Text, (trial.name, trial.status or "not run", trial.reason or "", str(log))))
    return table
