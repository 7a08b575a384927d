"""Going on with a run that has ended: from which checkpoint, and whether it is still the same run."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ftx.config.changes import Change, changes, forbidden, unforceable
from ftx.config.fingerprint import MOVES_WEIGHTS, resumed_fingerprint
from ftx.config.schema import RunConfig
from ftx.errors import ConfigError, FtxError, RunHeld
from ftx.job.cadence import total_steps
from ftx.job.hardware import device_facts
from ftx.job.preparation import Preparation, inputs_of
from ftx.model.adapter import PISSA_START
from ftx.record.checkpoints import Checkpoint, Choice, checkpoints_of, damage, usable_checkpoint
from ftx.record.layout import RunDir, create_run_dir
from ftx.record.ledger import FoundRun, Ledger
from ftx.record.liveness import held
from ftx.record.run_record import Resume, RunRecord, alterations, utc_date
from ftx.record.surroundings import Surroundings

START = "start"
"""What a run resumes from that has no usable checkpoint."""


@dataclass(frozen=True)
class Resumption:
    """A run that can go on, and all that is to be said and recorded of it."""

    found: FoundRun
    choice: Choice
    entry: Resume

    @property
    def number(self) -> int:
        """How often the run has been resumed, this time included."""
        return len(self.found.record.resumes) + 1

    @property
    def folder(self) -> Path | None:
        """The checkpoint's folder; None: from the start."""
        return self.choice.checkpoint.path if self.choice.checkpoint else None

    @property
    def lines(self) -> Iterator[str]:
        """What a person should know of it, one line each."""
        entry = self.entry
        where = "the start" if self.choice.checkpoint is None else f"{entry.checkpoint} (step {entry.step})"
        yield f"Resuming {self.found.run.path} ({entry.after}) from {where}."
        yield from (f"Not used: {skipped}" for skipped in entry.skipped)
        yield from (f"Changed: {change['key']} {change['before']} -> {change['now']}" for change in entry.changes)
        yield from (f"Other than before: {other}" for other in entry.surroundings)
        yield from (f"Forced: {problem}" for problem in entry.forced)

    def continued(self, fresh: RunRecord) -> RunRecord:
        """The record as it goes on: `fresh` as if the run had just been opened, with what stays of the old one."""
        old = self.found.record
        fresh.run_id, fresh.date, fresh.lab, fresh.made_by = old.run_id, old.date, old.lab, old.made_by
        fresh.code, fresh.config_commit, fresh.command = old.code, old.config_commit, old.command
        fresh.versions, fresh.hardware = old.versions, old.hardware
        fresh.reproductions = old.reproductions
        fresh.resumed_from = self.entry.checkpoint
        fresh.resumes = [*old.resumes, asdict(self.entry)]
        fresh.fingerprint["train"] = resumed_fingerprint(fresh.fingerprint["train"], alterations(fresh))
        return fresh


def resumption_of(found: FoundRun, ready: Preparation, *, force: bool, now: float) -> Resumption:
    """How `found` goes on with the settings and rows of `ready`.

    Args:
        found: a run that has ended without finishing.
        ready: the run as it would be started now.
        force: go on although settings or data are no longer the same.
        now: seconds since 1970.

    Raises:
        ConfigError: it would be another run; every reason at once.
    """
    choice = _usable(found, ready.config)
    changed = changes(choice.facts.get("config", found.record.config), ready.config)
    before = choice.facts.get("inputs") or inputs_of_record(found.record)
    problems = [str(change) for change in forbidden(changed, ready.config.metric.name)]
    problems += other_inputs(before, inputs_of(ready), "checkpoint")
    if choice.checkpoint is not None:
        _refuse_impossible(found, choice.checkpoint, changed, ready)
    if problems and not force:
        raise ConfigError(
            [
                f"resume={found.run.path}: {problem}; that is another run, so start a new one, or take it back"
                for problem in problems
            ]
            + ["resume_force=true goes on all the same, and is marked in the record and in every table"]
        )
    status, reason = found.status(now)
    return Resumption(
        found=found,
        choice=choice,
        entry=Resume(
            date=utc_date(datetime.now(UTC)),
            checkpoint=f"checkpoints/{choice.checkpoint.name}" if choice.checkpoint else START,
            step=choice.checkpoint.step if choice.checkpoint else 0,
            after=f"{status}: {reason}" if reason else status,
            command=ready.command,
            changes=[asdict(change) for change in changed],
            surroundings=surroundings_of(ready).differences(Surroundings.of(found.record)),
            skipped=list(choice.skipped),
            forced=problems,
            altered=_altered(changed, problems) if choice.checkpoint else [],
        ),
    )


def surroundings_of(ready: Preparation) -> Surroundings:
    """What the run would be trained with now."""
    facts = device_facts(ready.config.hardware.device)
    return Surroundings.here(facts["accelerator"], facts["device_name"])


def runs_of(root: Path, train: str) -> list[FoundRun]:
    """Runs of this `train` fingerprint below `root`, newest first, by the fingerprint's start in their names."""
    return [found for found in Ledger.scan(root, f"*-{train[:8]}*") if found.record.fingerprint["train"] == train]


def finished_run(ready: Preparation) -> FoundRun | None:
    """The newest finished run that this one would repeat, made with the same code, versions and device."""
    here = surroundings_of(ready)
    return next(
        (
            found
            for found in runs_of(Path(ready.config.output_root), ready.fingerprint["train"])
            if found.record.status == "finished"
            and found.record.fingerprint["evaluation"] == ready.fingerprint["evaluation"]
            and not here.differences(Surroundings.of(found.record))
        ),
        None,
    )


@contextmanager
def directory_for(
    ready: Preparation, say: Callable[[str], None], *, reuse: str = "same", study: str | None = None
) -> Iterator[tuple[RunDir, Resumption | None]]:
    """Hold the directory in which the run goes on, if one like it was begun and has not finished, or else a new one.

    Args:
        ready: the run as it would be started now.
        say: is told of unfinished runs that are left as they are, and why.
        reuse: same: only runs begun with the same code, versions and device; any; never: only those of `study`.
        study: the study that asks.
    """
    for found in runs_of(Path(ready.config.output_root), ready.fingerprint["train"]):
        why_not = _left_alone(found, ready, reuse, study)
        if why_not is not None:
            say(f"{found.run.path} {why_not}, so it is not continued")
            continue
        with ExitStack() as stack:
            try:
                stack.enter_context(held(found.run))
                again = FoundRun(found.run, RunRecord.read(found.run.record))  # as it is, now that nobody writes it
                if not resumable(again):
                    continue
                resumption = resumption_of(again, ready, force=False, now=time.time())
            except RunHeld:
                continue
            except FtxError as error:
                say(f"{found.run.path} is not continued: {str(error).splitlines()[0]}")
                continue
            yield again.run, resumption
            return
    with new_directory(ready) as place:
        yield place


@contextmanager
def new_directory(ready: Preparation, name: str | None = None) -> Iterator[tuple[RunDir, None]]:
    """Hold a directory of its own for the run; `name` instead of what it would be called."""
    run = create_run_dir(Path(ready.config.output_root), name or ready.name)
    with held(run):
        yield run, None


def _left_alone(found: FoundRun, ready: Preparation, reuse: str, study: str | None) -> str | None:
    """Why a run of the same fingerprint is not to be continued, in words; None: it may be."""
    status, _ = found.status(time.time())
    if status in ("running", "finished"):
        return f"is {status}"
    if reuse == "never" and (found.record.made_by or {}).get("study") != study:
        return "is of another study, and study.reuse=never"
    other = surroundings_of(ready).differences(Surroundings.of(found.record))
    if other and reuse != "any":
        return f"was begun with other {', '.join(other)}"
    return None


def resumable(found: FoundRun) -> bool:
    """Whether the run has ended without finishing."""
    return found.status(time.time())[0] not in ("running", "finished")


def inputs_of_record(record: RunRecord) -> dict[str, Any]:
    """The same of a recorded run as `inputs_of` of one that is ready."""
    dataset = record.dataset
    return {
        "content": dataset.get("content") or {},
        "template": dataset.get("template_sha256"),
        "weights": record.hyperparameters.get("model.weights"),
    }


def _usable(found: FoundRun, config: RunConfig) -> Choice:
    choice = usable_checkpoint(found.run, with_best=config.metric.at == "best")
    start = found.run.checkpoints / PISSA_START
    if choice.checkpoint is not None and config.lora.variant == "pissa" and (wrong := damage(start)):
        every = [
            f"{checkpoint.name}: it counts on {PISSA_START}, and there {wrong}"
            for checkpoint in checkpoints_of(found.run)
        ]
        return Choice(None, skipped=tuple(every))
    return choice


def other_inputs(before: Mapping[str, Any], now: Mapping[str, Any], whose: str) -> list[str]:
    """Rows, tokens, template or weights that are no longer those of `whose`, in words."""
    found = []
    for split in dict.fromkeys((*before["content"], *now["content"])):
        then, today = (inputs["content"].get(split, {}) for inputs in (before, now))
        if then.get("ordered") != today.get("ordered"):
            found.append(f"data: the {split} rows are not those of the {whose}")
        elif then != today:
            found.append(f"data: other tokens, or others of the {split} rows, than in the {whose}")
    if before["template"] != now["template"]:
        found.append(f"data: the chat template is not that of the {whose}")
    if before["weights"] != now["weights"]:
        found.append(f"model: the files of the base model are not those of the {whose}")
    return found


def _refuse_impossible(found: FoundRun, checkpoint: Checkpoint, changed: Sequence[Change], ready: Preparation) -> None:
    where, total = f"resume={found.run.path}", total_steps(ready.config, len(ready.data.train))
    problems = [
        f"{where}: {change}, and {checkpoint.name} holds tensors of the former" for change in unforceable(changed)
    ]
    if checkpoint.step > total:
        problems.append(f"{where}: {checkpoint.name} is beyond the {total} steps that these settings make")
    if problems:
        raise ConfigError([*problems, "start a new run, without resume="])


def _altered(changed: Sequence[Change], problems: Sequence[str]) -> list[str]:
    """What of the changes moves the weights: not names and paths, and not how a batch fits on a machine."""
    decisive = [str(change) for change in changed if change.key in MOVES_WEIGHTS]
    return list(dict.fromkeys([*decisive, *problems]))
