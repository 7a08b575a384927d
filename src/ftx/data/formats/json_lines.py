"""JSON lines: one object a line."""

from collections.abc import Iterator
from typing import Any

from ftx.data.formats.record import BLANK, Raw, parsed, text_of
from ftx.errors import DataError


def read_json_lines(raw: Raw, origin: str) -> Iterator[tuple[int, Any]]:
    """Records with the physical line on which each begins. Raises DataError."""
    first = True
    with text_of(raw) as text:
        for number, line in enumerate(text, start=1):
            if not line.strip():
                yield number, BLANK
                continue
            if first and line.lstrip().startswith("["):
                raise DataError(f"{origin} holds a JSON array; expected one JSON object a line: rename it to .json")
            first = False
            yield number, parsed(line.removesuffix("\n"))
