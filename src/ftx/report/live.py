"""Jobs of a pool as they run: a table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ftx.launch.child import Exited, Raised, Returned
from ftx.launch.pool import Died, Ended, How, Job, NotStarted
from ftx.launch.slots import Slot

Clock = Callable[[], float]

_SAY_ENOUGH = ("RunFailed", "Interrupted")  # exceptions whose text begins with the run's status


@dataclass
class _Row:
    name: str
    slot: str
    started: float
    step: int = 0
    total: int = 0
    loss: float | None = None
    first_step: float | None = None

    def seconds_left(self, now: float) -> float | None:
        """By the steps so far; what came before the first says nothing of how long one takes."""
        if self.first_step is None or self.step < 2:
            return None
        return (now - self.first_step) / (self.step - 1) * (self.total - self.step)


class LiveView:
    """Told what happens in a pool; a context manager, so that the terminal is always given back."""

    def __init__(self, console: Console, *, total: int, slots: int, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._total = total
        self._slots = slots
        self._clock = clock
        self._rows: dict[int, _Row] = {}  # by job, not by name: two jobs may be called the same
        self._done = 0
        self._failed = 0
        self._began = clock()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        """Show the table, where there is a terminal."""
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the table away."""
        if self._live is not None:
            self._live.stop()

    def started(self, job: Job, slot: Slot) -> None:
        """A job's process was started."""
        self._rows[id(job)] = _Row(job.name, slot.name, self._clock())

    def progressed(self, job: Job, facts: dict[str, Any]) -> None:
        """A job said how far it is: `step`, `total`, `loss`, or what else it likes."""
        row = self._rows[id(job)]
        row.step, row.total = facts.get("step", row.step), facts.get("total", row.total)
        row.loss = facts.get("loss", row.loss)
        if row.first_step is None and row.step:
            row.first_step = self._clock()

    def ended(self, ended: Ended, *, again: bool) -> None:
        """A job ended: one line stays on the screen."""
        self._rows.pop(id(ended.job), None)
        failed = not isinstance(ended.how, Returned)
        if not again:
            self._done += not failed
            self._failed += failed
        outcome = in_words(ended.how)
        once_more = ", starting it again" if again else ""
        count = f"[{self._done + self._failed}/{self._total}]"
        self.say(f"{count} {ended.job.name}: {outcome}{once_more} ({ended.seconds:.1f} s)")

    def stopping(self, reason: str) -> None:
        """No further job starts."""
        running = f"; {len(self._rows)} running jobs end first (Ctrl-C again: at once)" if self._rows else ""
        self.say(f"No further run starts: {reason}{running}")

    def tick(self) -> None:
        """Draw the table anew."""
        if self._live is not None:
            self._live.update(self._table(), refresh=True)

    def say(self, line: str) -> None:
        """One line that stays."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _table(self) -> Group:
        now = self._clock()
        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading, side in (
            ("running", "left"),
            ("slot", "left"),
            ("step", "right"),
            ("loss", "right"),
            ("left", "right"),
        ):
            table.add_column(heading, justify="left" if side == "left" else "right")
        for row in self._rows.values():
            left = row.seconds_left(now)
            table.add_row(
                Text(row.name),
                row.slot,
                f"{row.step}/{row.total}" if row.total else "starting",
                "" if row.loss is None else f"{row.loss:.4f}",
                "finishing" if row.total and row.step >= row.total else "" if left is None else duration(left),
            )
        return Group(table, Text(self._counts(now)))

    def _counts(self, now: float) -> str:
        waiting = self._total - self._done - self._failed - len(self._rows)
        parts = [f"{len(self._rows)} running", f"{self._done} done", f"{self._failed} failed", f"{waiting} to go"]
        finished = self._done + self._failed
        if finished:
            each = (now - self._began) / finished
            parts.append(f"about {duration(each * (self._total - finished))} left")
        return ", ".join(parts)


def in_words(how: How) -> str:
    """How a job ended; of Hydra's JobReturn the task's value."""
    match how:
        case Returned(value):
            inner = getattr(value, "return_value", value)
            return f"done, {inner:.4f}" if isinstance(inner, float) else "done"
        case Raised(error):
            first = (str(error).strip().splitlines() or [""])[0]
            name = type(error).__name__
            return first if name in _SAY_ENOUGH else f"{name}: {first}" if first else name
        case Exited(status):
            return f"left with sys.exit({status})"
        case Died() | NotStarted():
            return how.reason


def duration(seconds: float) -> str:
    """Seconds as people say them: 42 s, 3.5 min, 2.1 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
