"""A run from its directory to its last line: whatever happens in between is recorded."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from rich.console import Console

from ftx.config.schema import RunConfig
from ftx.data.snapshot import keep_snapshots
from ftx.data.sources import sources_of
from ftx.errors import FtxError
from ftx.job.endings import FINISHED, Ending, Interrupted, StopRequest, diverged_on_the_way, ending_of, signals_ask
from ftx.job.opening import begin, go_on, open_record, tracked_metrics, tracked_settings
from ftx.job.preparation import Preparation
from ftx.job.resumption import Resumption
from ftx.launch.channel import report
from ftx.record.checkpoints import FROM_THE_START, remove_whole
from ftx.record.git_state import git_state
from ftx.record.history import read_history
from ftx.record.labbook import append_entry, lock_path
from ftx.record.layout import MULTIRUN, SNAPSHOTS, RunDir
from ftx.record.losses import losses_from
from ftx.record.room import give_up_reserve, set_aside
from ftx.record.run_record import RunRecord, labbook_entry
from ftx.report.progress import Progress
from ftx.report.summary import failure_lines, print_summary
from ftx.tracking.protocol import Tracker

_LOG = logging.getLogger("ftx")


def run_recorded(
    ready: Preparation, run: RunDir, config_dir: Path, console: Console, resumption: Resumption | None = None
) -> tuple[RunRecord, int]:
    """Train in `run`, keep its record true at every moment, and return the record with the exit status.

    Args:
        ready: what to train.
        run: where; held by the caller.
        config_dir: the folder whose repository holds the configuration.
        console: for people.
        resumption: how the run goes on, if it was begun before.
    """
    record, stop = open_record(ready), StopRequest()
    if resumption is not None:
        record = resumption.continued(record)
    with job_log(run.log), signals_ask(stop):
        started = perf_counter() - (
            resumption.choice.facts["spent"]["seconds"] if resumption and resumption.folder else 0
        )
        progress = Progress(console, listener=report)
        ending = _attempt(ready, run, record, config_dir, progress, stop, resumption)
        problems = _close(record, run, perf_counter() - started, ready.config.labbook)
    if ending == FINISHED and not ready.config.checkpoint.keep:
        remove_whole(run.checkpoints)  # only now: the record says that the run has finished
    if ending == FINISHED:
        events, _ = read_history(run.history)
        print_summary(console, record, events, run)
    for line in (*failure_lines(record, run), *problems):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return record, ending.exit_status


def _attempt(
    ready: Preparation,
    run: RunDir,
    record: RunRecord,
    config_dir: Path,
    progress: Progress,
    stop: StopRequest,
    resumption: Resumption | None,
) -> Ending:
    """Record, then train; whatever ends the run becomes a status, a reason and, in job.log, a traceback."""
    try:
        set_aside(run)
        record.write(run)
        code = git_state(config_dir, ignore=own_outputs(ready.config))
        if resumption is None:
            _LOG.info("started as %s", record.command)
            begin(run, record, ready, code)
        else:
            _LOG.info("resumed as %s", resumption.entry.command)
            go_on(run, record, code, resumption)
        if ready.config.data.snapshot:
            folder = Path(ready.config.output_root) / SNAPSHOTS
            keep_snapshots(sources_of(ready.config.data), record.dataset["files"], folder)
            record.write(run)
        ending = _train(ready, run, record, progress, stop, resumption)
    except (Exception, KeyboardInterrupt, Interrupted) as error:
        ending = ending_of(error)
        _LOG.exception("run ended: %s", ending.status)
        interrupted = ending.status == "interrupted"
        record.stop_reason, record.error = (ending.reason, None) if interrupted else (None, ending.reason)
    finally:
        progress.stop()
    record.status = ending.status
    return ending


def _train(
    ready: Preparation,
    run: RunDir,
    record: RunRecord,
    progress: Progress,
    stop: StopRequest,
    resumption: Resumption | None,
) -> Ending:
    from ftx.job.finetune import run_finetune  # TRL takes seconds to import
    from ftx.tracking.protocol import open_trackers

    trackers = open_trackers(ready.config.tracking.backends, run.path, again=resumption is not None)
    final: dict[str, float] | None = None
    earlier, _ = read_history(run.history) if run.history.exists() else ([], [])
    for tracker in trackers:
        tracker.start(tracked_settings(record), tracked_metrics(ready))
        for event in earlier:
            tracker.log(step=event.step, split=event.split, metrics=event.metrics, time=event.time)
    try:
        begun = resumption.choice if resumption else FROM_THE_START
        outcome = run_finetune(ready, run, trackers, progress, stop, begun)
        record.result, record.scores, record.cost = outcome.result, outcome.scores, outcome.cost
        record.stop_reason = outcome.stop_reason
        record.hyperparameters |= outcome.model_facts
        final = {f"result/{name}": outcome.result[name] for name in ("value", "validation_value")}
        for split, scores in outcome.scores.items():
            final |= {f"score/{split}_{name}": scores[name] for name in ready.config.score.metrics}
    finally:
        for tracker in trackers:
            _close_tracker(tracker, final)
    if outcome.diverged is None:
        return FINISHED
    ending = diverged_on_the_way(outcome.diverged)
    record.error = ending.reason
    return ending


def _close_tracker(tracker: Tracker, final: dict[str, float] | None) -> None:
    """A tracker that cannot write its last words, on a full disk say, must not hide how the run itself ended."""
    try:
        tracker.close(final)
    except Exception:
        _LOG.exception("%s could not be closed", type(tracker).__name__)


def _close(record: RunRecord, run: RunDir, seconds: float, labbook: str | None) -> list[str]:
    """Write the record for the last time and the lab-book line; returns what could not be done, in words."""
    events, problems = read_history(run.history) if run.history.exists() else ([], [])
    record.losses = losses_from(events, seconds)
    record.cost |= {"seconds": seconds}
    give_up_reserve(run)  # the last state of the record may need this room
    try:
        record.write(run)
    except (FtxError, OSError) as error:
        problems.append(f"{run.record}: the last state of the record could not be written ({error})")
    if labbook is not None:
        try:
            append_entry(Path(labbook), labbook_entry(record))
        except (FtxError, OSError) as error:
            problems.append(f"labbook={labbook}: this run was not entered ({error})")
    return problems


def own_outputs(config: RunConfig) -> list[Path]:
    """What ftx itself writes where it was started; none of it makes the code dirty."""
    written = [MULTIRUN]
    if Path(config.output_root).resolve() != Path.cwd():
        written.append(Path(config.output_root))
    if config.labbook is not None:
        written += [Path(config.labbook), lock_path(Path(config.labbook))]
    return written


class _JobLog(logging.FileHandler):
    """Says once that it cannot write, and not with a traceback a line."""

    def handleError(self, record: logging.LogRecord) -> None:  # logging's own name
        """A full disk, most likely: the run's own ending says so too."""
        if not self.failed:
            print(f"ftx: {self.baseFilename} cannot be written ({sys.exc_info()[1]})", file=sys.stderr)
        self.failed = True

    failed = False


@contextmanager
def job_log(path: Path) -> Iterator[None]:
    """Send every log line and warning of this process to job.log, and none to the console."""
    from transformers.utils import logging as transformers_logging

    handler = _JobLog(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    transformers_logging.disable_default_handler()
    transformers_logging.enable_propagation()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
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
