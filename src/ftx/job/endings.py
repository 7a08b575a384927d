"""How a run can end, and what the record calls each ending."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_CPU_ALLOCATOR = ("can't allocate memory", "not enough memory")


class Diverged(Exception):
    """The first loss or gradient that is not finite."""

    def __init__(self, step: int, what: str, value: float) -> None:
        super().__init__(f"{what} became {value} at step {step}")


class Terminated(BaseException):
    """SIGTERM, raised in the main thread so that the run is recorded before the process leaves."""


@dataclass(frozen=True)
class Ending:
    """Status and exit status of a run, with the reason in words."""

    status: str
    reason: str
    exit_status: int


FINISHED = Ending("finished", "", 0)


def ending_of(error: BaseException) -> Ending:
    """What to record for the exception that ended a run."""
    if isinstance(error, Diverged):
        return Ending("diverged", str(error), 1)
    if isinstance(error, KeyboardInterrupt):
        return Ending("interrupted", "SIGINT", 130)
    if isinstance(error, Terminated):
        return Ending("interrupted", "SIGTERM", 143)
    if _is_out_of_memory(error):
        return Ending("out_of_memory", _first_line(error), 1)
    return Ending("failed", f"{type(error).__name__}: {_first_line(error)}", 1)


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Turn SIGTERM into `Terminated` inside the block."""

    def leave(_signal: int, _frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
