"""python -m ftx.train: one run, or the runs of a study, from a command line to run directories.

Refusals come first and leave nothing behind: the command line, the configuration, the machine, the rows. Then
the run directory is made, and from there on everything that happens is recorded in it.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig
from rich.console import Console

from ftx.config.command_line import (
    AUTO,
    CommandLine,
    group_options,
    hydra_overrides,
    own_config_dir,
    packaged_config_dir,
    parse_command_line,
    quoted,
    search_path,
)
from ftx.config.compose import CONFIG_NAME, compose_run, hydra_raises, open_composer, register_schema
from ftx.config.schema import RunConfig
from ftx.config.values import described_keys
from ftx.errors import ConfigError, FtxError, RunFailed, StudyRunning
from ftx.record.labbook import refuse_unwritable
from ftx.record.layout import RunDir
from ftx.record.run_record import RunRecord
from ftx.record.strict_json import dumps
from ftx.report.console import say
from ftx.report.help import print_help

REFUSED = 2
RUNNING = 3


class Application:
    """What one command line asks for."""

    def __init__(self, line: CommandLine) -> None:
        self.line = line
        self.console = Console(stderr=line.json)
        self.flags = ("--config-dir", line.config_dir) if line.config_dir else ()

    def start(self) -> int:
        """Do what the command line says and return the exit status."""
        if self.line.help:
            print_help(self.console, group_options(self.line), described_keys())
            return 0
        _refuse_torchrun()
        if self.line.recorded is not None:
            return self._recorded(RunDir(Path(self.line.recorded)))
        if self.line.view:
            compose_run(self.line)
            self._through_hydra(_nothing)
            return 0
        return self._several() if self.line.multirun else self._single(compose_run(self.line))

    def _single(self, config: RunConfig) -> int:
        """One run: the directory is made first, so that Hydra writes its own files into it."""
        from ftx.job.resumption import directory_for, finished_run, new_directory
        from ftx.job.task import prepared, recorded

        ready = prepared(config, self.line.overrides, self.flags, self.console)
        refuse_unwritable(config.labbook)
        endings: list[tuple[RunRecord, int]] = []
        if self.line.resume == AUTO and (done := finished_run(ready)) is not None:
            say(self.console, f"{done.run.path} has finished with these settings: nothing to do")
            self._print_json(asdict(done.record))
            return 0
        place = new_directory(ready) if self.line.resume is None else directory_for(ready, partial(say, self.console))
        with place as (run, resumption):
            files = run.hydra if resumption is None else run.hydra_resume(resumption.number)

            def train(_composed: DictConfig) -> None:
                endings.append(recorded(ready, run, self._config_dir(), self.console, resumption))

            self._through_hydra(
                train, f"hydra.run.dir={quoted(str(run.path))}", f"hydra.output_subdir={quoted(files.name)}"
            )
        ((record, status),) = endings
        self._print_json(asdict(record))
        return status

    def _recorded(self, run: RunDir) -> int:
        """Go on with a run, or repeat it, with the configuration of its record."""
        from ftx.job.again import continued, repeated

        act = repeated if self.line.reproduce else continued
        record, status = act(run, self.line, self.flags, self._config_dir(), self.console)
        self._print_json(asdict(record))
        return status

    def _several(self) -> int:
        """A study; with a sweeper of Hydra's own, what that sweeper makes of the command line."""
        from ftx.launch.pool import warm_up
        from ftx.study.planning import OWN_LAUNCHER, OWN_SWEEPER, plan_study, sketch_study, sweeper_of

        with open_composer(self.line) as composer:
            if sweeper_of(composer) != OWN_SWEEPER:
                return self._other_sweeper([*composer.words_with_axes(), *search_path(self.line)])
            sketch = sketch_study(self.line, composer)
            if sketch.launcher == OWN_LAUNCHER:
                warm_up(sketch.study.preload)  # its imports take as long as the plan
            plan = plan_study(sketch, composer)
            words = [*composer.fixed_words(), *search_path(self.line)]
        from ftx.study.session import run_study

        command = ["python", "-m", "ftx.train", "-m", *self.flags, *self.line.overrides]
        words.append(f"hardware.threads={plan.baseline.hardware.threads}")
        record, status = run_study(
            plan, command, lambda extra: self._through_hydra(self._task(), *extra, words=words), self.console
        )
        self._print_json(asdict(record))
        return status

    def _other_sweeper(self, words: Sequence[str]) -> int:
        if self.line.json:
            raise ConfigError(["--json with -m needs ftx's own sweeper (hydra/sweeper=ofat)"])
        compose_run(self.line)
        try:
            self._through_hydra(self._task(), words=words)
        except RunFailed as error:
            _complain(error)
            return 1
        return 0

    def _task(self) -> Callable[[DictConfig], Any]:
        from ftx.job.task import Task

        return Task(self.flags, self._config_dir()).run

    def _config_dir(self) -> Path:
        return own_config_dir(self.line) or packaged_config_dir()

    def _print_json(self, found: dict[str, Any]) -> None:
        if self.line.json:
            print(dumps(found, indent=2))

    def _through_hydra(
        self, task: Callable[[DictConfig], Any], *extra: str, words: Sequence[str] | None = None
    ) -> None:
        """Run `task` as a Hydra application, with Hydra's own files, views and sweepers."""
        register_schema()
        flags = self.line.view or (["--multirun"] if self.line.multirun else [])
        config_path = str(packaged_config_dir().resolve())
        with hydra_raises(), self._only_json_on_stdout():
            arguments = [*flags, *(hydra_overrides(self.line) if words is None else words), *extra]
            with _typed(arguments):
                hydra.main(version_base="1.3", config_path=config_path, config_name=CONFIG_NAME)(task)()

    @contextmanager
    def _only_json_on_stdout(self) -> Iterator[None]:
        if not self.line.json:
            yield
            return
        with redirect_stdout(sys.stderr):
            yield


@contextmanager
def _typed(arguments: Sequence[str]) -> Iterator[None]:
    """Hydra reads its arguments from sys.argv."""
    before = sys.argv
    sys.argv = [before[0], *arguments]
    try:
        yield
    finally:
        sys.argv = before


def _nothing(_composed: DictConfig) -> None:
    """For Hydra's views, which end before any task."""


def _refuse_torchrun() -> None:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            [f"WORLD_SIZE={os.environ['WORLD_SIZE']}: a run is one process so far; start it without torchrun"]
        )


def _complain(error: Exception) -> None:
    """Say what is wrong, one line each, without a traceback."""
    for line in str(error).splitlines():
        print(f"ftx: {line}", file=sys.stderr)


def start(arguments: Sequence[str]) -> int:
    """Parse the command line and run the application; returns the exit status."""
    try:
        return Application(parse_command_line(arguments)).start()
    except StudyRunning as error:
        _complain(error)
        return RUNNING
    except FtxError as error:
        _complain(error)
        return REFUSED
    except BaseException as error:  # interrupted: what there was to record is recorded
        status = _interrupted_status(error)
        if status is None:
            raise
        return status


def _interrupted_status(error: BaseException) -> int | None:
    status = getattr(error, "exit_status", None)  # a run's own ending, or the pool's
    if status is None and isinstance(error, KeyboardInterrupt):
        return 130
    return None if status is None else int(status)


if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
