"""Printing for people: a line as it is and whole, a table as rich draws it."""

import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console

from ftx.errors import FtxError

REFUSED = 2


def exit_status_of(act: Callable[[], int]) -> int:
    """What an entry point returns: what `act` does, 2 with the reasons on stderr where it refuses, 130 for Ctrl-C."""
    try:
        return act()
    except FtxError as error:
        for line in str(error).splitlines():
            print(f"ftx: {line}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return 130


def say(console: Console, *parts: Any) -> None:
    """Texts are neither wrapped nor read as markup; everything else is rich's."""
    for part in parts:
        if isinstance(part, str):
            console.print(part, markup=False, highlight=False, soft_wrap=True)
        else:
            console.print(part)
