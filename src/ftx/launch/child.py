"""What a job's own process does before and after the job."""

import ctypes
import io
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle

from ftx.launch.channel import listen


@dataclass(frozen=True)
class Returned:
    """The job gave a value."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """The job raised; `error` is the exception, or its text where it cannot travel between processes."""

    error: BaseException
    trace: str


@dataclass(frozen=True)
class Exited:
    """The job called sys.exit."""

    status: int


@dataclass(frozen=True)
class Progress:
    """How far the job is, in its own words."""

    facts: dict[str, Any]


def run_child(pipe: Connection, job: bytes, console: Path, environment: Mapping[str, str]) -> None:
    """Run a pickled callable without arguments and send back how it ended; what it prints goes to `console`."""
    os.setpgid(0, 0)  # Ctrl-C on the terminal reaches the pool alone, which passes it on
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _redirect(console)
    os.environ.update(environment)
    listen(lambda facts: pipe.send_bytes(pickle.dumps(Progress(facts))))
    pipe.send_bytes(_ended(job))
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # what C code printed: the process leaves without closing its streams


def _ended(job: bytes) -> bytes:
    try:
        packed = _pickled(Returned(cloudpickle.loads(job)()))
        pickle.loads(packed)  # here, where a value that cannot be read back harms nobody else
        return packed
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
        return _pickled(Exited(status))
    except BaseException as error:
        trace = traceback.format_exc()
        print(trace, file=sys.stderr)
        try:
            packed = _pickled(Raised(error, trace))
            pickle.loads(packed)
        except Exception:  # an exception may be anything, also something that cannot be sent
            packed = _pickled(Raised(RuntimeError(f"{type(error).__name__}: {error}"), trace))
        return packed


def _pickled(message: Any) -> bytes:
    packed: bytes = cloudpickle.dumps(message)
    return packed


def _redirect(console: Path) -> None:
    """Send file descriptors 1 and 2, and with them whatever C libraries print, to a file."""
    console.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    file = os.open(console, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a job that is killed has said what it said
