"""study.json: what a study compares, every launch, and every trial with its role and its run.

A run's role (arm, factor, level, baseline, replicate) stands here and nowhere else, because one run may serve
several studies.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from ftx.errors import RecordError
from ftx.record.atomic import read_json, write_json
from ftx.record.layout import StudyDir

SCHEMA_VERSION = 1
DESIGNS = ("ofat", "factorial")
DIRECTIONS = ("min", "max")
_FACTOR = {"name", "keys", "levels", "baseline", "baseline_level"}
STATES = ("done", "running", "failed", "missing")


@dataclass(kw_only=True)
class TrialRecord:
    """One arm in one replicate."""

    arm: str
    factor: str | None
    """The factor in which the arm differs; null for the baseline and for arms that differ in several."""
    level: Any
    """That factor's level: a value, an option's name, or values by key; null where `factor` is."""
    levels: dict[str, Any]
    """The level of every factor in which the arm differs."""
    is_baseline: bool
    replicate: Any
    """The replicate key's value; of several keys, all in one text."""
    replicates: dict[str, Any]
    """Every replicate key's value."""
    overrides: list[str]
    """What `python -m ftx.train` needs to run exactly this trial, whatever study files are there."""
    fingerprint: dict[str, str]
    unhashed: dict[str, Any] = field(default_factory=dict)
    """Keys that arms change outside of the fingerprint, with this trial's values."""
    state: str = "missing"
    """One of STATES."""
    status: str | None = None
    """The run record's own word, such as diverged or killed; null where there is no run."""
    reason: str | None = None
    run: str | None = None
    """The run directory, relative to where the study was started."""
    reused: bool = False
    """Whether the run was finished before this study asked for it."""

    @property
    def name(self) -> str:
        """Arm and replicate, for people."""
        return f"{self.arm} {trial_replicate(self.replicates)}"


def trial_replicate(values: Mapping[str, Any]) -> str:
    """Replicate keys and their values, as typed."""
    return " ".join(f"{key}={value}" for key, value in values.items())


@dataclass(kw_only=True)
class StudyRecord:
    """The whole study.json."""

    schema_version: int = SCHEMA_VERSION
    study: str
    design: str
    factors: list[dict[str, Any]]
    """Name, keys, levels and the baseline's value of each."""
    baseline: dict[str, Any]
    """`overrides`, `fingerprint` (of everything but the replicate keys) and the resolved `config`."""
    replicates: dict[str, list[Any]]
    metric: dict[str, Any]
    """Name, direction and checkpoint rule, declared before training."""
    budget: dict[str, Any] = field(default_factory=dict)
    launches: list[dict[str, Any]] = field(default_factory=list)
    """Every start: date, command, process, the names of the trials it wanted to run (`to_run`), and its end."""
    trials: list[TrialRecord] = field(default_factory=list)

    def write(self, folder: StudyDir) -> None:
        """Write study.json atomically."""
        write_json(folder.record, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a study.json; RecordError names the file and what is wrong."""
        values = read_json(path)
        version = values.get("schema_version")
        if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
            raise RecordError(f"{path}: schema_version {version!r}, this ftx reads up to {SCHEMA_VERSION}")
        _refuse_other_fields(cls, values, path)
        problems = list(_study_problems(values))
        if problems:
            raise RecordError("\n".join(f"{path}: {problem}" for problem in problems))
        for trial in values["trials"]:
            _refuse_other_fields(TrialRecord, trial, path)
            if not isinstance(trial["fingerprint"], dict) or set(trial["fingerprint"]) != {"train", "evaluation"}:
                raise RecordError(f"{path}: trials: a fingerprint has train and evaluation")
        return cls(**values | {"trials": [TrialRecord(**trial) for trial in values["trials"]]})


def _study_problems(values: Mapping[str, Any]) -> Iterator[str]:
    """What keeps the values from being a study, before they are used."""
    metric, factors = values["metric"], values["factors"]
    if values["design"] not in DESIGNS:
        yield f"design: expected one of {', '.join(DESIGNS)}, got {values['design']!r}"
    if not isinstance(metric, dict) or not isinstance(metric.get("name"), str):
        yield "metric: expected an object with a name"
    elif metric.get("direction") not in DIRECTIONS:
        yield f"metric.direction: expected one of {', '.join(DIRECTIONS)}, got {metric.get('direction')!r}"
    whole = isinstance(factors, list) and all(isinstance(each, dict) for each in factors)
    if not whole or not all(set(each) >= _FACTOR and isinstance(each["levels"], list) for each in factors):
        yield f"factors: expected a list of objects with {', '.join(sorted(_FACTOR))}"
    for name in ("trials", "launches"):
        if not isinstance(values.get(name), list) or not all(isinstance(each, dict) for each in values[name]):
            yield f"{name}: expected a list of objects"


def _refuse_other_fields(kind: type, values: Mapping[str, Any], path: Path) -> None:
    known = {entry.name for entry in fields(kind)}
    needed = {entry.name for entry in fields(kind) if entry.default is MISSING and entry.default_factory is MISSING}
    missing, unknown = sorted(needed - set(values)), sorted(set(values) - known)
    if missing or unknown:
        raise RecordError(f"{path}: missing {missing or 'nothing'}, unknown {unknown or 'nothing'}")


def jobs_to_run(path: Path) -> list[list[str]]:
    """The overrides of the jobs that the study's last launch starts."""
    launch = read_json(path)["launches"][-1]
    jobs: Sequence[Sequence[str]] = launch["jobs"]
    return [list(words) for words in jobs]


def note_failures(path: Path, failed: Mapping[int, str]) -> None:
    """Keep, in the last launch, which of its jobs gave no value: by position, why."""
    values = read_json(path)
    launch = values["launches"][-1]
    launch["failures"] = [{"job": launch["to_run"][n], "reason": reason} for n, reason in failed.items()]
    write_json(path, values)
