"""The pool: every job in its own process, started by a fork server that has the heavy imports done.

A job that raises, exits, or is killed ends alone; its slot is used again at once. The first Ctrl-C asks the
running jobs to end, the second ends them. If the pool's own process dies, its jobs find out (`channel`).
"""

import multiprocessing
import os
import pickle
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, Protocol

from ftx.launch.child import Exited, Progress, Raised, Returned, run_child
from ftx.launch.slots import Slot

POLL_SECONDS = 0.2  # how long a signal or a view may wait


@dataclass(frozen=True)
class Job:
    """A name for people, what to run, and a file for what it prints.

    `pack` is called when the job's turn has come, and returns a callable without arguments as cloudpickle makes it.
    """

    name: str
    pack: Callable[[], bytes]
    console: Path


@dataclass(frozen=True)
class Died:
    """The process ended without a word: killed by a signal (then `status` is negative), or os._exit."""

    status: int

    @property
    def reason(self) -> str:
        """In words."""
        if self.status >= 0:
            return f"the process left with status {self.status} and said nothing"
        try:
            name = signal.Signals(-self.status).name
        except ValueError:
            name = f"signal {-self.status}"
        return f"killed by {name}"


@dataclass(frozen=True)
class NotStarted:
    """The pool stopped before this job's turn."""

    reason: str


How = Returned | Raised | Exited | Died | NotStarted


@dataclass(frozen=True)
class Ended:
    """How a job ended, after how many tries, and how long the last of them took, in seconds."""

    job: Job
    how: How
    tries: int = 0
    seconds: float = 0.0


class View(Protocol):
    """Somebody who watches."""

    def started(self, job: Job, slot: Slot) -> None:
        """A job's process was started."""

    def progressed(self, job: Job, facts: dict[str, Any]) -> None:
        """A job said how far it is."""

    def ended(self, ended: Ended, *, again: bool) -> None:
        """A job ended; `again`: it is tried once more."""

    def stopping(self, reason: str) -> None:
        """No further job starts."""

    def tick(self) -> None:
        """Called several times a second."""


@dataclass(frozen=True)
class Rules:
    """What to do when jobs fail, and when to stop starting them."""

    retries: int = 0
    is_machine_fault: Callable[[How], bool] = lambda how: isinstance(how, Died)
    stop_on_failure: bool = False
    max_seconds: float | None = None


def _send(process: ForkServerProcess, number: int) -> None:
    """Send a signal to a job; SIGKILL to all that it has started."""
    if process.pid is None:
        return
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)
    if number == signal.SIGKILL:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def warm_up(preload: Sequence[str]) -> ForkServerContext:
    """Start the fork server, which imports these modules while the caller goes on. Once a process."""
    # torch asks the driver whether there is a GPU when some of these are imported, and a driver that was started
    # before a fork does not work after it. Asked this way, torch leaves the driver alone.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([run_child.__module__, *preload])
    with _born_deaf_and_mute():
        forkserver.ensure_running()
    return context


@contextmanager
def _born_deaf_and_mute() -> Iterator[None]:
    """A process that is started inside ignores SIGINT from its first moment, and does not hold the caller's output.

    A terminal's Ctrl-C goes to the fork server too, in the middle of its imports; and a reader of our output would
    wait for those imports after we have gone.
    """
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    kept = os.dup(1), os.dup(2)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        yield
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for descriptor in (*kept, silence):
            os.close(descriptor)
        signal.signal(signal.SIGINT, handler)


@dataclass
class _Running:
    job: Job
    number: int
    slot: Slot
    process: ForkServerProcess
    pipe: Connection
    started: float
    tries: int
    message: Returned | Raised | Exited | None = None


@dataclass
class Pool:
    """Runs jobs on slots, once.

    Args:
        slots: at least one.
        view: is told what happens.
        preload: modules that the fork server imports once. A name that cannot be imported is left to the jobs.
        rules: for failures and time.
    """

    slots: Sequence[Slot]
    view: View
    preload: Sequence[str] = ()
    rules: Rules = field(default_factory=Rules)
    interrupted_by: int | None = field(default=None, init=False)
    """The signal that ended `run` early."""
    _stop: str | None = field(default=None, init=False)
    _stop_said: bool = field(default=False, init=False)
    _waiting: deque[tuple[int, int]] = field(default_factory=deque, init=False)
    _free: list[Slot] = field(default_factory=list, init=False)
    _running: list[_Running] = field(default_factory=list, init=False)
    _results: dict[int, Ended] = field(default_factory=dict, init=False)
    _started: float = field(default=0.0, init=False)

    def run(self, jobs: Sequence[Job]) -> list[Ended]:
        """Run all jobs and return how each ended, in the order given."""
        context = warm_up(self.preload)
        self._started = time.monotonic()
        self._waiting.extend((number, 1) for number in range(len(jobs)))
        self._free.extend(reversed(self.slots))
        try:
            with self._signals():
                while self._running or (self._waiting and not self._stop):
                    self._start_jobs(context, jobs)
                    for running in self._finished():
                        self._settle(running)
                    self._look_around()
        except BaseException:
            self._abandon()
            raise
        reason = self._stop or ""
        return [self._results.get(number, Ended(job, NotStarted(reason))) for number, job in enumerate(jobs)]

    def _look_around(self) -> None:
        """Say what a signal or the clock has changed; signal handlers themselves must not print."""
        limit = self.rules.max_seconds
        if limit is not None and time.monotonic() - self._started > limit and self._waiting:
            self._no_more(f"the time of {limit / 3600:g} h is spent")
        if self._stop is not None and not self._stop_said:
            self._stop_said = True
            self.view.stopping(self._stop)
        self.view.tick()

    def _start_jobs(self, context: ForkServerContext, jobs: Sequence[Job]) -> None:
        self._look_around()
        while self._free and self._waiting and not self._stop:
            number, tries = self._waiting[0]
            try:
                packed = jobs[number].pack()
                if self._stop:  # packing takes long enough for a signal
                    return
                self._start(context, jobs[number], packed, number, tries)
            except Exception as error:  # not packed, or no process to be had: this job's ending, and no other's
                trace = "".join(traceback.format_exception(error))
                self._close(Ended(jobs[number], Raised(error, trace), tries), number)
            self._waiting.popleft()

    def _start(self, context: ForkServerContext, job: Job, packed: bytes, number: int, tries: int) -> None:
        mine, theirs = context.Pipe(duplex=False)
        slot = self._free[-1]
        process = context.Process(target=run_child, args=(theirs, packed, job.console, slot.environment))
        process.start()
        theirs.close()
        self._free.pop()
        self._running.append(_Running(job, number, slot, process, mine, time.monotonic(), tries))
        self.view.started(job, slot)
        if self.interrupted_by is not None:  # while the process started, and so unknown to the handler
            _send(process, self.interrupted_by)

    def _finished(self) -> list[_Running]:
        """Wait a moment, pass on what the jobs say, and return those whose process has ended."""
        pipes = {running.pipe: running for running in self._running if not running.pipe.closed}
        sentinels = [running.process.sentinel for running in self._running]
        for ready in wait([*pipes, *sentinels], timeout=POLL_SECONDS):
            if isinstance(ready, Connection):
                self._hear(pipes[ready])
        ended = [running for running in self._running if not running.process.is_alive()]
        for running in ended:
            while not running.pipe.closed and running.pipe.poll():
                self._hear(running)
        return ended

    def _hear(self, running: _Running) -> None:
        try:
            message = pickle.loads(running.pipe.recv_bytes())
        except (EOFError, OSError):
            running.pipe.close()
            return
        if isinstance(message, Progress):
            self.view.progressed(running.job, message.facts)
        else:
            running.message = message

    def _settle(self, running: _Running) -> None:
        self._running.remove(running)  # first: a signal must not be sent to a closed process
        self._free.append(running.slot)
        running.process.join()
        running.pipe.close()
        how: How = running.message or Died(running.process.exitcode or 0)
        running.process.close()
        ended = Ended(running.job, how, running.tries, time.monotonic() - running.started)
        if not self._stop and running.tries <= self.rules.retries and self.rules.is_machine_fault(how):
            self._results[running.number] = ended  # the pool may stop before the next try
            self.view.ended(ended, again=True)
            self._waiting.append((running.number, running.tries + 1))
        else:
            self._close(ended, running.number)

    def _close(self, ended: Ended, number: int) -> None:
        self._results[number] = ended
        self.view.ended(ended, again=False)
        if self.rules.stop_on_failure and not isinstance(ended.how, Returned):
            self._no_more(f"{ended.job.name} has failed")

    def _no_more(self, reason: str) -> None:
        self._stop = self._stop or reason

    def _abandon(self) -> None:
        """The pool itself cannot go on: end its jobs as a first Ctrl-C would, and wait for them."""
        for running in self._running:
            _send(running.process, signal.SIGINT)
        for running in self._running:
            running.process.join()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM: the first is passed on to the running jobs, the second kills them."""

        def interrupt(number: int, _frame: Any) -> None:
            again = self.interrupted_by is not None
            self.interrupted_by = self.interrupted_by or number
            self._no_more("interrupted")
            for running in list(self._running):
                _send(running.process, signal.SIGKILL if again else number)

        before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
