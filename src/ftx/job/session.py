"""A run from its directory to its last line: whatever happens in between is recorded."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from rich.console import Console

from ftx.config.schema import RunConfig
from ftx.errors import FtxError
from ftx.job.endings import Ending, Terminated, ending_of, sigterm_raises
from ftx.job.opening import flat_settings, open_record, write_surroundings
from ftx.job.preparation import Preparation
from ftx.record.git_state import git_state
from ftx.record.history import read_history
from ftx.record.labbook import append_entry, lock_path
from ftx.record.layout import RunDir
from ftx.record.losses import losses_from
from ftx.record.run_record import RunRecord, labbook_entry
from ftx.report.progress import Progress
from ftx.report.summary import failure_lines, print_summary

_LOG = logging.getLogger("ftx")


def run_recorded(ready: Preparation, run: RunDir, config_dir: Path, console: Console) -> tuple[RunRecord, int]:
    """Train in `run`, keep its record true at every moment, and return the record with the exit status."""
    code = git_state(config_dir, ignore=own_outputs(ready.config))
    record = open_record(ready, code)
    record.write(run)
    write_surroundings(run, ready, code)
    started = perf_counter()
    with job_log(run.log), sigterm_raises():
        _LOG.info("started as %s", sys.argv)
        record, ending = _attempt(ready, run, record, Progress(console))
    events, problems = read_history(run.history) if run.history.exists() else ([], [])
    seconds = perf_counter() - started
    record = replace(record, losses=losses_from(events, seconds), cost=record.cost | {"seconds": seconds})
    record.write(run)
    problems += _enter_in_labbook(record, ready.config.labbook)
    if record.status == "finished":
        print_summary(console, record, events, run)
    for line in (*failure_lines(record, run), *problems):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return record, ending.exit_status


def _attempt(ready: Preparation, run: RunDir, record: RunRecord, progress: Progress) -> tuple[RunRecord, Ending]:
    """Train; whatever ends the run becomes a status, a reason and, in job.log, a traceback."""
    try:
        return _trained(ready, run, record, progress), Ending("finished", "", 0)
    except (Exception, KeyboardInterrupt, Terminated) as error:
        ending = ending_of(error)
        if isinstance(error, FtxError):
            _LOG.error("%s", error)
        else:
            _LOG.exception("run ended: %s", ending.status)
        interrupted = ending.status == "interrupted"
        reason, fault = (ending.reason, None) if interrupted else (None, ending.reason)
        return replace(record, status=ending.status, stop_reason=reason, error=fault), ending
    finally:
        progress.stop()


def _enter_in_labbook(record: RunRecord, labbook: str | None) -> list[str]:
    """Append the run's line; a lab book that cannot be written costs a warning, not the run."""
    if labbook is None:
        return []
    try:
        append_entry(Path(labbook), labbook_entry(record))
    except (FtxError, OSError) as error:
        return [f"labbook={labbook}: this run was not entered ({error}); its record is complete"]
    return []


def own_outputs(config: RunConfig) -> list[Path]:
    """What ftx itself writes where it was started; none of it makes the code dirty."""
    written = [Path("multirun")]
    if Path(config.output_root).resolve() != Path.cwd():
        written.append(Path(config.output_root))
    if config.labbook is not None:
        written += [Path(config.labbook), lock_path(Path(config.labbook))]
    return written


def _trained(ready: Preparation, run: RunDir, record: RunRecord, progress: Progress) -> RunRecord:
    from ftx.job.finetune import run_finetune  # TRL takes seconds to import
    from ftx.tracking.protocol import open_trackers

    trackers = open_trackers(ready.config.tracking.backends, run.path)
    final: dict[str, float] = {}
    for tracker in trackers:
        tracker.start(flat_settings(ready.config), ["result/value", "result/validation_value"])
    try:
        outcome = run_finetune(ready, run, trackers, progress)
        final = {f"result/{name}": outcome.result[name] for name in ("value", "validation_value")}
        for split, scores in outcome.scores.items():
            final[f"score/{split}_exact_match"] = scores["exact_match"]
    finally:
        for tracker in trackers:
            tracker.close(final)
    return replace(
        record,
        status="finished",
        stop_reason=outcome.stop_reason,
        result=outcome.result,
        scores=outcome.scores,
        cost=outcome.cost,
        hyperparameters=record.hyperparameters | {"lora.adapted_modules": outcome.adapted_modules},
    )


@contextmanager
def job_log(path: Path) -> Iterator[None]:
    """Send every log line and warning of this process to job.log, and none to the console."""
    from transformers.utils import logging as transformers_logging

    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    transformers_logging.disable_default_handler()
    transformers_logging.enable_propagation()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.captureWarnings(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            yield
    finally:
        logging.captureWarnings(False)
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()
