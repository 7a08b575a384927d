"""history.jsonl: every logged value of a run, whatever the trackers do."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftx.errors import RecordError
from ftx.record.atomic import write_text
from ftx.record.layout import RunDir
from ftx.record.lines import append_line, parse_object, read_lines
from ftx.record.strict_json import dumps, restored

_KEYS = ("step", "epoch", "split", "metrics", "time")


@dataclass
class Event:
    """The values logged for one split at one step."""

    step: int
    """Finished optimiser steps; 0 is before training."""
    epoch: float | None
    """Passes over the training rows so far."""
    split: str
    """train, validation or test."""
    metrics: dict[str, Any]
    """Metric name to number; a float may be NaN, None is unknown."""
    time: float | None
    """Seconds since 1970-01-01 UTC."""


def append_event(
    path: Path,
    *,
    step: int,
    epoch: float | None,
    split: str,
    metrics: Mapping[str, Any],
    time: float | None,
) -> None:
    """Append one event as a line of strict JSON; it is in the file when this returns."""
    event = {"step": step, "epoch": epoch, "split": split, "metrics": metrics, "time": time}
    append_line(path, dumps(event))


def read_history(path: Path) -> tuple[list[Event], list[str]]:
    """Return one event per (step, split), sorted by step, and a problem in words for each unusable line.

    A metric logged twice for a step, as after a resume, has its later value. Never raises on bad content.
    """
    events: dict[tuple[int, str], Event] = {}
    problems = []
    try:
        for number, line in read_lines(path):
            if not line:
                continue
            try:
                event = _parse(line)
            except RecordError as error:
                problems.append(f"{path.name}, line {number}: {error}")
                continue
            earlier = events.get((event.step, event.split))
            if earlier:
                event.metrics = earlier.metrics | event.metrics
            events[event.step, event.split] = event
    except OSError as error:
        problems.append(f"{path.name}: cannot be read ({error.strerror})")
    return sorted(events.values(), key=lambda event: event.step), problems


def rewind(run: RunDir, step: int | None) -> None:
    """Let the history end with `step`, before the run trains on from there; what came later moves to superseded.jsonl.

    Lines that cannot be read go there too, and those of the test split, which is measured after the last step.

    Args:
        run: whose history.
        step: of the checkpoint that the run goes on from; None: it begins anew, and its look before the first step too.
    """
    if not run.history.exists():
        return
    kept: list[str] = []
    later: list[str] = []
    for _, line in read_lines(run.history):
        text = line.decode("utf-8", "replace")
        (kept if _until(line, step) else later).append(text)
    for text in later:
        append_line(run.superseded, text, durable=True)
    write_text(run.history, "".join(f"{text}\n" for text in kept))


def _until(line: bytes, step: int | None) -> bool:
    if step is None:
        return False
    try:
        event = _parse(line)
    except RecordError:
        return False
    return event.step <= step and event.split != "test"


def _parse(line: bytes) -> Event:
    values = parse_object(line)
    lacking = [key for key in _KEYS if key not in values]
    if lacking:
        raise RecordError(f"no {', '.join(lacking)}")
    event = Event(**{key: values[key] for key in _KEYS})
    if type(event.step) is not int or not isinstance(event.split, str) or not isinstance(event.metrics, dict):
        raise RecordError("step must be an integer, split a text, metrics an object")
    event.metrics = restored(event.metrics)
    return event
