"""What of a training goes into a checkpoint and comes back out of it: all that the next step depends on."""

import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from transformers import TrainerState
from transformers.trainer_callback import ExportableState

from ftx.job.hardware import peak_memory_bytes
from ftx.job.preflight import size_in_words
from ftx.record.checkpoints import checkpoint_at, checkpoints_of, keep_newest, sync, written_whole
from ftx.record.layout import RunDir
from ftx.record.room import DiskFull, full_disk_said, remedy

STATE = "trainer_state.json"
_SLACK_BYTES = 2**20


@dataclass
class Spent:
    """What a run has used so far, in all its sessions that counted."""

    tokens: int = 0
    """Of all training passes, padding left out."""
    target_tokens: int = 0
    """Those that carried loss."""
    step_seconds: float = 0.0
    """In optimiser steps alone, without evaluations and checkpoints."""
    seconds: float = 0.0
    """From the beginning of each session."""
    peak_memory_bytes: int | None = None
    """The most of any session before this one, where the system can tell."""

    def most_memory(self, now: int | None) -> int | None:
        """The most of any session, this one's being `now`."""
        return max((found for found in (self.peak_memory_bytes, now) if found is not None), default=None)


class Checkpoints:
    """Writes a run's checkpoints and keeps as many as it should.

    Args:
        run: where.
        limit: how many are kept; the newest and the best always are.
        facts: what the next session compares its settings and data with.
        spent: brought up to date by the trainer.
    """

    def __init__(self, run: RunDir, limit: int, facts: Mapping[str, Any], spent: Spent) -> None:
        self._run, self._limit, self._facts = run, limit, facts
        self.spent = spent
        self._started, self._before = time.perf_counter(), spent.seconds
        self._largest = max((_size(each.path) for each in checkpoints_of(run)), default=0)
        self.diverged: str | None = facts.get("diverged")
        """The first number that was not finite, in words, where training went on."""

    def seconds(self) -> float:
        """Of all sessions, this one up to now."""
        return self._before + time.perf_counter() - self._started

    def save(self, trainer: Any) -> None:
        """Write the state after the step that the trainer has just made. DiskFull: the earlier ones are untouched."""
        state: TrainerState = trainer.state
        checkpoint = checkpoint_at(self._run, state.global_step)
        self._refuse_without_room(trainer, checkpoint.name)
        sync(self._run.history)  # or a power cut might leave a checkpoint whose curve is gone
        with (
            full_disk_said(self._run, checkpoint.name),
            written_whole(checkpoint.path, lambda: self._facts_now(trainer)) as aside,
        ):
            trainer.model.save_pretrained(str(aside))
            trainer._save_optimizer_and_scheduler(str(aside))
            trainer._save_scaler(str(aside))
            trainer._save_rng_state(str(aside))
            self._save_state(trainer, aside)
        self._largest = max(self._largest, _size(checkpoint.path))
        keep_newest(self._run, self._limit, state.best_global_step)

    def best(self, state: TrainerState) -> str | None:
        """Where the best checkpoint is, wherever the run directory has been moved to."""
        if not state.best_global_step:
            return None
        folder = checkpoint_at(self._run, state.best_global_step).path
        return str(folder) if folder.is_dir() else None

    def _facts_now(self, trainer: Any) -> dict[str, Any]:
        memory = peak_memory_bytes(trainer.args.device.type)
        spent = replace(self.spent, seconds=self.seconds(), peak_memory_bytes=self.spent.most_memory(memory))
        return dict(self._facts) | {
            "step": trainer.state.global_step,
            "best_step": trainer.state.best_global_step,
            "spent": asdict(spent),
            "diverged": self.diverged,
        }

    def _save_state(self, trainer: Any, aside: Path) -> None:
        state = trainer.state
        for callback in (*trainer.callback_handler.callbacks, trainer.control):
            if isinstance(callback, ExportableState):
                state.stateful_callbacks[type(callback).__name__] = callback.state()
        where, state.best_model_checkpoint = state.best_model_checkpoint, None  # a path would not survive a move
        try:
            state.save_to_json(str(aside / STATE))
        finally:
            state.best_model_checkpoint = where

    def _refuse_without_room(self, trainer: Any, name: str) -> None:
        needed = (self._largest or _expected(trainer)) + _SLACK_BYTES
        free = shutil.disk_usage(self._run.checkpoints).free
        if free < needed:
            raise DiskFull(
                f"no room for {name}: it takes about {size_in_words(needed)}, and {size_in_words(free)} are free in "
                f"{self._run.checkpoints}; {remedy(self._run)}"
            )


def _expected(trainer: Any) -> int:
    """Bytes of a first checkpoint: trained weights, AdamW's two moments, and little more."""
    trained = [weight for weight in trainer.model.parameters() if weight.requires_grad]
    moments = 0 if trainer.args.optim == "adafactor" else 2
    return int(sum(weight.numel() * weight.element_size() for weight in trained)) * (1 + moments)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
