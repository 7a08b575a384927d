"""python -m ftx.train: one run, from a command line to a run directory.

Refusals come first and leave nothing behind: the command line, the configuration, the machine, the rows. Then
the run directory is made, and from there on everything that happens is recorded in it.
"""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from ftx.config.checks import announcements
from ftx.config.command_line import (
    CommandLine,
    group_options,
    hydra_overrides,
    own_config_dir,
    packaged_config_dir,
    parse_command_line,
    quoted,
)
from ftx.config.compose import CONFIG_NAME, compose_run, register_schema, to_run_config
from ftx.config.schema import RunConfig
from ftx.config.values import described_keys
from ftx.errors import ConfigError, FtxError
from ftx.record.labbook import refuse_unwritable
from ftx.record.layout import RunDir, create_run_dir
from ftx.record.run_record import RunRecord
from ftx.record.strict_json import dumps
from ftx.report.help import print_help

if TYPE_CHECKING:
    from ftx.job.preparation import Preparation

REFUSED = 2
INTERRUPTED = (130, 143)


class SweepEnded(BaseException):
    """Raised between jobs when a person has interrupted one: no further job starts."""


class Application:
    """What one command line asks for, and what came of it."""

    def __init__(self, line: CommandLine) -> None:
        self.line = line
        self.console = Console(stderr=line.json)
        self.records: list[RunRecord] = []
        self.statuses: list[int] = []

    def start(self) -> int:
        """Do what the command line says and return the exit status."""
        if self.line.help:
            print_help(self.console, group_options(self.line), described_keys())
            return 0
        try:
            _refuse_torchrun()
            config = compose_run(self.line)
            if self.line.multirun or self.line.view:
                self._through_hydra(self.main)
            else:
                self._single(config)
        except FtxError as error:
            self.refuse(error)
        except SweepEnded:
            self._say("The sweep was interrupted; jobs that had not started were left out.")
        if self.line.json and self.records:
            found = [asdict(record) for record in self.records]
            print(dumps(found if self.line.multirun else found[0], indent=2))
        return exit_status(self.statuses)

    def main(self, composed: DictConfig) -> float | None:
        """Hydra's task, once per job of a sweep; returns the validation value, which a sweeper may optimise."""
        job = HydraConfig.get()
        try:
            ready = self._prepared(to_run_config(composed), list(job.overrides.task))
            run = create_run_dir(Path(ready.config.output_root), ready.name)
        except FtxError as error:
            self.refuse(error)
            return None
        shutil.copytree(Path(job.runtime.output_dir) / str(job.output_subdir), run.hydra)
        value = self._recorded(ready, run)
        if self.statuses[-1] in INTERRUPTED:
            raise SweepEnded
        return value

    def refuse(self, error: FtxError) -> None:
        """Say what is wrong, one line each, without a traceback."""
        for line in str(error).splitlines():
            print(f"ftx: {line}", file=sys.stderr)
        self.statuses.append(REFUSED)

    def _single(self, config: RunConfig) -> None:
        """One run: the directory is made first, so that Hydra writes its own files into it."""
        ready = self._prepared(config, self.line.overrides)
        refuse_unwritable(config.labbook)
        run = create_run_dir(Path(config.output_root), ready.name)
        self._through_hydra(lambda _composed: self._recorded(ready, run), f"hydra.run.dir={quoted(str(run.path))}")

    def _prepared(self, config: RunConfig, overrides: Sequence[str]) -> "Preparation":
        from ftx.job.hardware import fallback_notice, pin_device, resolve_hardware

        pin_device(config.hardware.device)
        settled = resolve_hardware(config)
        self._say(*announcements(settled), *fallback_notice(config, settled))
        from ftx.job.preparation import prepare_run  # imports transformers

        folder = self.line.config_dir
        ready = prepare_run(settled, overrides, ["--config-dir", folder] if folder else [])
        self._say(*ready.data.notices())
        return ready

    def _recorded(self, ready: "Preparation", run: RunDir) -> float | None:
        from ftx.job.session import run_recorded

        config_dir = own_config_dir(self.line) or packaged_config_dir()
        record, status = run_recorded(ready, run, config_dir, self.console)
        self.records.append(record)
        self.statuses.append(status)
        value = record.result["validation_value"]
        return None if value is None else float(value)

    def _say(self, *lines: str) -> None:
        for line in lines:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _through_hydra(self, task: Callable[[DictConfig], Any], *extra: str) -> None:
        """Run `task` as a Hydra application, with Hydra's own files, views and sweepers."""
        register_schema()
        flags = [*self.line.view, *(["--multirun"] if self.line.multirun else [])]
        typed = sys.argv
        sys.argv = [typed[0], *flags, *hydra_overrides(self.line), *extra]
        try:
            config_path = str(packaged_config_dir().resolve())
            hydra.main(version_base="1.3", config_path=config_path, config_name=CONFIG_NAME)(task)()
        finally:
            sys.argv = typed


def exit_status(statuses: Sequence[int]) -> int:
    """One exit status for all jobs: interrupted before failed; refused only if nothing else happened."""
    interrupted = [status for status in statuses if status in INTERRUPTED]
    if interrupted:
        return interrupted[0]
    if statuses and set(statuses) == {REFUSED}:
        return REFUSED
    return int(any(statuses))


def _refuse_torchrun() -> None:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            [f"WORLD_SIZE={os.environ['WORLD_SIZE']}: a run is one process so far; start it without torchrun"]
        )


def start(arguments: Sequence[str]) -> int:
    """Parse the command line and run the application; returns the exit status."""
    try:
        line = parse_command_line(arguments)
    except FtxError as error:
        Application(CommandLine()).refuse(error)
        return REFUSED
    try:
        return Application(line).start()
    except KeyboardInterrupt:  # before the run had a directory; later ones are recorded
        return 130


if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
