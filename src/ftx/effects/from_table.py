"""Observations of a tidy table from elsewhere: a row a run, a column a factor, replicate or metric."""

import json
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftx.effects.observations import FactorLevels, Metric, Observation, Observations, as_number, frozen, same_level
from ftx.errors import ConfigError, DataError

KINDS = (".csv", ".json", ".jsonl", ".parquet")
EMPTY = ("null", "None", "")
OK_WORDS = ("ok", "finished", "success", "succeeded", "completed", "done")
MISSING_WORDS = ("missing", "killed", "interrupted", "running", "pending", "not_started")


@dataclass(frozen=True)
class Columns:
    """Which column is what."""

    factors: tuple[str, ...]
    replicate: str | None
    metric: str
    status: str | None = None


def observations_of_table(
    path: Path, columns: Columns, *, direction: str, baselines: Sequence[str], design: str = "auto"
) -> Observations:
    """Read a table.

    Args:
        path: .csv, .json (a list of objects), .jsonl or .parquet.
        columns: names of columns.
        direction: min or max.
        baselines: LEVEL, for the only factor, or FACTOR=LEVEL; of a factor not named, its commonest level.
        design: ofat, factorial, or auto: ofat if every row differs from the baseline in at most one factor.

    Raises:
        ConfigError: a baseline of no factor.
        DataError: a file that cannot be read, a column or level that is not there, or one run twice.
    """
    frame = read_table(path)
    wanted = [*columns.factors, columns.metric, *(name for name in (columns.replicate, columns.status) if name)]
    absent = [name for name in wanted if name not in frame]
    if absent:
        raise DataError(f"{path}: no column {absent[0]!r}; it has {', '.join(map(str, frame))}")
    if not len(frame):
        raise DataError(f"{path}: no rows")
    _refuse_unknown_baselines(columns.factors, baselines)
    records = {name: [_plain(value) for value in frame[name]] for name in wanted}
    _refuse_words_as_numbers(records[columns.metric], columns.metric, path)
    factors = tuple(
        _factor(name, records[name], _baseline_of(name, columns.factors, baselines), path) for name in columns.factors
    )
    rows = tuple(_row(records, columns, factors, place) for place in range(len(frame)))
    _refuse_twice(rows, factors, path)
    found = Observations(
        name=path.name,
        design="ofat",
        metric=Metric(columns.metric, direction),
        factors=factors,
        rows=rows,
    )
    several = any(len(found.arm(row)) > 1 for row in rows)
    if design == "ofat" and several:
        raise DataError(f"{path}: --design ofat, but some rows differ from the baseline in several factors")
    chosen = ("factorial" if several else "ofat") if design == "auto" else design
    return Observations(
        name=found.name,
        design=chosen,
        metric=found.metric,
        factors=factors,
        rows=rows,
        crossed=chosen == "ofat" and columns.replicate is not None,
        blocked=columns.replicate is not None,
    )


def read_table(path: Path) -> Any:
    """A pandas frame with every level as it was written. DataError: not a table of a kind that is read."""
    import pandas as pd

    if not path.is_file():
        raise DataError(f"--table {path}: no such file")
    try:
        if path.suffix == ".csv":
            return pd.read_csv(path, keep_default_na=True, dtype=object)
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        if path.suffix == ".jsonl":
            return pd.DataFrame([json.loads(line) for line in path.read_text("utf-8-sig").splitlines() if line.strip()])
        if path.suffix == ".json":
            return pd.DataFrame(json.loads(path.read_text("utf-8-sig")))
    except (ValueError, OSError, KeyError) as error:
        raise DataError(f"--table {path}: cannot be read as {path.suffix} ({str(error).splitlines()[0]})") from None
    raise DataError(f"--table {path}: expected a file of one of {', '.join(KINDS)}")


def _plain(value: Any) -> Any:
    """A cell as plain Python; an empty one is None."""
    level = frozen(value.item() if getattr(value, "size", None) == 1 and hasattr(value, "item") else value)
    return None if (level == "nan" and isinstance(value, float)) or str(value) in ("NaT", "<NA>") else level


def _refuse_unknown_baselines(factors: Sequence[str], baselines: Sequence[str]) -> None:
    for baseline in baselines:
        factor, equals, _ = baseline.partition("=")
        if len(factors) > 1 and not (equals and factor in factors):
            raise ConfigError(
                [f"--baseline {baseline}: of several factors say which, FACTOR=LEVEL with one of {', '.join(factors)}"]
            )


def _refuse_words_as_numbers(cells: Sequence[Any], metric: str, path: Path) -> None:
    for place, cell in enumerate(cells):
        empty = cell is None or str(cell).strip().lower() in ("", "nan", "inf", "-inf", "infinity", "-infinity")
        if not empty and as_number(cell) is None:
            raise DataError(
                f"{path}: row {place + 1}: {metric} is {cell!r}, expected a number, or nothing for a failed run"
            )


def _row(records: dict[str, list[Any]], columns: Columns, factors: Sequence[FactorLevels], place: int) -> Observation:
    value = _number(records[columns.metric][place])
    replicate = records[columns.replicate][place] if columns.replicate else place
    return Observation(
        levels={factor.name: _canonical(records[factor.name][place], factor.levels) for factor in factors},
        replicate=replicate,
        status=_status(records[columns.status][place] if columns.status else None, value),
        value=value,
    )


def _status(word: Any, value: float | None) -> str:
    if word is None:
        return "finished" if value is not None else "failed"
    text = str(word).strip().lower()
    if text in MISSING_WORDS:
        return "missing"
    return "finished" if text in OK_WORDS and value is not None else "failed"


def _number(cell: Any) -> float | None:
    return as_number(cell)


def _factor(name: str, cells: Sequence[Any], baseline: str | None, path: Path) -> FactorLevels:
    levels: list[Hashable] = []
    for cell in cells:
        if not any(same_level(cell, level) for level in levels):
            levels.append(cell)
    if baseline is None:
        common = Counter(str(_canonical(cell, levels)) for cell in cells).most_common(1)[0][0]
        return FactorLevels(name, tuple(levels), next(level for level in levels if str(level) == common))
    found = [level for level in levels if same_level(level, None if baseline in EMPTY else baseline)]
    if not found:
        raise DataError(f"{path}: --baseline {baseline} is no level of {name}; it has {', '.join(map(str, levels))}")
    return FactorLevels(name, tuple(levels), found[0])


def _canonical(cell: Any, levels: Sequence[Hashable]) -> Hashable:
    return next(level for level in levels if same_level(cell, level))


def _baseline_of(name: str, factors: Sequence[str], baselines: Sequence[str]) -> str | None:
    for baseline in baselines:
        factor, equals, level = baseline.partition("=")
        if equals and factor == name:
            return level
        if len(factors) == 1 and not (equals and factor in factors):
            return baseline
    return None


def _refuse_twice(rows: Sequence[Observation], factors: Sequence[FactorLevels], path: Path) -> None:
    seen: dict[tuple[Any, ...], int] = {}
    for place, row in enumerate(rows):
        key = (*(row.levels[factor.name] for factor in factors), str(row.replicate))
        if key in seen:
            raise DataError(
                f"{path}: rows {seen[key] + 1} and {place + 1} are the same run "
                f"({', '.join(map(str, key[:-1]))}, replicate {row.replicate}); name every factor, or drop one"
            )
        seen[key] = place
