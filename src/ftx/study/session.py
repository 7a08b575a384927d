"""A study from its plan to its last table: lock, launch what is missing, keep book, whatever happens."""

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from filelock import FileLock, Timeout
from rich.console import Console

from ftx.config.command_line import as_hydra_reads, quoted
from ftx.data.findings import refuse_problems
from ftx.errors import FtxError, StudyRunning
from ftx.job.task import ARM, PLANNED, STUDY
from ftx.record.labbook import refuse_unwritable
from ftx.record.layout import StudyDir
from ftx.record.provenance import process_identity
from ftx.record.run_record import utc_date
from ftx.record.study_record import StudyRecord
from ftx.report.console import say
from ftx.report.study import closing_lines, plan_lines
from ftx.study.book import close_dead_runs, link_runs, study_dir
from ftx.study.forecast import room
from ftx.study.outlook import Outlook, look
from ftx.study.planning import StudyPlan, Trial

ORPHAN_POLL_SECONDS = 0.5

Launch = Callable[[Sequence[str]], None]
"""Starts Hydra with these overrides besides the person's own."""


@contextmanager
def locked(folder: StudyDir) -> Iterator[None]:
    """Hold the study's lock. Raises StudyRunning.

    The lock is the system's (flock), given back when the process ends however it ends; it works between hosts
    where their shared file system passes such locks on, as NFS 4 does.
    """
    folder.path.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.lock, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise StudyRunning(f"{folder.path}: this study is already running{_by_whom(folder)}") from None
    try:
        yield
    finally:
        lock.release()


def run_study(plan: StudyPlan, command: Sequence[str], launch: Launch, console: Console) -> tuple[StudyRecord, int]:
    """Run what is missing of the study; its record afterwards, and the exit status.

    Raises:
        StudyRunning: another process runs it.
        ConfigError: its folder holds a study with another baseline.
        BaseException: whatever ended the launch, after the record was closed.
    """
    folder = study_dir(plan.name)
    refuse_unwritable(plan.baseline.labbook)
    refuse_problems(room(look(plan)))  # whatever can be refused is, before a folder is made
    with locked(folder):
        outlook = _without_orphans(plan, console)
        plan, record, to_run = outlook.plan, outlook.record, outlook.to_run
        _bury(outlook, {})
        say(console, *plan_lines(record, plan.notes, [trial.name for trial in to_run], plan.study.max_runs))
        _begin(record, plan, to_run, command)
        record.write(folder)
        _log(folder, f"started: {shlex.join(command)}; {len(to_run)} runs to do")
        ended_by: BaseException | None = None
        try:
            if to_run:
                launch(
                    [f"hydra.sweep.dir={quoted(str(folder.path))}", f"hydra.sweeper.plan={quoted(str(folder.record))}"]
                )
        except BaseException as error:  # whatever it is, the book is closed first
            ended_by = error
        record = _closed(plan, folder, ended_by)
    planned = {trial.name for trial in plan.trials}
    say(console, *closing_lines(record, folder, shlex.join(command), planned))
    if ended_by is not None:
        raise ended_by
    failed = [trial for trial in record.trials if trial.name in planned and trial.state == "failed"]
    return record, int(bool(failed or record.launches[-1]["failures"]))


def _without_orphans(plan: StudyPlan, console: Console) -> Outlook:
    """The study once the runs of a launch that was killed have ended, as they do after their next step."""
    outlook = look(plan)
    if outlook.orphans:
        runs = ", ".join(outlook.orphans)
        say(console, f"Waiting for runs of an earlier launch, which end after their next step: {runs}")
    while outlook.orphans:
        time.sleep(ORPHAN_POLL_SECONDS)
        outlook = look(plan)
    return outlook


def _begin(record: StudyRecord, plan: StudyPlan, to_run: Sequence[Trial], command: Sequence[str]) -> None:
    record.launches.append(
        {
            "date": utc_date(datetime.now(UTC)),
            "command": list(command),
            "process": process_identity(),
            "replicates": [replicate.label for replicate in plan.design.replicates],
            "replicate_top": plan.study.replicate_top,
            "to_run": [trial.name for trial in to_run],
            "jobs": [job_overrides(plan, trial) for trial in to_run],
            "failures": [],
            "ended": None,
            "ended_by": None,
        }
    )


def job_overrides(plan: StudyPlan, trial: Trial) -> list[str]:
    """What Hydra needs to start the trial: its own overrides, and its role, which is Hydra's business only."""
    folder = study_dir(plan.name)
    subdir = folder.job(trial.name, trial.fingerprint["train"]).relative_to(folder.path)
    return [
        *(as_hydra_reads(word) for word in trial.overrides),
        *_at_its_commit(trial),
        f"hydra.sweep.subdir={quoted(str(subdir))}",
        f"hydra.job.name={quoted(trial.name)}",
        f"++hydra.job.env_set.{STUDY}={quoted(plan.name)}",
        f"++hydra.job.env_set.{ARM}={quoted(trial.arm.label)}",
        f"++hydra.job.env_set.{PLANNED}={trial.fingerprint['train']}",
    ]


def _at_its_commit(trial: Trial) -> list[str]:
    """A data set of the Hub as it was when the study was planned, whatever its branch has become."""
    commit = trial.inputs.data.record["revision"]
    return [f"data.revision={commit}"] if trial.config.data.source == "hub" and commit else []


def _closed(plan: StudyPlan, folder: StudyDir, ended_by: BaseException | None) -> StudyRecord:
    """Read from outputs/ what has become of every trial, and write it down."""
    outlook = look(replace(plan, study=replace(plan.study, replicate_top=None)))  # ranked once
    record = outlook.record
    launch = record.launches[-1]
    launch["ended"] = utc_date(datetime.now(UTC))
    launch["ended_by"] = None if ended_by is None else f"{type(ended_by).__name__}: {ended_by}".rstrip(": ")
    reasons = {failure["job"]: failure["reason"] for failure in launch["failures"]}
    for trial in record.trials:
        if trial.name in reasons and trial.status in (None, "killed"):
            trial.reason = reasons[trial.name]
    _bury(outlook, {trial.fingerprint["train"]: trial.reason for trial in record.trials if trial.status == "killed"})
    record.write(folder)
    link_runs(record, folder)
    for trial in record.trials:
        _log(folder, f"{trial.name}: {trial.state}{f', {trial.reason}' if trial.reason else ''} {trial.run or ''}")
    return record


def _bury(outlook: Outlook, reasons: Mapping[str, str | None]) -> None:
    """Close the records of the study's runs whose process is gone."""
    mine = {trial.fingerprint["train"] for trial in outlook.plan.trials}
    runs = [found for found in outlook.ledger if found.record.fingerprint["train"] in mine]
    for dead in close_dead_runs(runs, reasons, outlook.plan.baseline.labbook):
        _log(outlook.folder, f"{dead.run.path}: killed, {dead.record.error}")


def _by_whom(folder: StudyDir) -> str:
    try:
        launch = StudyRecord.read(folder.record).launches[-1]
    except (FtxError, IndexError):
        return ""
    return f" (process {launch['process']['pid']} on {launch['process']['host']}, since {launch['date']})"


def _log(folder: StudyDir, line: str) -> None:
    with folder.log.open("a", encoding="utf-8") as file:
        file.write(f"{utc_date(datetime.now(UTC))} {line}\n")
