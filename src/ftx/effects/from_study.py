"""Observations of a study: its trials as study.json has them, their runs as outputs/ has them."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ftx.config.keys import flat
from ftx.effects.comparability import comparability
from ftx.effects.observations import COSTS, FactorLevels, Metric, Observation, Observations, Problem, frozen
from ftx.record.ledger import FoundRun, Ledger
from ftx.record.run_record import RunRecord
from ftx.record.study_record import StudyRecord, TrialRecord

SHOWN = 10


def observations_of_study(study: StudyRecord, ledger: Ledger, now: float) -> Observations:
    """One row a trial.

    Args:
        study: the study's record.
        ledger: all runs; a trial has the run that the record names, or the newest finished one of its fingerprint.
        now: seconds since 1970, to tell whether a silent run is alive.
    """
    factors = tuple(_factor(found) for found in study.factors)
    metric = Metric(study.metric["name"], study.metric["direction"])
    by_path = {str(found.run.path.resolve()): found for found in ledger}
    by_fingerprint = ledger.by_fingerprint()
    chosen = [_run_of(trial, by_path, by_fingerprint) for trial in study.trials]
    rows = [_observation(trial, found, factors, metric, now) for trial, found in zip(study.trials, chosen, strict=True)]
    used = [(trial.arm, found.record) for trial, found in zip(study.trials, chosen, strict=True) if found]
    problems, left_out = comparability(used, {f["name"]: f["keys"] for f in study.factors})
    rows = [
        replace(row, status="missing", value=None) if row.run is not None and run_id(chosen[n]) in left_out else row
        for n, row in enumerate(rows)
    ]
    splits = {str(record.result["split"]) for _, record in used if record.status == "finished"}
    return Observations(
        name=study.study,
        design=study.design,
        metric=metric,
        factors=factors,
        rows=tuple(rows),
        problems=(*problems, *_other_metric(used, metric), *left_out_runs(ledger, chosen)),
        split=next(iter(splits)) if len(splits) == 1 else None,
        looks=_looks(study),
        crossed=not any(launch.get("replicate_top") for launch in study.launches),
    )


def run_id(found: FoundRun | None) -> str | None:
    """The run's own name."""
    return None if found is None else found.record.run_id


def _run_of(
    trial: TrialRecord, by_path: Mapping[str, FoundRun], by_fingerprint: Mapping[str, Sequence[FoundRun]]
) -> FoundRun | None:
    named = by_path.get(str(Path(trial.run).resolve())) if trial.run else None
    if named is not None and named.record.status == "finished":
        return named
    same = [found for found in by_fingerprint.get(trial.fingerprint["train"], ()) if _is_of(found, trial)]
    finished = [
        found
        for found in same
        if found.record.status == "finished"
        and found.record.fingerprint["evaluation"] == trial.fingerprint["evaluation"]
    ]
    return finished[0] if finished else named or (same[0] if same else None)


def _is_of(found: FoundRun, trial: TrialRecord) -> bool:
    """Whether a run agrees with the trial in what the fingerprint leaves out, such as the micro batch size."""
    settings = flat(found.record.config, whole=("custom",))
    return all(settings.get(key) == value for key, value in trial.unhashed.items())


def _factor(found: Mapping[str, Any]) -> FactorLevels:
    levels = [frozen(level["level"]) for level in found["levels"]]
    baseline = frozen(found["baseline"])
    if found["baseline_level"] is None:
        levels.insert(0, baseline)
    return FactorLevels(found["name"], tuple(levels), baseline)


def _observation(
    trial: TrialRecord, found: FoundRun | None, factors: Sequence[FactorLevels], metric: Metric, now: float
) -> Observation:
    levels: dict[str, Hashable] = {
        factor.name: frozen(trial.levels[factor.name]) if factor.name in trial.levels else factor.baseline
        for factor in factors
    }
    replicate = frozen(trial.replicate)
    if found is None:
        return Observation(levels=levels, replicate=replicate, status="missing")
    return observation_of(found, levels, replicate, metric, now)


def observation_of(
    found: FoundRun, levels: Mapping[str, Hashable], replicate: Hashable, metric: Metric, now: float
) -> Observation:
    """A run's row; a run of another metric counts as missing."""
    record = found.record
    status, _ = found.status(now)
    right = record.result["metric"] in (None, metric.name)
    return Observation(
        levels=levels,
        replicate=replicate,
        status=status if right else "missing",
        value=record.result["value"] if right else None,
        final_train_loss=record.losses["final_train_loss"],
        secondary=_secondary(record),
        cost={name: _cost(record, name) for name in COSTS},
        run=str(found.run.path),
    )


def _cost(record: RunRecord, name: str) -> float | None:
    found: float | None = record.dataset["train_examples"] if name == "train_rows" else record.cost[name]
    return found


def _secondary(record: RunRecord) -> dict[str, float | None]:
    """The declared secondary metrics, and every task score, on the split of the result."""
    split = record.result["split"] or "validation"
    found = {name: values.get(split) for name, values in (record.result.get("secondary") or {}).items()}
    scores = record.scores.get(split, {})
    for name in record.config.get("score", {}).get("metrics", []):
        if name in scores and name != record.result["metric"]:
            found.setdefault(name, scores[name])
    return found


def left_out_runs(ledger: Ledger, used: Sequence[FoundRun | None]) -> list[Problem]:
    """Every folder that was found and gave no value, by reason; found = used + these."""
    mine = {found.record.run_id: found for found in used if found is not None}
    kinds: dict[str, list[str]] = {}
    reasons: dict[str, str] = {}
    for each in ledger.left_out:
        kinds.setdefault(each.kind, []).append(str(each.path))
        if each.kind != "foreign":
            reasons[str(each.path)] = f"{each.path} ({each.reason})"
    fingerprints = {found.record.fingerprint["train"] for found in mine.values()}
    for found in ledger:
        status = found.record.status
        if found.record.run_id in mine:
            if status == "finished":
                continue
            kind = status
        else:
            again = found.record.fingerprint["train"] in fingerprints
            kind = f"repeated, {status}" if again else "of no trial of this study"
        kinds.setdefault(kind, []).append(str(found.run.path))
    if not kinds:
        return []
    left = sum(map(len, kinds.values()))
    finished = sum(found.record.status == "finished" for found in mine.values())
    counted = ", ".join(f"{len(paths)} {kind}" for kind, paths in kinds.items())
    summary = Problem("left_out", f"{finished + left} run folders found, {finished} used, left out: {counted}")
    return [
        summary,
        *(
            Problem(f"left_out: {kind}", _first([reasons.get(path, path) for path in paths]), tuple(paths))
            for kind, paths in kinds.items()
        ),
    ]


def _first(paths: Sequence[str]) -> str:
    return ", ".join(paths[:SHOWN]) + (f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else "")


def _other_metric(used: Sequence[tuple[str, RunRecord]], metric: Metric) -> list[Problem]:
    other = [record.run_id for _, record in used if record.result["metric"] not in (None, metric.name)]
    if not other:
        return []
    return [Problem("other_metric", f"{len(other)} runs have another metric than {metric.name}", tuple(other))]


def _looks(study: StudyRecord) -> int:
    """How many launches added replicates: each time the table could be looked at, and seeds added because of it."""
    seen: set[str] = set()
    looks = 0
    for launch in study.launches:
        planned = set(launch.get("replicates", ()))
        looks += bool(planned - seen)
        seen |= planned
    return max(1, looks)
