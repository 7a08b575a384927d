"""What can be seen to go wrong in a run before anything is trained or written, out of its settings and the disk.

The cheap half of the preflight: milliseconds, and the same for every arm of a study. The half that costs seconds is
`ftx.job.rehearsal`.
"""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ftx.config.schema import RunConfig
from ftx.data.findings import Finding, Grade
from ftx.errors import ModelError
from ftx.job.cadence import evaluation_steps, steps_per_epoch, total_steps, warmup_steps
from ftx.model.adapter import refuse_unmatched, targeted_layers
from ftx.model.base import location, skeleton

_FEW_ROWS = 20
_SHORT_RUN = 10  # optimiser steps below which warmup and decay are a few points and no curve
_MOST_STEPS_NAMED = 6

# What a checkpoint holds beside weights and moments, generously: tokenizer files take 40 to 130 bytes a token of the
# vocabulary, the Trainer's log about 220 bytes a step, settings and random states some 50 kB.
_TOKENIZER_BYTES, _LOG_BYTES, _OTHER_BYTES = 130, 250, 100_000

_Seen = Iterator[tuple[Grade, str]]


@dataclass(frozen=True)
class Planned:
    """One run as it is planned: resolved settings, and what is known of its rows."""

    config: RunConfig
    train_rows: int
    validation_rows: int
    has_reference: bool

    @property
    def steps(self) -> int:
        """Optimiser steps of the whole run."""
        return total_steps(self.config, self.train_rows)

    @property
    def evaluations(self) -> list[int]:
        """The steps after which it is evaluated and saved."""
        return evaluation_steps(self.config, self.train_rows)


def run_findings(config: RunConfig, *, train_rows: int, validation_rows: int, has_reference: bool) -> list[Finding]:
    """Everything that was looked at, one finding or more a topic.

    Args:
        config: resolved, hardware included.
        train_rows: training rows that are left after all limits.
        validation_rows: the same of the validation split.
        has_reference: whether rows have an answer that a task score could compare with; plain text has none.

    Raises:
        ModelError: the base model's configuration cannot be read.
    """
    run = Planned(config, train_rows, validation_rows, has_reference)
    topics = (_OF_STEPS if train_rows else {}) | _OF_SETTINGS  # no rows, no steps: the data findings say so
    return [Finding(grade, topic, detail) for topic, look in topics.items() for grade, detail in look(run)]


def _metric(run: Planned) -> _Seen:
    metric, scores = run.config.metric, run.config.score.metrics
    # That it exists, is computed and has a direction, config.checks has seen to.
    better = "lower" if metric.direction == "min" else "higher"
    few = run.validation_rows < _FEW_ROWS
    said = ": so few say little of a difference (data.eval_path, data.eval_fraction)" if few else ""
    facts = f"{metric.name} decides, {better} is better, on {run.validation_rows} validation rows{said}"
    yield "note" if few else "ok", facts
    if scores and not run.has_reference:
        also = " and metric.name=eval_loss" if metric.name in scores else ""
        yield (
            "problem",
            f"score.metrics=[{','.join(scores)}]: rows of plain text have no answer to compare with; "
            f"use score=none{also}",
        )


def _checkpoints(run: Planned) -> _Seen:
    config, evaluations = run.config, run.evaluations
    patience, count = config.early_stop.patience, len(evaluations)
    if patience is not None and patience >= count:
        yield (
            "problem",
            f"early_stop.patience={patience} can never stop a run of {count} evaluations: lower it, train "
            "longer (optim.epochs) or evaluate more often (checkpoint.every_epochs)",
        )
    if count == 1 and config.metric.at == "best":
        yield (
            "note",
            f"{run.steps} steps, evaluated and saved once, at the end: there is no checkpoint to choose from, and "
            "metric.at=best is the final one (checkpoint.every_epochs evaluates more often)",
        )
    else:
        many = f"{count} evaluations and checkpoints" if count > 1 else "one evaluation and checkpoint"
        yield "ok", f"{run.steps} steps, {many} after step{'s' if count > 1 else ''} {_named(evaluations)}"


def _warmup(run: Planned) -> _Seen:
    # cadence.warmup_steps leaves at least one step at the peak, so that there is nothing to refuse here.
    optim, rising = run.config.optim, warmup_steps(run.config, run.train_rows)
    facts = f"{rising} of {run.steps} steps rise to optim.lr={optim.lr:g}, then {optim.scheduler}"
    if run.steps < _SHORT_RUN and (rising or optim.scheduler != "constant"):
        yield "note", f"{facts}: so few steps are hardly a schedule (optim.scheduler=constant optim.warmup_ratio=0)"
    elif rising > run.steps / 2:
        yield "note", f"{facts}: most of the run is warmup (optim.warmup_ratio={optim.warmup_ratio:g})"
    else:
        yield "ok", facts


def _batch(run: Planned) -> _Seen:
    rows, batch = run.train_rows, run.config.optim.batch_size
    if rows < batch:
        yield "note", f"optim.batch_size={batch} is more than the {rows} training rows: a step holds {rows}, an epoch"
    else:
        last = rows % batch
        short = f", the last of {last}" if last else ""
        yield "ok", f"{rows} training rows in steps of {batch}: {steps_per_epoch(run.config, rows)} an epoch{short}"


def _output(run: Planned) -> _Seen:
    root = run.config.output_root
    reason = _unwritable(Path(root))
    if reason:
        yield (
            "problem",
            f"output_root={root}: {reason}; expected a folder that you can write to: set output_root=FOLDER",
        )
    else:
        yield "ok", f"output_root={root} can be written"


def _disk(run: Planned) -> _Seen:
    if _unwritable(Path(run.config.output_root)):
        return  # said already, and what cannot be looked into cannot be measured
    folder = nearest_folder(Path(run.config.output_root))
    needed, free = run_bytes(run), shutil.disk_usage(folder).free
    room = f"{size_in_words(free)} free in {folder}"
    facts = f"about {size_in_words(needed)} for {_at_once(run)} checkpoints and the result, {room}"
    if free < needed:
        yield (
            "problem",
            f"output_root={run.config.output_root}: this run needs {facts}; make room or set output_root=FOLDER on "
            "another disk",
        )
    else:
        yield ("note" if free < 2 * needed else "ok"), facts


def _hardware(run: Planned) -> _Seen:
    hardware = run.config.hardware
    threads = f", {hardware.threads} threads" if hardware.device == "cpu" else ""
    yield "ok", f"{hardware.device} in {hardware.precision}{threads}"


def _lora(run: Planned) -> _Seen:
    lora = run.config.lora
    if lora.variant == "none":
        yield "ok", f"lora=none: all {trainable_parameters(run.config):,} weights train"
        return
    model = skeleton(run.config.model)
    try:
        refuse_unmatched(model, lora.target_modules)
    except ModelError as error:
        yield "problem", str(error)
        return
    counts = Counter(name.rpartition(".")[2] for name in targeted_layers(model, lora.target_modules))
    if counts:
        layers = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        yield "ok", f"rank {lora.rank} on {layers}: {trainable_parameters(run.config):,} weights train"
    else:
        yield "problem", "lora.target_modules=[all-linear]: this model has no linear layers; use lora=none"


def _hub(run: Planned) -> _Seen:
    model = run.config.model
    if Path(location(model)).is_dir():
        yield "ok", f"model.name={model.name} is a folder: no network is needed at any time"
    else:
        yield "ok", f"model.name={model.name} comes from the Hub before the first step; what follows goes on without it"


_OF_STEPS: dict[str, Callable[[Planned], _Seen]] = {"batch": _batch, "warmup": _warmup, "checkpoints": _checkpoints}
_OF_SETTINGS: dict[str, Callable[[Planned], _Seen]] = {
    "metric": _metric,
    "hardware": _hardware,
    "lora": _lora,
    "output": _output,
    "disk": _disk,
    "hub": _hub,
}


def run_bytes(run: Planned) -> int:
    """What the run's files take on disk at their most: the checkpoints and the result."""
    config = run.config
    # PiSSA's start values lie beside the checkpoints, and the result is twice as wide: see `save_trained`.
    copies = 3 if config.lora.variant == "pissa" else 1
    weights = copies * trainable_parameters(config) * _width(config)
    vocabulary = int(skeleton(config.model).config.get_text_config().vocab_size)
    return _at_once(run) * checkpoint_bytes(run) + weights + vocabulary * _TOKENIZER_BYTES + _beside(run)


def checkpoint_bytes(run: Planned) -> int:
    """What one checkpoint takes: trained weights, the optimiser's moments, log and settings."""
    moments = 0 if run.config.optim.name == "adafactor" else 2  # Adafactor's row and column sums are next to nothing
    return trainable_parameters(run.config) * _width(run.config) * (1 + moments) + _beside(run)


def trainable_parameters(config: RunConfig) -> int:
    """How many weights train: all, or what PEFT adds for this variant and rank to the layers that match."""
    model, lora = skeleton(config.model), config.lora
    if lora.variant == "none":
        return sum(weight.numel() for weight in model.parameters())
    layers = targeted_layers(model, lora.target_modules).values()
    # A is (rank, in) and B (out, rank); DoRA learns the length of each of the `out` directions as well.
    return sum(lora.rank * (ins + outs) + (outs if lora.variant == "dora" else 0) for ins, outs in layers)


def _at_once(run: Planned) -> int:
    """Checkpoints on disk at a time: those kept, the best and the newest at least, and the one being written."""
    return min(max(2, run.config.checkpoint.save_total_limit) + 1, len(run.evaluations))


def _width(config: RunConfig) -> int:
    """Bytes of one trained weight; an adapter is fp32 on any base."""
    return 2 if config.lora.variant == "none" and config.model.dtype == "bf16" else 4


def _beside(run: Planned) -> int:
    return run.steps * _LOG_BYTES + _OTHER_BYTES


def _unwritable(path: Path) -> str | None:
    """Why no folder can be made or written at `path`; None if it can."""
    try:
        nearest = nearest_folder(path)
        if not nearest.is_dir():
            return f"{nearest} is not a folder"
        if not os.access(nearest, os.W_OK | os.X_OK):
            return f"{nearest} cannot be written"
        with tempfile.TemporaryFile(dir=nearest):  # modes say nothing of a read-only or full disk
            return None
    except OSError as error:
        return str(error.strerror)


def nearest_folder(path: Path) -> Path:
    """`path`, or the closest of its parents that exists."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())


def _named(steps: list[int]) -> str:
    if len(steps) <= _MOST_STEPS_NAMED:
        return ", ".join(map(str, steps))
    return f"{', '.join(map(str, steps[:3]))} ... {steps[-1]}"


def size_in_words(count: int) -> str:
    """Bytes as MiB or GiB."""
    return f"{count / 2**20:,.0f} MiB" if count < 2**30 else f"{count / 2**30:,.1f} GiB"
