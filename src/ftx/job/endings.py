"""How a run can end, and what the record calls each ending."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from ftx.record.room import DiskFull, disk_is_full

_CPU_ALLOCATOR = ("can't allocate memory", "not enough memory")


class Diverged(Exception):
    """The first loss or gradient that is not finite."""

    def __init__(self, step: int, what: str, value: float) -> None:
        super().__init__(f"{what} became {value} at step {step}")


class Interrupted(BaseException):
    """SIGINT, SIGTERM or a dead launcher, raised in the main thread so that the run is recorded before it leaves."""

    def __init__(self, cause: str, exit_status: int) -> None:
        super().__init__(cause, exit_status)  # as given, so that it can be pickled
        self.cause, self.exit_status = cause, exit_status

    def __str__(self) -> str:
        return f"interrupted: {self.cause}"


@dataclass(frozen=True)
class Ending:
    """Status and exit status of a run, with the reason in words."""

    status: str
    reason: str
    exit_status: int


FINISHED = Ending("finished", "", 0)


def diverged_on_the_way(reason: str) -> Ending:
    """Of a run that trained on to its end after a number that was not finite (optim.on_divergence=continue)."""
    return Ending("diverged", f"{reason}; trained on to the end, as optim.on_divergence=continue says", 1)


def ending_of(error: BaseException) -> Ending:
    """What to record for the exception that ended a run."""
    if isinstance(error, Diverged):
        return Ending("diverged", str(error), 1)
    if isinstance(error, Interrupted):
        return Ending("interrupted", error.cause, error.exit_status)
    if isinstance(error, KeyboardInterrupt):
        return Ending("interrupted", "SIGINT", 130)
    if isinstance(error, DiskFull):
        return Ending("failed", str(error), 1)
    if disk_is_full(error):
        return Ending("failed", f"the disk is full: make room, then resume the run ({_first_line(error)})", 1)
    if _is_out_of_memory(error):
        return Ending("out_of_memory", _first_line(error), 1)
    return Ending("failed", f"{type(error).__name__}: {_first_line(error)}", 1)


class StopRequest:
    """A wish to end the run: at once, or while steps are made after the step that is being made.

    Between `start_of_steps` and `end_of_steps` the first signal only leaves a note, which the trainer reads after
    each step to save a checkpoint; a second one, and any outside of the steps, raises `Interrupted`.
    """

    def __init__(self) -> None:
        self.pending: Interrupted | None = None
        self._patient = False

    def ask(self, cause: str, exit_status: int) -> None:
        """Take note; raise where no step is being made, or where it was asked before."""
        first, self.pending = self.pending is None, Interrupted(cause, exit_status)
        if not (first and self._patient):
            raise self.pending

    def start_of_steps(self) -> None:
        """From now on a step can be ended properly."""
        self._patient = True

    def end_of_steps(self) -> None:
        """The steps are over: from now on a signal ends the run at once."""
        self._patient = False
        self.leave_if_asked()

    def leave_if_asked(self) -> None:
        """Raise Interrupted if somebody asked."""
        if self.pending is not None:
            raise self.pending


@contextmanager
def signals_ask(request: StopRequest) -> Iterator[None]:
    """Let SIGINT and SIGTERM ask for the end inside the block."""

    def ask(number: int, _frame: FrameType | None) -> None:
        request.ask(signal.Signals(number).name, 128 + number)

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        # What started us may have asked for SIGINT to be ignored, as a shell does for jobs in the background.
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_out_of_memory(error: BaseException) -> bool:
    # torch raises OutOfMemoryError on an accelerator, and a plain RuntimeError from the CPU's allocator, whose
    # words depend on the system.
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and any(words in str(error) for words in _CPU_ALLOCATOR))
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
