"""study.json as a study goes on: merged with what earlier launches wrote, its states read from outputs/."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ftx.config.keys import flat
from ftx.errors import ConfigError
from ftx.record.labbook import append_entry
from ftx.record.layout import MULTIRUN, StudyDir
from ftx.record.ledger import FoundRun, Ledger
from ftx.record.run_record import labbook_entry
from ftx.record.study_record import StudyRecord, TrialRecord
from ftx.record.surroundings import Surroundings
from ftx.study.planning import StudyPlan, Trial
from ftx.study.states import State, Wanted, state_of, watched_keys


def study_dir(name: str) -> StudyDir:
    """Where the study of this name lives, below the folder ftx is started in."""
    return StudyDir(MULTIRUN / name)


class Reader:
    """Reads the states of trials from outputs/, for one study, at one moment."""

    def __init__(self, plan: StudyPlan, ledger: Ledger, now: float) -> None:
        self._plan, self._now = plan, now
        self._by_fingerprint = ledger.by_fingerprint()
        self._here = Surroundings.here(*plan.device)

    def state(self, fingerprint: Mapping[str, str], unhashed: Mapping[str, Any]) -> State:
        """The state of the trial with this identity."""
        return state_of(
            Wanted(fingerprint, unhashed),
            self._by_fingerprint.get(fingerprint["train"], []),
            self._here,
            reuse=self._plan.study.reuse,
            study=self._plan.name,
            now=self._now,
        )

    def refresh(self, trial: TrialRecord) -> None:
        """Bring a trial of an earlier launch up to date."""
        _put_state(trial, self.state(trial.fingerprint, trial.unhashed), self._plan.name)


def states_of(plan: StudyPlan, reader: Reader) -> list[State]:
    """The state of every planned trial."""
    watched = _watched(plan)
    return [reader.state(trial.fingerprint, _values(trial, watched)) for trial in plan.trials]


def _watched(plan: StudyPlan) -> list[str]:
    return watched_keys([change.key for arm in plan.design.arms for change in arm.changes])


def _values(trial: Trial, keys: Sequence[str]) -> dict[str, Any]:
    settings = flat(asdict(trial.config), whole=("custom",))
    return {key: settings[key] for key in keys}


def _put_state(trial: TrialRecord, state: State, study: str) -> None:
    made_by = (state.found.record.made_by or {}).get("study") if state.found else None
    trial.state, trial.status, trial.reason = state.state, state.status, state.reason
    trial.run = str(state.found.run.path) if state.found else None
    trial.reused = state.state == "done" and made_by != study


def opened(plan: StudyPlan, states: Sequence[State], earlier: StudyRecord | None) -> StudyRecord:
    """The study's record with this plan's trials in it, on top of what earlier launches wrote.

    Raises:
        ConfigError: the study of this name has another baseline.
    """
    record = _fresh(plan)
    if earlier is not None:
        _refuse_other_baseline(earlier, record)
        record.launches = earlier.launches
        record.factors = _merged_factors(earlier.factors, record.factors)
        for key, values in earlier.replicates.items():
            known = record.replicates.setdefault(key, [])
            record.replicates[key] = values + [value for value in known if value not in values]
        record.trials = earlier.trials
    watched = _watched(plan)
    for trial, state in zip(plan.trials, states, strict=True):
        _put(record, trial_record(plan, trial, state, watched))
    return record


def trial_record(plan: StudyPlan, trial: Trial, state: State, watched: Sequence[str]) -> TrialRecord:
    """One trial as study.json and the plan's JSON show it."""
    differing = list(trial.arm.levels)
    alone = differing[0] if len(differing) == 1 else None
    values = {key: _as_json(value) for key, value in trial.replicate.values.items()}
    record = TrialRecord(
        arm=trial.arm.label,
        factor=alone,
        level=plan.level(alone, trial.arm) if alone else None,
        levels={name: plan.level(name, trial.arm) for name in differing},
        is_baseline=trial.arm.is_baseline,
        replicate=next(iter(values.values())) if len(values) == 1 else trial.replicate.label,
        replicates=values,
        overrides=list(trial.overrides),
        fingerprint=dict(trial.fingerprint),
        unhashed=_values(trial, watched),
    )
    _put_state(record, state, plan.name)
    return record


def link_runs(record: StudyRecord, folder: StudyDir) -> None:
    """A link to the run of each trial, by arm and replicate; where links cannot be made, study.json has the paths."""
    with suppress(OSError):
        for trial in record.trials:
            link = folder.link(trial.name, trial.fingerprint["train"])
            link.parent.mkdir(exist_ok=True)
            if trial.run is None:
                link.unlink(missing_ok=True)
                continue
            target = os.path.relpath(trial.run, link.parent)
            if not (link.is_symlink() and str(link.readlink()) == target):
                link.unlink(missing_ok=True)
                link.symlink_to(target)


def close_dead_runs(runs: Iterable[FoundRun], reasons: Mapping[str, str | None], labbook: str | None) -> list[FoundRun]:
    """Write `killed` into the records of runs whose process is gone, and enter them into the lab book.

    Args:
        runs: runs of the study's trials.
        reasons: what the launcher knows of a death, by fingerprint.
        labbook: as configured.
    """
    dead = []
    for found in runs:
        status, reason = found.status(time.time())
        if status == "killed" and found.record.status == "running":
            found.record.status = status
            found.record.error = reasons.get(found.record.fingerprint["train"]) or reason
            found.record.write(found.run)
            dead.append(found)
            if labbook is not None:
                append_entry(Path(labbook), labbook_entry(found.record))
    return dead


def _fresh(plan: StudyPlan) -> StudyRecord:
    study = plan.study
    metric = plan.baseline.metric
    return StudyRecord(
        study=plan.name,
        design=plan.design.kind,
        factors=[
            {
                "name": factor.name,
                "keys": list(factor.keys),
                "levels": [_level(plan, factor.name, level.label) for level in factor.levels],
                "baseline": plan.baseline_level(factor.name),
                "baseline_level": plan.design.baseline_levels[factor.name],
            }
            for factor in plan.design.factors
        ],
        baseline={
            "overrides": list(plan.fixed),
            "fingerprint": plan.fingerprint,
            "config": asdict(plan.baseline),
        },
        replicates={
            key: list(dict.fromkeys(_as_json(replicate.values[key]) for replicate in plan.design.replicates))
            for key in study.replicates
        },
        metric={"name": metric.name, "direction": metric.direction, "at": metric.at},
        budget={"max_runs": study.max_runs, "max_hours": study.max_hours},
    )


def _level(plan: StudyPlan, factor: str, label: str) -> dict[str, Any]:
    arm = next((arm for arm in plan.design.arms if factor in arm.levels and arm.levels[factor].label == label), None)
    return {
        "level": plan.level(factor, arm) if arm is not None else plan.baseline_level(factor),
        "label": label,
        "is_baseline": label == plan.design.baseline_levels[factor],
    }


def _refuse_other_baseline(earlier: StudyRecord, record: StudyRecord) -> None:
    if earlier.baseline["fingerprint"] == record.baseline["fingerprint"]:
        return
    before = flat(earlier.baseline["config"], whole=("custom",))
    after = flat(record.baseline["config"], whole=("custom",))
    differing = [f"{key} {before.get(key)} -> {after[key]}" for key in after if before.get(key) != after[key]]
    if earlier.design != record.design:
        differing.insert(0, f"study.design {earlier.design} -> {record.design}")
    what = ", ".join(differing[:6]) or "the factors, or the content of data or model files"
    raise ConfigError(
        [
            f"study.name={record.study}: multirun/{record.study} holds a study with another baseline ({what}); "
            "its runs and these could not be compared. Give this one another study.name"
        ]
    )


def _merged_factors(earlier: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    merged = {factor["name"]: factor for factor in earlier}
    for factor in now:
        known = merged.get(factor["name"])
        if known is not None:
            labels = {level["label"] for level in factor["levels"]}
            factor["levels"] = [level for level in known["levels"] if level["label"] not in labels] + factor["levels"]
        merged[factor["name"]] = factor
    return list(merged.values())


def _put(record: StudyRecord, trial: TrialRecord) -> None:
    for position, known in enumerate(record.trials):
        if known.name == trial.name:
            record.trials[position] = trial
            return
    record.trials.append(trial)


def _as_json(text: str) -> Any:
    """A replicate's value as typed, as a number where it is one."""
    kinds: tuple[Callable[[str], Any], ...] = (int, float)
    for kind in kinds:
        with suppress(ValueError):
            return kind(text)
    return text
