"""What the pool's tests run in processes of their own, and a view that remembers."""

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle

from ftx.launch.channel import launcher_died, report
from ftx.launch.pool import Ended, Job, Pool, Rules
from ftx.launch.slots import Slot

counter = {"calls": 0}


class WithALock(Exception):
    """Cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class TwoWords(Exception):
    """Can be pickled, but not read back: its constructor takes more than its text."""

    def __init__(self, key: str, value: int) -> None:
        super().__init__(f"{key} is {value}")


class NotANumber:
    """Can be pickled, but not read back."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("not a number",)


def gives(value: Any, seconds: float = 0.0) -> Any:
    time.sleep(seconds)
    return value


def gives_a_lock() -> Any:
    return threading.Lock()


def gives_what_cannot_be_read() -> Any:
    return NotANumber()


def raises(error: type[Exception], *words: Any) -> None:
    raise error(*words)


def leaves(status: Any) -> None:
    sys.exit(status)


def vanishes(status: int) -> None:
    os._exit(status)


def kills_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def reads_address_zero() -> None:
    ctypes.string_at(0)


def wants_too_much() -> None:
    bytearray(1 << 62)


def prints(text: str, *, then: Callable[[], Any] = lambda: None) -> None:
    print(text)
    print(f"{text} on stderr", file=sys.stderr)
    then()


def c_writes(text: str) -> None:
    ctypes.CDLL(None).write(1, text.encode(), len(text))


def c_prints(text: str) -> None:
    ctypes.CDLL(None).puts(text.encode())  # stays in the buffer of the C library, until that is flushed


def environment(name: str) -> str | None:
    return os.environ.get(name)


def ids() -> tuple[int, int]:
    return os.getpid(), os.getpgid(0)


def counts_calls() -> int:
    counter["calls"] += 1
    return counter["calls"]


def is_imported(module: str) -> bool:
    return module in sys.modules


def counts_neighbours(folder: Path) -> int:
    """How many jobs run at the moment, this one included."""
    mine = folder / str(os.getpid())
    mine.touch()
    time.sleep(0.1)
    running = len(list(folder.iterdir()))
    time.sleep(0.1)
    mine.unlink()
    return running


def works_at_last(folder: Path, failures: int, fail: Callable[[], Any]) -> int:
    """Fails so often, then returns the number of the try."""
    tries = len(list(folder.iterdir())) + 1
    (folder / str(tries)).touch()
    if tries <= failures:
        fail()
    return tries


def reports(steps: int) -> None:
    for step in range(1, steps + 1):
        report(step=step, total=steps, loss=1 / step)


def waits(folder: Path, number: int, *, deaf: bool = False) -> str:
    """Until told to end, or the launcher has died; the folder holds the pids of those that began, and how they end."""
    for sent in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sent, signal.SIG_IGN if deaf else signal.default_int_handler)
    (folder / f"unnamed-{number}").write_text(str(os.getpid()))
    (folder / f"unnamed-{number}").rename(folder / f"began-{number}")
    try:
        for _ in range(400):
            time.sleep(0.05)
            if launcher_died():
                (folder / f"orphaned-{number}").touch()
                return "orphaned"
    except KeyboardInterrupt:
        time.sleep(0.2)  # a checkpoint
        (folder / f"cleaned-{number}").touch()
        return "cleaned up"
    return "nobody said anything"


class Remembers:
    """A view that keeps what it is told."""

    def __init__(self) -> None:
        self.started_on: list[tuple[str, str]] = []
        self.facts: list[tuple[str, dict[str, Any]]] = []
        self.endings: list[tuple[Ended, bool]] = []
        self.reasons: list[str] = []
        self.ticks = 0

    def started(self, job: Job, slot: Slot) -> None:
        self.started_on.append((job.name, slot.name))

    def progressed(self, job: Job, facts: dict[str, Any]) -> None:
        self.facts.append((job.name, facts))

    def ended(self, ended: Ended, *, again: bool) -> None:
        self.endings.append((ended, again))

    def stopping(self, reason: str) -> None:
        self.reasons.append(reason)

    def tick(self) -> None:
        self.ticks += 1


def slots(count: int) -> list[Slot]:
    return [Slot(f"slot {number}", {"SLOT": str(number)}) for number in range(count)]


def job(name: str, folder: Path, call: Callable[[], Any]) -> Job:
    return Job(name, lambda: cloudpickle.dumps(call), folder / "consoles" / f"{name}.log")


def pool_of_waiting_jobs(folder: Path, *, deaf: bool) -> None:
    """Four jobs on two slots, in a process that a test sends signals; prints how it ended."""
    view = Remembers()
    pool = Pool(slots(2), view, preload=["launch.jobs"], rules=Rules(retries=1))
    ended = pool.run([job(f"{n}", folder, partial(waits, folder, n, deaf=deaf)) for n in range(4)])
    how = [{"kind": type(each.how).__name__, **vars(each.how)} for each in ended]
    print(json.dumps({"interrupted_by": pool.interrupted_by, "how": how, "reasons": view.reasons}))


def pool_that_preloads(folder: Path, preload: list[str], asked: str) -> None:
    """Prints whether a module is there before the job imports anything."""
    (ended,) = Pool(slots(1), Remembers(), preload).run([job("asks", folder, partial(is_imported, asked))])
    print(json.dumps(vars(ended.how)))


def pool_of_one(folder: Path, call: Callable[..., Any], *words: Any, **options: Any) -> None:
    Pool(slots(1), Remembers()).run([job("0", folder, partial(call, *words, **options))])
