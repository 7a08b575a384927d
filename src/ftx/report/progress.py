"""Progress of one run: bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

PLAIN_LINES_PER_RUN = 10
QUIET_SECONDS = 10.0  # plain lines say that evaluation goes on only when nothing was said for this long

_NAMES = {"token_accuracy": "token accuracy", "exact_match": "exact match"}

Clock = Callable[[], float]


class Progress:
    """Told what happens, says it once in the way that suits the console."""

    def __init__(
        self, console: Console, clock: Clock = time.monotonic, listener: Callable[..., None] | None = None
    ) -> None:
        self._console = console
        self._listener = listener  # told each step: step, total, loss
        self._clock = clock
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._total = self._done_before = 0
        self._started = clock()
        self._last_said = self._started

    def say(self, text: str) -> None:
        """One line, above the bars if there are any."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        self._last_said = self._clock()

    def start(self, total_steps: int, done: int = 0) -> None:
        """Training begins or goes on: `total_steps` optimiser steps are planned and `done` of them made."""
        self._total, self._done_before = total_steps, done
        if self._console.is_terminal:
            self._bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[loss]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._tasks["training"] = self._bars.add_task("training", total=total_steps, completed=done, loss="")
            self._bars.start()

    def first_step(self) -> None:
        """The first optimiser step begins; what came before it says nothing of how long steps take."""
        self._started = self._clock()

    def step(self, step: int, loss: float) -> None:
        """One optimiser step is done."""
        if self._listener is not None:
            self._listener(step=step, total=self._total, loss=loss)
        if self._bars is not None:
            self._bars.update(self._tasks["training"], completed=step, loss=f"loss {loss:.4f}")
        elif step % max(1, self._total // PLAIN_LINES_PER_RUN) == 0:
            spent = self._clock() - self._started
            left = spent / (step - self._done_before) * (self._total - step)
            self.say(f"step {step}/{self._total}  loss {loss:.4f}  {spent:.0f} s, about {left:.0f} s left")

    def working(self, what: str, done: int, total: int) -> None:
        """`done` of `total` parts of a longer piece of work beside training, such as an evaluation."""
        if self._bars is not None:
            if what not in self._tasks:
                self._tasks[what] = self._bars.add_task(what, total=total, loss="")
            self._bars.update(self._tasks[what], completed=done)
            if done >= total:
                self._bars.remove_task(self._tasks.pop(what))
        elif self._clock() - self._last_said > QUIET_SECONDS:
            self.say(f"{what}: {done} of {total} batches")

    def evaluated(self, step: int, epoch: float, split: str, metrics: Mapping[str, float]) -> None:
        """A split was evaluated."""
        shown = "  ".join(f"{_NAMES.get(name, name)} {value:.4f}" for name, value in metrics.items())
        self.say(f"epoch {epoch:.2f}, step {step}: {split} {shown}")

    def stop(self) -> None:
        """Take the bars away; safe to call at any time."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
