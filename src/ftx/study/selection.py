"""study.replicate_top: after a pass with one seed, more seeds for the baseline and the best arms only."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import fmean

from ftx.errors import ConfigError
from ftx.record.ledger import FoundRun
from ftx.record.study_record import StudyRecord
from ftx.study.planning import StudyPlan


def narrowed(plan: StudyPlan, earlier: StudyRecord | None, finished: Mapping[str, FoundRun]) -> StudyPlan:
    """The plan with the baseline and the `study.replicate_top` best arms; as it is where that is not set.

    Arms are ranked by the mean of the primary metric on validation over their finished runs of earlier launches.

    Args:
        plan: with all arms.
        earlier: the study's record, if it was started before.
        finished: the study's finished runs by run directory.

    Raises:
        ConfigError: no arm has finished.
    """
    top = plan.study.replicate_top
    if top is None:
        return plan
    values = _values(earlier, finished) if earlier else {}
    ranked = [arm.label for arm in plan.design.arms if not arm.is_baseline and arm.label in values]
    if not ranked:
        raise ConfigError(
            [f"study.replicate_top={top}: no arm of {plan.name} has finished; run it once without study.replicate_top"]
        )
    ranked.sort(key=lambda label: fmean(values[label]), reverse=plan.baseline.metric.direction == "max")
    kept = set(ranked[:top])
    unranked = [arm.label for arm in plan.design.arms if not arm.is_baseline and arm.label not in values]
    metric = plan.baseline.metric.name
    best = ", ".join(f"{label} ({fmean(values[label]):.4f})" for label in ranked[:top])
    notes = [f"The best {len(kept)} of {len(ranked)} arms by {metric} on validation: {best}"]
    if unranked:
        notes.append(f"Without a finished run, so not ranked: {', '.join(unranked)}")
    return replace(
        plan,
        design=replace(plan.design, arms=tuple(a for a in plan.design.arms if a.is_baseline or a.label in kept)),
        trials=tuple(trial for trial in plan.trials if trial.arm.is_baseline or trial.arm.label in kept),
        notes=(*plan.notes, *notes),
    )


def _values(earlier: StudyRecord, finished: Mapping[str, FoundRun]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for trial in earlier.trials:
        found = finished.get(trial.run or "")
        value = found.record.result["validation_value"] if found else None
        if value is not None:
            values.setdefault(trial.arm, []).append(float(value))
    return values


def finished_runs(runs: Iterable[FoundRun]) -> dict[str, FoundRun]:
    """Finished runs by the path of their directory."""
    return {str(found.run.path): found for found in runs if found.record.status == "finished"}
