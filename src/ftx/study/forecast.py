"""What a study would take and could show, out of runs that were measured; where there are none, unknown."""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ftx.analysis.power import smallest_detectable_effect
from ftx.config.fingerprint import NEITHER
from ftx.config.keys import flat
from ftx.data.findings import Finding
from ftx.job.cadence import steps_per_epoch, total_steps
from ftx.job.preflight import Planned, nearest_folder, run_bytes, size_in_words
from ftx.record.ledger import FoundRun
from ftx.study.identities import effective
from ftx.study.outlook import Outlook
from ftx.study.planning import Trial

_MOST_SOURCES = 5


@dataclass(frozen=True)
class Work:
    """Optimiser steps and training tokens of one run."""

    steps: int
    tokens: int


@dataclass(frozen=True)
class Estimate:
    """Seconds of all runs to do, one after the other, and the memory of the largest; with the runs it comes from."""

    seconds: float
    peak_memory_bytes: int | None
    sources: list[str]


@dataclass(frozen=True)
class Detectable:
    """The smallest effect that the design finds with 80% power, and the noise that says so."""

    effect: float | None
    noise_sd: float
    noise_df: int
    sources: list[str]


def work_of(trial: Trial) -> Work:
    """Steps and tokens of a trial; tokens of whole passes, in proportion."""
    rows = len(trial.inputs.data.train)
    steps = total_steps(trial.config, rows)
    tokens = trial.inputs.data.record["lengths"]["train"]["tokens"]
    return Work(steps, round(tokens * steps / steps_per_epoch(trial.config, rows)))


def room(outlook: Outlook) -> list[Finding]:
    """Whether the disk has room for all runs to do, which keep their checkpoints; nothing where there are none."""
    trials = outlook.to_run
    if not trials:
        return []
    needed = sum(run_bytes(Planned(trial.config, len(trial.inputs.data.train), 0, True)) for trial in trials)
    root = outlook.plan.baseline.output_root
    folder = nearest_folder(Path(root))
    free = shutil.disk_usage(folder).free
    facts = f"about {size_in_words(needed)} for {len(trials)} runs, {size_in_words(free)} free in {folder}"
    if free < needed:
        remedy = "make room, start fewer (study.max_runs) or set output_root=FOLDER on another disk"
        return [Finding("problem", "disk", f"output_root={root}: this study needs {facts}; {remedy}")]
    return [Finding("note" if free < 2 * needed else "ok", "disk", facts)]


def identical_arms(trials: Sequence[Trial]) -> list[list[str]]:
    """Groups of arms whose settings come to the same here, such as two warmups that are both one step."""
    groups: dict[str, list[str]] = {}
    for trial in trials:
        unhashed = {change.key: change.value for change in trial.arm.changes if _only_costs(change.key)}
        arms = groups.setdefault(f"{trial.replicate.label} {effective(trial.config, trial.inputs)} {unhashed}", [])
        arms.append(trial.arm.label)
    return [list(arms) for arms in dict.fromkeys(tuple(arms) for arms in groups.values()) if len(arms) > 1]


def _only_costs(key: str) -> bool:
    """Whether a key changes what a run costs and not what it gives."""
    return key in NEITHER and key.startswith("hardware.")


def estimate(outlook: Outlook) -> Estimate | None:
    """From finished runs of the same model, device and threads; None where there are none.

    Of each such run: its seconds outside of training, and its training tokens per second; the medians count.
    """
    trials = outlook.to_run
    if not trials:
        return Estimate(0.0, None, [])
    device = outlook.plan.device
    measured = [
        found for found in outlook.ledger if found.record.status == "finished" and _like(found, trials[0], device)
    ]
    costs = [found.record.cost for found in measured if found.record.cost["tokens_per_second"]]
    if not costs:
        return None
    rate = median(cost["tokens_per_second"] for cost in costs)
    rest = median(cost["seconds"] - cost["tokens"] / cost["tokens_per_second"] for cost in costs)
    alike = [found for found in measured if _as_large(found, trials[0])]
    memory = [found.record.cost["peak_memory_bytes"] for found in alike if found.record.cost["peak_memory_bytes"]]
    return Estimate(
        sum(max(rest, 0.0) + work_of(trial).tokens / rate for trial in trials),
        max(memory, default=None),
        [found.run.path.name for found in measured[:_MOST_SOURCES]],
    )


def _like(found: FoundRun, trial: Trial, device: tuple[str | None, str | None]) -> bool:
    """Whether a run says how fast the trial will be: the same model and kind of adapter on the same device."""
    hardware = found.record.hardware
    return (
        found.record.hyperparameters.get("model.weights") == trial.inputs.weights
        and (hardware["accelerator"], hardware["device_name"]) == device
        and _same(found, trial, ("hardware.precision", "hardware.threads", "lora.variant"))
    )


def _as_large(found: FoundRun, trial: Trial) -> bool:
    """Whether a run's memory says what the trial will need: rows at a time, their length, and what is kept."""
    return _same(
        found, trial, ("hardware.micro_batch_size", "hardware.gradient_checkpointing", "data.max_seq_len", "optim.name")
    )


def _same(found: FoundRun, trial: Trial, keys: Sequence[str]) -> bool:
    theirs, mine = flat(found.record.config), flat(asdict(trial.config))
    return all(theirs.get(key) == mine[key] for key in keys)


def detectable(outlook: Outlook) -> Detectable | None:
    """From finished runs of the same arm in different replicates; None where no arm has two.

    The noise is the pooled spread within arms, without the seeds' common part: a design that blocks by seed can
    only do better.
    """
    groups = _repeated_values(outlook)
    df = sum(len(values) - 1 for _, values in groups)
    if df == 0:
        return None
    squares = sum((value - fmean(values)) ** 2 for _, values in groups for value in values)
    sd = (squares / df) ** 0.5
    arms, seeds = len(outlook.plan.design.arms), len(outlook.plan.design.replicates)
    effect = smallest_detectable_effect(sd, arms=arms, seeds=seeds) if arms > 1 and seeds > 1 else None
    return Detectable(effect, sd, df, [label for label, _ in groups[:_MOST_SOURCES]])


def _repeated_values(outlook: Outlook) -> list[tuple[str, list[float]]]:
    """The primary metric of every arm that has at least two finished runs, whatever their seeds."""
    replicates = {*outlook.plan.study.replicates, "data_seed"}
    groups = []
    for arm in outlook.plan.design.arms:
        trial = next(each for each in outlook.plan.trials if each.arm is arm)
        wanted = _apart_from(flat(asdict(trial.config), whole=("custom",)), replicates)
        values = [
            float(found.record.result["value"])
            for found in outlook.ledger
            if found.record.status == "finished"
            and found.record.result["value"] is not None
            and found.record.dataset.get("content") == trial.inputs.data.record["content"]
            and found.record.hyperparameters.get("model.weights") == trial.inputs.weights
            and _apart_from(flat(found.record.config, whole=("custom",)), replicates) == wanted
        ]
        if len(values) > 1:
            groups.append((arm.label, values))
    return groups


def _apart_from(settings: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in keys and key not in NEITHER}
