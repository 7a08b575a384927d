"""Signs of life: one process at a time trains in a run directory, and says that it lives while it does."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from filelock import FileLock, Timeout

from ftx.errors import FtxError, RunHeld
from ftx.record.layout import RunDir

BEAT_SECONDS = 30.0


@contextmanager
def held(run: RunDir) -> Iterator[None]:
    """Hold the run's directory, with a heartbeat, for as long as the block lasts.

    The lock is the system's (flock), given back when the process ends however it ends; it works between hosts where
    their shared file system passes such locks on, as NFS 4 does.

    Raises:
        RunHeld: another process trains in it.
    """
    lock = FileLock(run.lock, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise RunHeld(f"{run.path}: another process trains in it") from None
    except OSError as error:
        raise FtxError(f"{run.path}: cannot be written ({error.strerror})") from None
    stop = threading.Event()
    beating = threading.Thread(target=_beat, args=(run, stop), daemon=True, name="heartbeat")
    try:
        run.heartbeat.touch()
        beating.start()
        yield
    finally:
        stop.set()
        with suppress(OSError):
            run.heartbeat.unlink(missing_ok=True)
        lock.release()


def _beat(run: RunDir, stop: threading.Event) -> None:
    while not stop.wait(BEAT_SECONDS):
        with suppress(OSError):  # a full disk or a file system that is away for a moment ends no run
            run.heartbeat.touch()
