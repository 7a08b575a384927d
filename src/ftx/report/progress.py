"""Progress of one run: a bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

PLAIN_LINES_PER_RUN = 10

_NAMES = {"loss": "loss", "token_accuracy": "token accuracy", "exact_match": "exact match"}


class Progress:
    """Told what happens, says it once in the way that suits the console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._total = 0
        self._started = 0.0

    def say(self, text: str) -> None:
        """One line, above the bar if there is one."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def start(self, total_steps: int) -> None:
        """Training begins; `total_steps` optimiser steps are planned."""
        self._total = total_steps
        self._started = time.monotonic()
        if self._console.is_terminal:
            self._bar = Bar(
                TextColumn("training"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("loss {task.fields[loss]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task("training", total=total_steps, loss="-")
            self._bar.start()

    def step(self, step: int, loss: float) -> None:
        """One optimiser step is done."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step, loss=f"{loss:.4f}")
        elif not self._console.is_terminal and step % max(1, self._total // PLAIN_LINES_PER_RUN) == 0:
            spent = time.monotonic() - self._started
            left = spent / step * (self._total - step)
            self.say(f"step {step}/{self._total}  loss {loss:.4f}  {spent:.0f} s, about {left:.0f} s left")

    def evaluated(self, step: int, epoch: float, split: str, metrics: Mapping[str, float]) -> None:
        """A split was evaluated."""
        shown = "  ".join(f"{_NAMES.get(name, name)} {value:.4f}" for name, value in metrics.items())
        self.say(f"epoch {epoch:.2f}, step {step}: {split} {shown}")

    def stop(self) -> None:
        """Take the bar away; safe to call at any time."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
