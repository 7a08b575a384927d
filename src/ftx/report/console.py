"""Printing for people: a line as it is and whole, a table as rich draws it."""

from typing import Any

from rich.console import Console


def say(console: Console, *parts: Any) -> None:
    """Texts are neither wrapped nor read as markup; everything else is rich's."""
    for part in parts:
        if isinstance(part, str):
            console.print(part, markup=False, highlight=False, soft_wrap=True)
        else:
            console.print(part)
