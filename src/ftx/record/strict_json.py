"""Strict JSON: what any other parser accepts too, with NaN told apart from missing.

JSON has no NaN and no infinity. They are written as the strings "NaN", "Infinity" and "-Infinity";
null means unknown, and nothing else.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from os import PathLike
from typing import Any

from ftx.errors import RecordError

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
# Legal inside a JSON string, yet str.splitlines() of a careless reader breaks a line there.
_LINE_BREAKS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_STRING_OR_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)|-?\d[\d.eE+-]*', re.DOTALL)


class JsonError(RecordError):
    """Text that is not strict JSON; `position` counts characters from 0, `truncated`: it stops too early."""

    def __init__(self, message: str, text: str, position: int, *, truncated: bool = False) -> None:
        self.position, self.truncated = position, truncated
        self.line = text.count("\n", 0, position) + 1
        self.column = position - text.rfind("\n", 0, position)
        super().__init__(message)


def strict(obj: Any, where: str = "") -> Any:
    """Copy `obj` as dicts, lists, strings, numbers, booleans and None that `dumps` writes.

    Numpy and torch scalars become numbers, paths strings, sets sorted lists. `where` is the dotted place
    named by the RecordError that anything else raises.
    """
    if obj is None or isinstance(obj, bool):
        return obj
    if isinstance(obj, str):
        return _printable(str(obj))
    if isinstance(obj, int):
        return int(obj)
    if isinstance(obj, float):
        return float(obj) if math.isfinite(obj) else _name_of(obj)
    if isinstance(obj, Mapping):
        return {_printable(str(key)): strict(value, f"{where}.{key}") for key, value in obj.items()}
    if isinstance(obj, Set):
        return sorted((strict(value, where) for value in obj), key=repr)
    if isinstance(obj, Sequence) and not isinstance(obj, bytes | bytearray | memoryview):
        return [strict(value, f"{where}.{index}") for index, value in enumerate(obj)]
    return _from_other(obj, where)


def restored(obj: Any) -> Any:
    """Undo `strict` for numbers: "NaN", "Infinity" and "-Infinity" become floats again, at any depth.

    Only for places that hold numbers: a text that happens to read "NaN" would be changed as well.
    """
    if isinstance(obj, str):
        return NON_FINITE.get(obj, obj)
    if isinstance(obj, dict):
        return {key: restored(value) for key, value in obj.items()}
    if isinstance(obj, list):
        return [restored(value) for value in obj]
    return obj


def dumps(obj: Any, *, indent: int | None = None) -> str:
    """Write `strict(obj)` as JSON; without `indent` on one line, for every reader's idea of a line."""
    text = json.dumps(strict(obj), ensure_ascii=False, allow_nan=False, indent=indent)
    for character, escape in _LINE_BREAKS.items():
        text = text.replace(character, escape)
    return text


def loads(text: str) -> Any:
    """Parse strict JSON. JsonError also on a bare NaN, a number too large or a key given twice."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        truncated = error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip())
        raise JsonError(error.msg, text, error.pos, truncated=truncated) from None
    except _NotStrict as error:
        raise JsonError(str(error), text, _position_of(error.token, text)) from None
    except (RecursionError, ValueError) as error:  # nested too deep; an integer of thousands of digits
        raise JsonError(f"not readable ({error})", text, 0) from None


class _NotStrict(Exception):
    def __init__(self, message: str, token: str) -> None:
        self.token = token
        super().__init__(message)


def _refuse(token: str) -> float:
    raise _NotStrict(f'{token} is not JSON; write "{token}" in quotes, or null for unknown', token)


def _finite(token: str) -> float:
    value = float(token)
    if math.isinf(value):
        raise _NotStrict(f"{token} is larger than any floating-point number", token)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        key = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise _NotStrict(f"key {json.dumps(key)} is given twice", json.dumps(key))
    return result


def _position_of(token: str, text: str) -> int:
    """Character offset of a number or quoted key outside of other strings; 0 if spelled otherwise."""
    found = [match.start() for match in _STRING_OR_NUMBER.finditer(text) if match.group() == token]
    return (found[1] if token.startswith('"') and len(found) > 1 else found[0]) if found else 0


def _name_of(number: float) -> str:
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _printable(text: str) -> str:
    """Replace lone surrogates (undecodable bytes of a file name), which UTF-8 cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _from_other(obj: Any, where: str) -> Any:
    if isinstance(obj, PathLike):
        return _printable(str(obj))
    item = getattr(obj, "item", None)  # numpy and torch scalars, without importing either
    if callable(item) and getattr(obj, "ndim", None) == 0:
        return strict(item(), where)
    place = where.lstrip(".") or "the value"
    raise RecordError(f"{place}: {type(obj).__name__} cannot be written as JSON; pass a number, text, list or dict")
