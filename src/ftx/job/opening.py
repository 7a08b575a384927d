"""The record of a run as it stands when the run begins."""

import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ftx.config.resolve import scaling
from ftx.config.schema import RunConfig
from ftx.job.hardware import device_facts
from ftx.job.preparation import Preparation
from ftx.record import atomic, provenance
from ftx.record.git_state import GitState
from ftx.record.layout import RunDir
from ftx.record.run_record import RunRecord, new_run_id, utc_date

_HYPERPARAMETERS = ("lora", "optim", "early_stop", "checkpoint")


def open_record(ready: Preparation, code: GitState) -> RunRecord:
    """A `running` record: everything that is known before the first step."""
    config = ready.config
    now = datetime.now(UTC)
    return RunRecord(
        run_id=new_run_id(now, os.urandom(3)),
        date=utc_date(now),
        config_commit=code.short,
        model=str(config.model.name),
        dataset=ready.data.record,
        hyperparameters=hyperparameters(config, ready.weights),
        seed=config.seed,
        hardware=provenance.machine() | device_facts(config.hardware.device) | {"threads": config.hardware.threads},
        versions=provenance.package_versions(provenance.STACK),
        notes=config.notes,
        hypothesis=config.hypothesis or None,
        code={"config": _without_patch(code), "ftx": provenance.ftx_state()},
        fingerprint=dict(ready.fingerprint),
        command=command(ready),
        process=provenance.process_identity(),
        config=asdict(config),
    )


def write_surroundings(run: RunDir, ready: Preparation, code: GitState) -> None:
    """environment.txt, reproduce.sh and, from a dirty checkout, code.patch."""
    atomic.write_text(run.environment, provenance.environment_text())
    if code.patch:
        atomic.write_text(run.patch, code.patch)
    script = provenance.reproduce_script(command(ready), Path.cwd(), code)
    atomic.write_text(run.reproduce, script)
    run.reproduce.chmod(0o755)


def command(ready: Preparation) -> list[str]:
    """The command line that asks for the same run."""
    return ["python", "-m", "ftx.train", *ready.flags, *ready.overrides]


def hyperparameters(config: RunConfig, weights: str) -> dict[str, Any]:
    """What a person would tune, by dotted name, with the adapter's scaling and what the weights are."""
    settings = asdict(config)
    flat = {f"{group}.{name}": value for group in _HYPERPARAMETERS for name, value in settings[group].items()}
    if config.lora.variant == "none":
        flat = {name: value for name, value in flat.items() if not name.startswith("lora.")}
        flat["lora.variant"] = "none"
    else:
        flat["lora.scaling"] = scaling(config.lora.variant, config.lora.rank, float(config.lora.alpha or 0))
    flat |= {
        "data_seed": config.data_seed,
        "data.max_seq_len": config.data.max_seq_len,
        "data.eval_max_seq_len": config.data.eval_max_seq_len,
        "data.supervise": config.data.supervise,
        "hardware.precision": config.hardware.precision,
        "hardware.micro_batch_size": config.hardware.micro_batch_size,
        "model.dtype": config.model.dtype,
        "model.weights": weights,
    }
    return flat | {f"custom.{name}": value for name, value in config.custom.items()}


def _without_patch(code: GitState) -> dict[str, Any]:
    facts = asdict(code)
    facts["patch"] = "code.patch" if facts["patch"] else None
    return facts


def flat_settings(config: RunConfig) -> dict[str, Any]:
    """Every setting by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in asdict(config).items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": item for inner, item in value.items()}
        else:
            flat[name] = value
    return flat
