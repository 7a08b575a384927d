"""What happens beside training: history, curves, progress, cadence, and the end at the first bad number."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ftx.job.endings import Diverged, StopRequest
from ftx.launch.channel import launcher_died
from ftx.record.history import append_event
from ftx.report.progress import Progress
from ftx.tracking.protocol import Tracker

_SPLITS = {"eval": "validation", "test": "test"}
_TRAIN_METRICS: tuple[str, ...] = ("loss", "grad_norm", "learning_rate", "tokens", "target_tokens")
_BOOKKEEPING = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")


class HistoryCallback(TrainerCallback):
    """Writes every logged value to history.jsonl first, then to the trackers and the progress display."""

    def __init__(self, history: Path, trackers: Sequence[Tracker], progress: Progress) -> None:
        self._history = history
        self._trackers = trackers
        self._progress = progress
        self._step_started = 0.0
        self._tokens_before = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the clock and the progress display."""
        self._progress.start(state.max_steps)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Time each optimiser step."""
        if state.global_step == 0:
            self._progress.first_step()
        self._step_started = time.perf_counter()

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Sort one log entry of the Trainer by split and write it everywhere."""
        logs: dict[str, float] = kwargs["logs"]
        if "loss" in logs:
            metrics = {name: logs[name] for name in _TRAIN_METRICS if name in logs}
            metrics["tokens_per_second"] = self._throughput(int(logs["tokens"]))
            self._write(state, "train", metrics)
            self._progress.step(state.global_step, logs["loss"])
            return
        for prefix, split in _SPLITS.items():
            metrics = {
                name.removeprefix(f"{prefix}_"): value
                for name, value in logs.items()
                if name.startswith(f"{prefix}_") and not name.endswith(_BOOKKEEPING)
            }
            if metrics:
                self._write(state, split, metrics)
                self._progress.evaluated(state.global_step, state.epoch or 0.0, split, metrics)

    def _write(self, state: TrainerState, split: str, metrics: dict[str, float]) -> None:
        step, epoch = state.global_step, state.epoch or 0.0
        append_event(self._history, step=step, epoch=epoch, split=split, metrics=metrics, time=time.time())
        for tracker in self._trackers:
            tracker.log(step=step, split=split, metrics=metrics)

    def _throughput(self, tokens: int) -> float:
        """Tokens per second of this optimiser step alone: evaluations and checkpoints lie between steps."""
        seen, self._tokens_before = tokens - self._tokens_before, tokens
        return seen / (time.perf_counter() - self._step_started)


class DivergenceGuard(TrainerCallback):
    """Ends the run at the first loss or gradient that is not finite, before it can look like a clean curve."""

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Look at the losses and the gradient norm of this entry."""
        for name in ("loss", "grad_norm", "eval_loss"):
            value = kwargs["logs"].get(name)
            if value is not None and not math.isfinite(value):
                raise Diverged(state.global_step, name, value)


class StopGuard(TrainerCallback):
    """Ends training after the current step, with a checkpoint, when a signal or a dead launcher asks for it."""

    def __init__(self, request: StopRequest) -> None:
        self._request = request

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """From now on a step is ended properly."""
        self._request.start_of_steps()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Look whether somebody asked."""
        if self._request.pending is None and launcher_died():
            self._request.ask("the process that started this run is gone", 143)
        if self._request.pending is not None:
            control.should_save = control.should_training_stop = True
        return control

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The checkpoint is written: leave."""
        self._request.leave_if_asked()


class Cadence(TrainerCallback):
    """Evaluates and saves together at the given optimiser steps."""

    def __init__(self, steps: Sequence[int]) -> None:
        self._steps = frozenset(steps)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Ask for an evaluation and a checkpoint where one is due."""
        if state.global_step in self._steps:
            control.should_evaluate = control.should_save = True
        return control
