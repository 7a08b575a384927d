"""run.json: everything that says what produced a run's numbers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from ftx.errors import RecordError
from ftx.record.atomic import read_json, write_json
from ftx.record.labbook import FIELDS, type_problem, unknown_field
from ftx.record.layout import RunDir
from ftx.record.strict_json import restored

SCHEMA_VERSION = 2
STATUSES = ("running", "finished", "failed", "diverged", "out_of_memory", "interrupted", "killed")

DATASET = ("path", "sha256", "train_examples", "validation_examples")
HARDWARE = ("os", "machine", "python", "accelerator", "device_name")
LOSSES = (
    "first_train_loss",
    "final_train_loss",
    "best_eval_loss",
    "best_epoch",
    "best_step",
    "final_eval_loss",
    "seconds",
)
RESULT = ("metric", "direction", "split", "checkpoint", "value", "validation_value", "same_rows")
FINGERPRINT = ("train", "evaluation")
COST = (
    "seconds",
    "tokens_per_second",
    "peak_memory_bytes",
    "trainable_parameters",
    "steps",
    "tokens",
    "trained_tokens",
    "effective_batch",
)
DECLARED = {
    "dataset": DATASET,
    "hardware": HARDWARE,
    "losses": LOSSES,
    "result": RESULT,
    "fingerprint": FINGERPRINT,
    "cost": COST,
}
"""Keys that each of these objects always has, null when unknown; more keys may stand beside them."""

_PROCESS = {"host", "boot_id", "pid", "started"}
_NUMBERS_INSIDE = {"losses": LOSSES, "cost": COST, "result": ("value", "validation_value")}
_TEXTS_INSIDE = {
    "fingerprint": FINGERPRINT,
    "dataset": ("path", "sha256", "template_sha256"),
    "hardware": ("accelerator", "device_name"),
    "result": ("metric", "direction", "split"),
}
_NUMBERS = ("losses", "scores", "result", "cost")  # where the strings "NaN" and "Infinity" are numbers
_OBJECTS = ("result", "code", "fingerprint", "cost", "config")
_OBJECTS_OR_NULL = ("made_by", "process")
_LISTS = ("resumes", "reproductions")
_TEXTS_OR_NULL = ("stop_reason", "error", "hypothesis", "resumed_from")


@dataclass(kw_only=True)
class RunRecord:
    """The whole run.json. Change a copy (`dataclasses.replace`), then `write` it."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    """See `new_run_id`."""
    lab: str = "single"
    """The study that started the run, or "single"."""
    date: str
    """Start of the run, see `utc_date`."""
    status: str = "running"
    """One of STATUSES."""
    stop_reason: str | None = None
    error: str | None = None
    """The error in one line; the traceback is in job.log."""
    config_commit: str | None = None
    """Short commit of the repository holding the configuration, "-dirty" appended; None: unknown."""
    model: str
    dataset: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(DATASET))
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    seed: int
    hardware: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(HARDWARE))
    versions: dict[str, Any] = field(default_factory=dict)
    losses: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(LOSSES))
    scores: dict[str, Any] = field(default_factory=dict)
    notes: str = ""
    hypothesis: str | None = None
    result: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(RESULT))
    code: dict[str, Any] = field(default_factory=dict)
    """Git state of the configuration and state of ftx, with the reason for what is unknown."""
    fingerprint: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(FINGERPRINT))
    made_by: dict[str, Any] | None = None
    """Study and arm that asked for the run; None: a person."""
    cost: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(COST))
    command: list[str] = field(default_factory=list)
    """The arguments that repeat the run."""
    resumed_from: str | None = None
    """The checkpoint of the last resume, relative to the run directory, or "start"; None: never resumed."""
    resumes: list[dict[str, Any]] = field(default_factory=list)
    """Every resume, see `Resume`."""
    reproductions: list[dict[str, Any]] = field(default_factory=list)
    """Verdicts of this run beside one that repeats it, see `ftx.comparison.reproduction`."""
    process: dict[str, Any] | None = None
    """Which process writes the record, see `provenance.process_identity`."""
    config: dict[str, Any] = field(default_factory=dict)
    """The whole resolved configuration."""

    def write(self, run_dir: RunDir) -> None:
        """Write run.json atomically. RecordError, and nothing written, if the record is not valid."""
        values = self._values()
        _check(values, run_dir.record)
        write_json(run_dir.record, values)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a run.json; RecordError names the file and every missing, unknown or wrong field.

        Non-finite numbers among losses, scores, result and cost are floats again.
        """
        values = _upgraded(read_json(path))
        _check(values, path)
        return cls(**values | {name: restored(values[name]) for name in _NUMBERS})

    def _values(self) -> dict[str, Any]:
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}


@dataclass(frozen=True, kw_only=True)
class Resume:
    """How a run went on after it had ended: one entry of a record's `resumes`, as `dataclasses.asdict` makes it."""

    date: str
    checkpoint: str
    """As in `resumed_from`."""
    step: int
    """Optimiser steps that were done already."""
    after: str
    """Status of the run before, and why, in words."""
    command: list[str]
    """What was typed."""
    changes: list[dict[str, Any]]
    """Settings with another value than in the checkpoint: `key`, `before`, `now`."""
    surroundings: list[str]
    """Code, versions or device that differ from those the run began with, in words."""
    skipped: list[str]
    """Newer checkpoints that could not be used, and why."""
    forced: list[str]
    """What resume_force=true has allowed; empty: nothing had to be."""
    altered: list[str]
    """What gives the run other weights than an unbroken one with the settings of now, in words."""
    config_commit: str | None = None
    """As the record's own field, which says it of the first start."""


def forced_resumes(record: RunRecord) -> list[str]:
    """What resume_force=true has allowed in any resume of the run; empty for a run to be trusted."""
    return [problem for resume in record.resumes for problem in resume.get("forced", [])]


def alterations(record: RunRecord) -> list[str]:
    """What gives the run other weights than an unbroken one of its settings, in words, since it last began anew."""
    found: list[str] = []
    for resume in record.resumes:
        found = [*found, *resume.get("altered", [])] if resume.get("step") else []
    return found


def moved_surroundings(record: RunRecord) -> list[str]:
    """Code, versions or device of resumes that were not those of the first start, in words."""
    return list(dict.fromkeys(other for resume in record.resumes for other in resume.get("surroundings", [])))


RECORD_FIELDS = tuple(entry.name for entry in fields(RunRecord))


def new_run_id(now: datetime, entropy: bytes) -> str:
    """Name a run: UTC time of its start as YYYYMMDDTHHMMSSZ, and six hex digits from three random bytes."""
    if len(entropy) < 3:
        raise ValueError(f"entropy must be at least 3 bytes, got {len(entropy)}")
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{entropy[:3].hex()}"


def utc_date(now: datetime) -> str:
    """Format a moment as the run log's `date`: UTC, to the second, 2026-01-31T12:00:00Z."""
    return f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def labbook_entry(record: RunRecord) -> dict[str, Any]:
    """Return the thirteen fields of the run log, in its order."""
    return {name: getattr(record, name) for name in FIELDS}


def _upgraded(values: dict[str, Any]) -> dict[str, Any]:
    """A record as this version writes it; fields that an older one did not have are empty."""
    if values.get("schema_version") != 1:
        return values
    return {name: [] for name in _LISTS} | values | {"schema_version": SCHEMA_VERSION}


def _check(values: Mapping[str, Any], path: Path) -> None:
    """Raise RecordError with every problem, each on a line of its own that names the file."""
    problems = record_problems(values)
    if problems:
        raise RecordError("\n".join(f"{path}: {problem}" for problem in problems))


def record_problems(values: Mapping[str, Any]) -> list[str]:
    """Say everything that keeps `values` from being a RunRecord; empty: it is one."""
    version = values.get("schema_version")
    if type(version) is int and version > SCHEMA_VERSION:
        return [f"schema_version: {version} was written by a newer ftx, this one reads up to {SCHEMA_VERSION}"]
    problems = [unknown_field(name, RECORD_FIELDS) for name in values if name not in RECORD_FIELDS]
    for name in RECORD_FIELDS:
        problems += _field_problems(name, values[name]) if name in values else [f"{name}: missing"]
    return problems or list(_kind_problems(values))


def _kind_problems(values: Mapping[str, Any]) -> Iterator[str]:
    """Values of the wrong kind where readers count on one: numbers, texts and objects inside of the objects."""
    numbers = {f"{where}.{name}": values[where][name] for where, names in _NUMBERS_INSIDE.items() for name in names}
    texts = {f"{where}.{name}": values[where].get(name) for where, names in _TEXTS_INSIDE.items() for name in names}
    texts |= {f"versions.{name}": version for name, version in values["versions"].items()}
    content, code = values["dataset"].get("content"), values["code"]
    perhaps = {"dataset.content": content, **{f"code.{name}": found for name, found in code.items()}}
    objects = {
        **{f"dataset.content.{split}": found for split, found in _items(content)},
        **{f"scores.{split}": found for split, found in values["scores"].items()},
        **{f"config.{name}": values["config"].get(name, {}) for name in ("metric", "score")},
    }
    yield from _not(numbers, is_number, "a number or null", null=True)
    yield from _not(texts, lambda value: isinstance(value, str), "a text or null", null=True)
    yield from _not(perhaps, lambda value: isinstance(value, dict), "an object or null", null=True)
    yield from _not(objects, lambda value: isinstance(value, dict), "an object", null=False)
    if values["process"] is not None and not set(values["process"]) >= _PROCESS:
        yield f"process: expected {', '.join(sorted(_PROCESS))}"


def _not(values: Mapping[str, Any], right: Callable[[Any], bool], expected: str, *, null: bool) -> Iterator[str]:
    for name, value in values.items():
        if not right(value) and not (null and value is None):
            yield f"{name}: expected {expected}, got {value!r:.60}"


def is_number(value: Any) -> bool:
    """Whether JSON's value is a number here, "NaN" and "Infinity" among them."""
    return (isinstance(value, (int, float)) and not isinstance(value, bool)) or isinstance(restored(value), float)


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _field_problems(name: str, value: Any) -> list[str]:
    problems = type_problem(name, value) if name in FIELDS else _own_type_problem(name, value)
    if not problems and name in DECLARED:
        problems = [f"{name}.{key}: missing; null if not known" for key in DECLARED[name] if key not in value]
    return problems


def _own_type_problem(name: str, value: Any) -> list[str]:
    """Check the fields that are not in the run log."""
    if name == "status":
        right, expected = value in STATUSES, f"one of {', '.join(STATUSES)}"
    elif name == "schema_version":
        right, expected = type(value) is int and value >= 1, "an integer of at least 1"
    elif name == "command":
        right = isinstance(value, list) and all(isinstance(part, str) for part in value)
        expected = "a list of texts"
    elif name in _LISTS:
        right = isinstance(value, list) and all(isinstance(each, dict) for each in value)
        expected = "a list of objects"
    elif name in _OBJECTS:
        right, expected = isinstance(value, dict), "an object"
    elif name in _OBJECTS_OR_NULL:
        right, expected = value is None or isinstance(value, dict), "an object or null"
    else:
        assert name in _TEXTS_OR_NULL, name
        right, expected = value is None or isinstance(value, str), "a text or null"
    return [] if right else [f"{name}: expected {expected}, got {value!r:.60}"]
