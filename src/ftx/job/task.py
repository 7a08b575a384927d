"""Hydra's task: one job of a sweep, from its composed configuration to a recorded run."""

import os
import shutil
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from ftx.config.checks import announcements
from ftx.config.compose import to_run_config
from ftx.config.schema import RunConfig
from ftx.data.findings import notes
from ftx.errors import RunFailed
from ftx.job.endings import Interrupted
from ftx.job.hardware import fallback_notice, pin_device, resolve_hardware
from ftx.job.preparation import Preparation, prepare_run
from ftx.job.resumption import Resumption, directory_for, new_directory
from ftx.record.layout import RunDir
from ftx.record.run_record import RunRecord
from ftx.report.console import say

# How a study tells a job its role, which is no part of its configuration, and the fingerprint that it planned.
STUDY, ARM, PLANNED = "FTX_STUDY", "FTX_ARM", "FTX_PLANNED"


@dataclass(frozen=True)
class Task:
    """What all jobs of a sweep share.

    Args:
        flags: what else it takes to compose the same, such as --config-dir.
        config_dir: the folder whose repository holds the configuration.
    """

    flags: tuple[str, ...]
    config_dir: Path

    def run(self, composed: DictConfig) -> float | None:
        """Run one job; returns the validation value, which a sweeper may optimise.

        Raises:
            FtxError: refused; nothing was left behind.
            RunFailed: the run is recorded and did not finish.
            Interrupted: it is recorded, and no further job should start.
        """
        job = HydraConfig.get()
        console = Console()
        ready = prepared(to_run_config(composed), list(job.overrides.task), self.flags, console, made_by())
        reuse = str(composed.study.reuse)
        with _place(ready, reuse, console) as (run, resumption):
            files = run.hydra if resumption is None else run.hydra_resume(resumption.number)
            shutil.copytree(Path(job.runtime.output_dir) / str(job.output_subdir), files, dirs_exist_ok=True)
            record, status = recorded(ready, run, self.config_dir, console, resumption)
        if record.status == "interrupted":
            raise Interrupted(str(record.stop_reason), status)
        if record.status != "finished":
            raise RunFailed(record.status, str(record.error))
        value = record.result["validation_value"]
        return None if value is None else float(value)


def _place(
    ready: Preparation, reuse: str, console: Console
) -> AbstractContextManager[tuple[RunDir, Resumption | None]]:
    """Where the job trains: a study goes on with its unfinished runs by itself."""
    if ready.made_by is None:
        return new_directory(ready)
    return directory_for(ready, partial(say, console), reuse=reuse, study=ready.made_by["study"])


def prepared(
    config: RunConfig,
    overrides: list[str],
    flags: tuple[str, ...],
    console: Console,
    made_by: dict[str, str] | None = None,
) -> Preparation:
    """Settle the machine, read rows and model, and say what may surprise. Raises FtxError."""
    pin_device(config.hardware.device)
    settled = resolve_hardware(config)
    say(console, *announcements(settled), *fallback_notice(config, settled))
    ready = prepare_run(settled, overrides, flags, made_by, os.environ.get(PLANNED))
    say(console, *notes(ready.findings))
    return ready


def recorded(
    ready: Preparation, run: RunDir, config_dir: Path, console: Console, resumption: Resumption | None = None
) -> tuple[RunRecord, int]:
    """Train in the directory, which the caller holds; the record, and the exit status that it asks for."""
    from ftx.job.session import run_recorded  # imports transformers

    if resumption is not None:
        say(console, *resumption.lines)
    return run_recorded(ready, run, config_dir, console, resumption)


def made_by() -> dict[str, str] | None:
    """The study and arm that started this job, if one did."""
    study = os.environ.get(STUDY)
    return {"study": study, "arm": os.environ.get(ARM, "")} if study else None
