"""A JSON array of objects, read through a window: no more than one object and one chunk are in memory."""

import io
import json
import re
from collections.abc import Iterator
from typing import Any

from ftx.data.formats.record import CHUNK, Raw, parsed, text_of
from ftx.errors import DataError

_SPACE = re.compile(r"[ \t\n\r]*")
_EXTENT = json.JSONDecoder(parse_int=str, parse_float=str)  # finds where a value ends; `loads` judges it
_NEAR = 12  # characters; no escape, number's exponent or literal that a chunk may cut is longer


def read_json_array(raw: Raw, origin: str) -> Iterator[tuple[int, Any]]:
    """Records with the physical line on which each begins. Raises DataError."""
    with text_of(raw) as stream:
        text = _JsonText(stream, origin)
        if text.next_character() != "[":
            raise text.not_an_array()
        text.pass_over("[")
        closed = text.next_character() == "]"
        while not closed:
            text.next_character()
            yield text.line, parsed(text.value(), " of the element")
            closed = text.next_character() == "]"
            if not closed:
                text.pass_over(",")
        text.pass_over("]")
        if text.next_character():
            raise text.error("Extra data behind the array")


class _JsonText:
    """A window on a long JSON text, moved over it value by value; `line` and `column` are the place it has come to."""

    def __init__(self, stream: io.TextIOBase, origin: str) -> None:
        self.line = self.column = 1
        self._stream, self._origin = stream, origin
        self._text, self._at, self._complete = "", 0, False

    def next_character(self) -> str:
        """Pass over white space and look at what follows; "" at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._move(space.end() if space else self._at)
            if self._complete or self._at < len(self._text):
                return self._text[self._at : self._at + 1]
            self._grow()

    def pass_over(self, character: str) -> None:
        """Raises DataError where another character follows."""
        if self.next_character() != character:
            raise self.error(f"Expecting {character!r}")
        self._move(self._at + 1)

    def value(self) -> str:
        """The text of the value that begins here. Raises DataError where its end cannot be found."""
        end, problem = self._extent()
        # An outcome near the window's end may be due to the cut; far from it, reading on would not change it.
        while not self._complete and (end > len(self._text) - _NEAR or problem.startswith("Unterminated")):
            self._grow()
            end, problem = self._extent()
        begin = self._at
        self._move(end)
        if problem:
            raise self.error(problem.removesuffix(" at"))
        return self._text[begin:end]

    def error(self, problem: str) -> DataError:
        """Names the place come to."""
        early = "" if self._at < len(self._text.rstrip()) else " (the file ends there)"
        return DataError(
            f"{self._origin}:{self.line}: not JSON: {problem} at column {self.column}{early}; "
            "expected an array of objects: mend it there"
        )

    def not_an_array(self) -> DataError:
        """Says what a text is that does not begin with a bracket, by its first chunk."""
        self._grow()
        end, problem = self._extent()
        rest = self._text[end:].lstrip()
        found, remedy = f"begins with {self._text[:40]!r}", "put the objects between [ and ]"
        if not self._text:
            found = "is empty"
        elif not problem and self._text.startswith("{"):
            keys = ", ".join(_EXTENT.decode(self._text[:end]))
            found, remedy = f"holds an object with the keys {keys}", "put the array alone into the file"
            if rest.startswith("{"):
                found, remedy = "holds JSON lines", "rename it to .jsonl"
        return DataError(f"{self._origin} {found}; expected an array of objects: {remedy}")

    def _extent(self) -> tuple[int, str]:
        try:
            return _EXTENT.raw_decode(self._text, self._at)[1], ""
        except json.JSONDecodeError as error:
            return error.pos, error.msg
        except RecursionError:
            return self._at, "Nested too deep"

    def _move(self, to: int) -> None:
        breaks = self._text.count("\n", self._at, to)
        self.line += breaks
        self.column = to - self._text.rfind("\n", self._at, to) if breaks else self.column + to - self._at
        self._at = to

    def _grow(self) -> None:
        """Forget what is behind and read on, at least doubling what is ahead: a long value is not parsed often."""
        ahead = self._text[self._at :]
        more = self._stream.read(max(CHUNK, len(ahead)))
        self._text, self._at, self._complete = ahead + more, 0, not more
