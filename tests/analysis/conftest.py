"""The right answers of golden/, and comparison to the digits in which they are given."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    return json.loads((GOLDEN / "golden.json").read_text())


@pytest.fixture(scope="session")
def golden_rows() -> Callable[[str], list[dict[str, str]]]:
    """The rows of one of the CSV files, as strings."""

    def read(name: str) -> list[dict[str, str]]:
        with (GOLDEN / name).open() as file:
            return list(csv.DictReader(file))

    return read


@pytest.fixture(scope="session")
def golden_runs(golden_rows) -> Callable[[str], tuple[list[str], list[str], list[float]]]:
    """Arms, seeds and values of an OFAT file."""

    def read(name: str) -> tuple[list[str], list[str], list[float]]:
        rows = golden_rows(name)
        return [row["arm"] for row in rows], [row["seed"] for row in rows], [float(row["y"]) for row in rows]

    return read


@pytest.fixture(scope="session")
def close() -> Callable[[float], Any]:
    """Equal to a golden value: 1e-6 relative, or half a unit in the last of the digits given."""

    def expect(value: float) -> Any:
        text = repr(value)
        mantissa, _, exponent = text.partition("e")
        decimals = len(mantissa.partition(".")[2])
        return pytest.approx(value, rel=1e-6, abs=0.51 * 10.0 ** (int(exponent or 0) - decimals))

    return expect
