"""What happens beside training: history, curves, progress, cadence, and the end at the first bad number."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from transformers import EarlyStoppingCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ftx.job.checkpointing import Checkpoints, Spent
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

    def __init__(self, history: Path, trackers: Sequence[Tracker], progress: Progress, spent: Spent) -> None:
        self._history = history
        self._trackers = trackers
        self._progress = progress
        self._spent = spent
        self._step_started = 0.0
        self._tokens_before = spent.tokens
        self._first = True

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the clock and the progress display."""
        self._progress.start(state.max_steps, state.global_step)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Time each optimiser step."""
        if self._first:
            self._progress.first_step()
            self._first = False
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
        seconds = time.perf_counter() - self._step_started
        self._spent.step_seconds += seconds
        return seen / seconds


class DivergenceGuard(TrainerCallback):
    """At the first loss or gradient that is not finite: ends the run, or notes it, so that no curve looks clean.

    Args:
        checkpoints: what is noted goes into them, so that it outlives an interruption.
        go_on: note it, and train on to the end.
    """

    def __init__(self, checkpoints: Checkpoints, *, go_on: bool) -> None:
        self._checkpoints, self._go_on = checkpoints, go_on

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Look at the losses and the gradient norm of this entry."""
        for name in ("loss", "grad_norm", "eval_loss"):
            value = kwargs["logs"].get(name)
            if value is not None and not math.isfinite(value):
                self.meet(Diverged(state.global_step, name, value))

    def meet(self, diverged: Diverged) -> None:
        """End the run with this number, or note it if it is the first."""
        if not self._go_on:
            raise diverged
        self._checkpoints.diverged = self._checkpoints.diverged or str(diverged)


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


class EarlyStop(EarlyStoppingCallback):
    """Ends training when the primary metric has not improved for some evaluations; it counts on after a resume."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Take the count up where the checkpoint has it; it may be full already."""
        states = cast(dict[str, Any], state.stateful_callbacks)  # a list only until the state is made of it
        kept = states.get(type(self).__name__) or self.state()
        self.early_stopping_patience_counter = int(kept["attributes"]["early_stopping_patience_counter"])
        control.should_training_stop |= self.early_stopping_patience_counter >= self.early_stopping_patience
        return control


class Cadence(TrainerCallback):
    """Evaluates and saves together at the given optimiser steps."""

    def __init__(self, steps: Sequence[int]) -> None:
        self._steps = frozenset(steps)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """A run that goes on after its last step makes none."""
        control.should_training_stop |= state.global_step >= max(self._steps)
        return control

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Ask for an evaluation and a checkpoint where one is due."""
        if state.global_step in self._steps:
            control.should_evaluate = control.should_save = True
        return control
