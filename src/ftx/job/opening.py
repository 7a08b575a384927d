"""The record of a run as it stands when the run begins."""

import hashlib
import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ftx.config.keys import flat
from ftx.config.resolve import scaling
from ftx.config.schema import RunConfig
from ftx.data.findings import notes
from ftx.job.hardware import device_facts
from ftx.job.preparation import Preparation
from ftx.job.resumption import Resumption
from ftx.record import atomic, provenance
from ftx.record.checkpoints import checkpoints_of, remove_whole, sweep_up
from ftx.record.git_state import GitState
from ftx.record.history import rewind
from ftx.record.layout import RunDir
from ftx.record.run_record import RunRecord, new_run_id, utc_date

_HYPERPARAMETERS = ("lora", "optim", "early_stop", "checkpoint")


def open_record(ready: Preparation) -> RunRecord:
    """A `running` record: everything that is known before the first step, but for the code."""
    config = ready.config
    now = datetime.now(UTC)
    return RunRecord(
        run_id=new_run_id(now, os.urandom(3)),
        lab=ready.made_by["study"] if ready.made_by else "single",
        made_by=ready.made_by,
        date=utc_date(now),
        model=str(config.model.name),
        dataset=ready.data.record | {"notes": notes(ready.findings)},
        hyperparameters=hyperparameters(config, ready.weights),
        seed=config.seed,
        hardware=provenance.machine() | device_facts(config.hardware.device) | {"threads": config.hardware.threads},
        versions=provenance.package_versions(provenance.STACK),
        notes=config.notes,
        hypothesis=config.hypothesis or None,
        fingerprint=dict(ready.fingerprint),
        command=ready.command,
        process=provenance.process_identity(),
        config=asdict(config),
    )


def begin(run: RunDir, record: RunRecord, ready: Preparation, code: GitState) -> None:
    """Write what surrounds a run that starts: code, environment, and how to repeat it."""
    add_code_state(record, code)
    record.write(run)
    write_surroundings(run, ready, code)


def go_on(run: RunDir, record: RunRecord, code: GitState, resumption: Resumption) -> None:
    """Bring the directory back to the checkpoint, and write what is other than at the first start."""
    record.resumes[-1]["config_commit"] = code.short
    record.write(run)
    if code.patch:
        atomic.write_text(run.patch_of_resume(len(record.resumes)), code.patch)
    sweep_up(run)
    for checkpoint in checkpoints_of(run):
        if checkpoint.step > resumption.entry.step:
            remove_whole(checkpoint.path)  # named in the record as not to be used
    rewind(run, None if resumption.folder is None else resumption.entry.step)


def add_code_state(record: RunRecord, code: GitState) -> None:
    """Say which commit holds the configuration, and what ftx itself is."""
    facts = asdict(code)
    facts["patch"] = "code.patch" if facts["patch"] else None
    patch = (code.patch or "").encode("utf-8", "surrogateescape")
    facts["patch_sha256"] = hashlib.sha256(patch).hexdigest() if code.patch else None
    record.config_commit = code.short
    record.code = {"config": facts, "ftx": provenance.ftx_state()}


def write_surroundings(run: RunDir, ready: Preparation, code: GitState) -> None:
    """environment.txt, reproduce.sh and, from a dirty checkout, code.patch."""
    atomic.write_text(run.environment, provenance.environment_text())
    if code.patch:
        atomic.write_text(run.patch, code.patch)
    again = [sys.executable, *ready.command[1:]]  # this interpreter, whatever `python` is elsewhere
    atomic.write_text(run.reproduce, provenance.reproduce_script(again, Path.cwd(), code))
    run.reproduce.chmod(0o755)


def hyperparameters(config: RunConfig, weights: str) -> dict[str, Any]:
    """What a person would tune, by dotted name, with the adapter's scaling and what the weights are."""
    settings = asdict(config)
    found = flat({group: settings[group] for group in _HYPERPARAMETERS})
    if config.lora.variant == "none":
        found = {name: value for name, value in found.items() if not name.startswith("lora.")}
        found["lora.variant"] = "none"
    else:
        found["lora.scaling"] = scaling(config.lora.variant, config.lora.rank, float(config.lora.alpha or 0))
    found |= {
        "data_seed": config.data_seed,
        "data.max_seq_len": config.data.max_seq_len,
        "data.eval_max_seq_len": config.data.eval_max_seq_len,
        "data.supervise": config.data.supervise,
        "hardware.precision": config.hardware.precision,
        "hardware.micro_batch_size": config.hardware.micro_batch_size,
        "model.dtype": config.model.dtype,
        "model.weights": weights,
    }
    return found | flat({"custom": config.custom})


def tracked_settings(record: RunRecord) -> dict[str, Any]:
    """What trackers show as this run's settings, by dotted name; what is null is left out."""
    settings = {"model": record.model, "data": record.dataset["path"], "seed": record.seed, **record.hyperparameters}
    return {name: value for name, value in settings.items() if value is not None}


def tracked_metrics(ready: Preparation) -> list[str]:
    """The results that a finished run will have, as trackers name them."""
    splits = [name for name in ready.data.splits if name != "train"]
    scores = [f"score/{split}_{name}" for split in splits for name in ready.config.score.metrics]
    return ["result/value", "result/validation_value", *scores]
