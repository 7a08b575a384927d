"""A run out of a record: continued where it ended, or trained anew beside it."""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console

from ftx.config.changes import changes
from ftx.config.command_line import CommandLine
from ftx.config.fingerprint import MOVES_WEIGHTS
from ftx.config.recorded import recorded_config
from ftx.config.resolve import paths_of
from ftx.config.schema import RunConfig
from ftx.errors import ConfigError, RunHeld
from ftx.job.preparation import Preparation, inputs_of
from ftx.job.resumption import inputs_of_record, new_directory, other_inputs, resumption_of
from ftx.job.task import prepared, recorded
from ftx.record.labbook import refuse_unwritable
from ftx.record.layout import SNAPSHOTS, RunDir
from ftx.record.ledger import FoundRun
from ftx.record.liveness import held
from ftx.record.provenance import file_sha256
from ftx.record.run_record import RunRecord, alterations
from ftx.report.console import say

Flags = tuple[str, ...]


def continued(
    run: RunDir, line: CommandLine, flags: Flags, config_dir: Path, console: Console
) -> tuple[RunRecord, int]:
    """Go on with `resume=RUN`; the record, and the exit status. A finished run is left as it is.

    Raises:
        FtxError: it cannot go on, or would be another run.
    """
    done = _found(run, "resume")
    if done.record.status == "finished":
        _refuse_changes(done, line.overrides)
        say(console, f"{run.path} has finished: nothing to do")
        return done.record, 0
    with held(run):
        found = _found(run, "resume")
        if found.status(time.time())[0] == "running":
            process = found.record.process or {}
            raise RunHeld(f"resume={run.path}: it is running (process {process.get('pid')} on {process.get('host')})")
        config = _config_of(found, line.overrides, "resume", console)
        ready = prepared(config, _words("resume", run, line), flags, console)
        refuse_unwritable(config.labbook)
        resumption = resumption_of(found, ready, force=line.resume_force, now=time.time())
        _keep_as_hydra_does(run.hydra_resume(resumption.number), ready)
        return recorded(ready, run, config_dir, console, resumption)


def repeated(run: RunDir, line: CommandLine, flags: Flags, config_dir: Path, console: Console) -> tuple[RunRecord, int]:
    """Train `reproduce=RUN` anew, in a directory beside it; the new record, and the exit status.

    Raises:
        FtxError: it cannot be trained, or would be another run.
    """
    found = _found(run, "reproduce")
    config = _config_of(found, line.overrides, "reproduce", console)
    ready = prepared(config, _words("reproduce", run, line), flags, console)
    _refuse_another(found, ready)
    refuse_unwritable(config.labbook)
    with new_directory(ready, f"{run.path.resolve().name}-again") as (beside, _):
        _keep_as_hydra_does(beside.hydra, ready)
        return recorded(ready, beside, config_dir, console)


def _found(run: RunDir, verb: str) -> FoundRun:
    if not run.record.is_file():
        raise ConfigError([f"{verb}={run.path}: no run.json there; expected a run directory, such as outputs/NAME"])
    return FoundRun(run, RunRecord.read(run.record))


def _refuse_changes(done: FoundRun, words: Sequence[str]) -> None:
    if words:
        raise ConfigError(
            [
                f"resume={done.run.path}: has finished, and {' '.join(words)} would make another run of it: "
                f"start a new one, {shlex.join([*done.record.command, *words])}"
            ]
        )


def _words(verb: str, run: RunDir, line: CommandLine) -> list[str]:
    force = ["resume_force=true"] if line.resume_force else []
    return [f"{verb}={run.path}", *force, *line.overrides]


def _config_of(found: FoundRun, words: Sequence[str], verb: str, console: Console) -> RunConfig:
    """The recorded configuration, at home where the run directory is now, its files read from copies if need be."""
    folder = (found.record.process or {}).get("folder")
    config = recorded_config(found.record.config, words, folder, verb)
    config.output_root = str(found.run.path.parent)
    for name in ("path", "eval_path", "test_path"):
        given = getattr(config.data, name)
        copies = {path: _copy_of(path, found) for path in paths_of(given)}
        say(
            console,
            *(
                f"data.{name}: {path} is not what it was; its copy is read: {copy}"
                for path, copy in copies.items()
                if copy
            ),
        )
        kept = [copy or path for path, copy in copies.items()]
        setattr(config.data, name, kept if isinstance(given, list) else kept[0] if kept else given)
    return config


def _copy_of(path: str, found: FoundRun) -> str | None:
    """The copy that data.snapshot kept of a file that is gone or was changed; None: not needed, or there is none."""
    files: Sequence[Mapping[str, Any]] = found.record.dataset.get("files") or ()
    kept = next((file for file in files if file.get("snapshot") and _same_name(file, path)), None)
    if kept is None:
        return None
    now = Path(path).expanduser()
    if now.is_file() and file_sha256(now) == kept["sha256"]:
        return None
    copy = found.run.path.parent / SNAPSHOTS / Path(kept["snapshot"]).name
    return str(copy) if copy.is_file() and file_sha256(copy) == kept["sha256"] else None


def _same_name(file: Mapping[str, Any], path: str) -> bool:
    return str(file.get("path")) == path or Path(str(file.get("path"))).name == Path(path).name


def _refuse_another(found: FoundRun, ready: Preparation) -> None:
    """What is trained must be the run: its settings and its inputs."""
    if altered := alterations(found.record):
        raise ConfigError(
            [
                f"reproduce={found.run.path}: it was continued with other settings ({', '.join(altered)}), "
                "which no single run repeats"
            ]
        )
    differing = [str(change) for change in changes(found.record.config, ready.config) if change.key in MOVES_WEIGHTS]
    differing += other_inputs(inputs_of_record(found.record), inputs_of(ready), "run")
    if differing:
        raise ConfigError([f"reproduce={found.run.path}: {other}; that is another run" for other in differing])


def _keep_as_hydra_does(folder: Path, ready: Preparation) -> None:
    """Write what Hydra, which had no part in this configuration, would have written."""
    folder.mkdir(exist_ok=True)
    OmegaConf.save(OmegaConf.create(asdict(ready.config)), folder / "config.yaml")
    OmegaConf.save(OmegaConf.create(list(ready.overrides)), folder / "overrides.yaml")
