"""The table at the end of a run: every evaluation, the one that counts, what it cost and where it lies."""

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ftx.record.history import Event
from ftx.record.layout import RunDir
from ftx.record.losses import mean_train_loss
from ftx.record.run_record import RunRecord, alterations, forced_resumes, moved_surroundings

PROGRAMS = ("python", "tensorboard")


def print_summary(console: Console, record: RunRecord, events: Sequence[Event], run: RunDir) -> None:
    """Print what a finished run achieved and what to type next."""
    console.print(epoch_table(record, events))
    for line in (*result_lines(record), *cost_lines(record), *where_lines(record, run)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def epoch_table(record: RunRecord, events: Sequence[Event]) -> Table:
    """A row per evaluation on validation; the checkpoint that counts is marked."""
    evaluations = [event for event in events if event.split == "validation"]
    scored = any("exact_match" in event.metrics for event in evaluations)
    table = Table(title=Text(f"{record.model} on {record.dataset['path']}, seed {record.seed}"), title_justify="left")
    for heading in ("epoch", "step", "train_loss", "eval_loss", "token accuracy"):
        table.add_column(heading, justify="right")
    if scored:
        table.add_column("exact match", justify="right")
    table.add_column("")
    before = 0
    chosen = (record.result["checkpoint"] or {}).get("step")
    for event in evaluations:
        mark = f"<- {record.result['checkpoint']['at']}" if event.step == chosen else ""
        cells = [
            "start" if event.step == 0 else number(event.epoch, 2),
            str(event.step),
            number(mean_train_loss(events, before, event.step)),
            number(event.metrics.get("loss")),
            number(event.metrics.get("token_accuracy")),
        ]
        if scored:
            cells.append(number(event.metrics.get("exact_match")))
        table.add_row(*cells, mark, style="bold" if mark else None)
        before = event.step
    return table


def result_lines(record: RunRecord) -> list[str]:
    """The primary metric with where it was measured, and the task scores apart from it."""
    result, lines = record.result, []
    if result["checkpoint"] is not None:
        at, step = result["checkpoint"]["at"], result["checkpoint"]["step"]
        epoch = number(result["checkpoint"]["epoch"], 2)
        lines.append(
            f"{at} checkpoint: step {step} (epoch {epoch}), {result['metric']} on validation "
            f"{number(result['validation_value'])}"
        )
        if result["same_rows"]:
            lines.append("No test split: the checkpoint was selected and measured on the same rows.")
        else:
            lines.append(f"{result['metric']} on test: {number(result['value'])}")
    for name, values in (result.get("secondary") or {}).items():
        lines.append(f"{name} (secondary) on validation {number(values['validation'])}, test {number(values['test'])}")
    for split, scores in record.scores.items():
        lines.append(
            f"exact match on {split}: {number(scores['exact_match'])} of {scores['n']} rows "
            f"({scores['ran_into_limit']:.0%} of outputs ran into the length limit)"
        )
    if record.stop_reason:
        lines.append(f"Stopped early: {record.stop_reason}")
    return [*lines, *resumed_lines(record)]


def resumed_lines(record: RunRecord) -> list[str]:
    """Whether the run was resumed, and what of that keeps it from being one run of its settings."""
    if not record.resumes:
        return []
    steps = ", ".join(str(resume["step"]) for resume in record.resumes)
    lines = [f"Resumed after step {steps}"]
    forced = forced_resumes(record)
    if forced:
        lines.append(f"Forced (resume_force=true): {', '.join(forced)}")
    other = [change for change in alterations(record) if change not in forced]
    if other:
        lines.append(f"Settings changed on the way: {', '.join(other)}")
    if moved := moved_surroundings(record):
        lines.append(f"Surroundings changed on the way: {', '.join(moved)}")
    return lines


def cost_lines(record: RunRecord) -> list[str]:
    """Seconds, throughput, memory and parameters."""
    cost = record.cost
    memory = cost["peak_memory_bytes"]
    return [
        f"{number(cost['seconds'], 1)} s, {number(cost['tokens_per_second'], 0)} tokens/s, "
        f"peak memory {'unknown' if memory is None else f'{memory / 2**20:,.0f} MiB'}, "
        f"{cost['trainable_parameters']:,} trainable parameters"
    ]


def where_lines(record: RunRecord, run: RunDir) -> list[str]:
    """The run directory, and what to type next."""
    here = {name: _as_typed(Path(sys.executable).with_name(name)) for name in PROGRAMS}
    again = [here["python"], *record.command[1:], "lora.rank=32"]
    return [
        f"Run directory: {run.path}",
        f"Curves:            {here['tensorboard']} --logdir {run.path.parent}",
        f"Change one thing:  {shlex.join(again)}",
    ]


def _as_typed(program: Path) -> str:
    """The shortest way to type a program of this environment: its name where the shell finds that one."""
    if shutil.which(program.name) == str(program):
        return program.name
    return str(program.relative_to(Path.cwd())) if program.is_relative_to(Path.cwd()) else str(program)


def failure_lines(record: RunRecord, run: RunDir) -> list[str]:
    """How an unsuccessful run ended and where to look; nothing for a finished one."""
    if record.status == "finished":
        return []
    return [f"{record.status}: {record.error or record.stop_reason}", f"Log and traceback: {run.log}"]


def number(value: Any, digits: int = 4) -> str:
    """A number with fixed digits, or a dash where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"
