import json
import math
from pathlib import Path
from typing import Any

import pytest

from ftx.errors import RecordError
from ftx.record.strict_json import JsonError, dumps, loads, restored, strict


class Scalar:
    """What numpy and torch scalars have in common."""

    ndim = 0

    def item(self) -> float:
        return math.nan


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        ({"a": (1, True, None, 0.5)}, {"a": [1, True, None, 0.5]}),
        ({3: {"b", "a"}}, {"3": ["a", "b"]}),
        (Path("a/b"), "a/b"),
        (Scalar(), "NaN"),
        ("bad byte \udcff", "bad byte \\udcff"),
    ],
    ids=["nan", "minus-infinity", "nested", "set-and-int-key", "path", "scalar", "surrogate"],
)
def test_strict_leaves_only_plain_values(value: Any, written: Any) -> None:
    assert strict(value) == written


def test_nan_infinity_and_null_stay_apart() -> None:
    values = {"a": math.nan, "b": [math.inf, -math.inf], "c": None, "d": "text"}
    again = restored(loads(dumps(values)))
    assert math.isnan(again["a"])
    assert again["b"] == [math.inf, -math.inf]
    assert (again["c"], again["d"]) == (None, "text")


def test_a_value_that_is_no_json_is_named() -> None:
    with pytest.raises(RecordError, match=r"config\.custom\.0: object cannot be written as JSON"):
        strict({"config": {"custom": [object()]}})


def test_one_line_for_every_reader() -> None:
    line = dumps({"notes": "a\u2028b\u2029c\x85d\ne ü"})
    assert len(line.splitlines()) == 1
    assert "ü" in line
    assert json.loads(line)["notes"] == "a\u2028b\u2029c\x85d\ne ü"


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ('{"NaN": "NaN",\n "x": NaN}', 2, 7, "NaN is not JSON"),
        ('{"x": -Infinity}', 1, 7, "-Infinity is not JSON"),
        ('{"x": 1e999}', 1, 7, "larger than any"),
        ('{"x": 1, "x": 2}', 1, 10, '"x" is given twice'),
        ('{"x": 1,}', 1, 9, ""),
    ],
    ids=["nan", "infinity", "overflow", "duplicate", "comma"],
)
def test_what_is_not_strict_is_refused_with_its_place(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(JsonError) as caught:
        loads(text)
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_too_deep_is_refused() -> None:
    with pytest.raises(JsonError, match="not readable"):
        loads("[" * 100_000)
