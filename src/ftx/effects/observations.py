"""One row a planned run, whatever it comes from: a study, loose run directories, or a table from elsewhere."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

COSTS = ("train_rows", "seconds", "tokens_per_second", "peak_memory_bytes", "trainable_parameters")


@dataclass(frozen=True)
class Metric:
    """What is compared; `direction` is min or max, as declared."""

    name: str
    direction: str

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger value is a better one."""
        return self.direction == "max"


@dataclass(frozen=True)
class FactorLevels:
    """A factor, its levels in the order of the study, and which of them is the baseline's."""

    name: str
    levels: tuple[Hashable, ...]
    baseline: Hashable


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One planned run."""

    levels: Mapping[str, Hashable]
    """The level of every factor."""
    replicate: Hashable
    status: str
    """As a run record says it; `missing` where there is no run."""
    value: float | None = None
    final_train_loss: float | None = None
    secondary: Mapping[str, float | None] = field(default_factory=dict)
    cost: Mapping[str, float | None] = field(default_factory=dict)
    """By the names in COSTS."""
    run: str | None = None
    """The run directory."""


@dataclass(frozen=True)
class Problem:
    """Something to say beside the table: a kind for machines, words, and the runs or arms that it is about."""

    kind: str
    detail: str
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Observations:
    """Everything that one table is made of."""

    name: str
    design: str
    """ofat or factorial."""
    metric: Metric
    factors: tuple[FactorLevels, ...]
    rows: tuple[Observation, ...]
    problems: tuple[Problem, ...] = ()
    split: str | None = None
    """Where the metric was measured: test, or validation, which also chose the checkpoint; None: not known."""
    looks: int = 1
    """How often replicates were added, and so the table looked at."""
    crossed: bool = True
    """Whether every arm was planned with every replicate that occurs."""
    blocked: bool = True
    """Whether the replicates are the same seeds in every arm, so that they can be blocks."""

    def arm(self, row: Observation) -> tuple[tuple[str, Hashable], ...]:
        """The factors in which a run differs from the baseline, with their levels; empty for the baseline."""
        return tuple(
            (factor.name, row.levels[factor.name])
            for factor in self.factors
            if not same_level(row.levels[factor.name], factor.baseline)
        )

    @property
    def secondary_names(self) -> tuple[str, ...]:
        """Metrics that are shown beside the primary one."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.secondary))


def same_level(one: Any, other: Any) -> bool:
    """Whether two levels are one: as numbers where both parse, else as text."""
    numbers = (as_number(one), as_number(other))
    if None not in numbers:
        return numbers[0] == numbers[1]
    return (one is None) == (other is None) and str(one) == str(other)


def as_number(level: Any) -> float | None:
    """A level as a finite number, if it reads as one; a truth value does not."""
    if isinstance(level, bool) or level is None:
        return None
    try:
        number = float(level)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def frozen(level: Any) -> Hashable:
    """A level that can be a key and stand in JSON: lists, mappings and dates as they are typed."""
    if hasattr(level, "tolist"):
        level = level.tolist()
    if isinstance(level, (list, tuple)):
        return f"[{','.join(map(str, level))}]"
    if isinstance(level, Mapping):
        return ", ".join(f"{key}={value}" for key, value in level.items())
    if hasattr(level, "isoformat"):
        return str(level.isoformat())
    if isinstance(level, float) and not math.isfinite(level):
        return str(level)
    return level if isinstance(level, (str, int, float, bool)) or level is None else str(level)
