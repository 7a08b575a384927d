"""How a job tells the pool that started it how far it is; where nobody listens, nothing happens.

One listener a process, because a job is a process: the pool's child sets it before the job begins.
"""

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Listener = Callable[[dict[str, Any]], None]
_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Send what this process reports to `listener`."""
    _listeners[:] = [listener]


def report(**facts: Any) -> None:
    """Say how far the job is, such as step=3, total=60, loss=.2."""
    for listener in _listeners:
        with suppress(OSError):  # the pool has died, which the job finds out at its next step
            listener(facts)


def launcher_died() -> bool:
    """Whether this process was started by a pool whose process has ended."""
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()
