"""Factors and their levels, out of the lists of values that were typed or stand in a study file."""

from collections.abc import Sequence
from dataclasses import dataclass

from ftx.errors import ConfigError


@dataclass(frozen=True)
class Axis:
    """A key or config group with the values it takes, each as it is typed behind `key=`."""

    key: str
    values: tuple[str, ...]
    prefix: str = ""
    """What stands in front of the key in Hydra's grammar, `+` or `++`."""

    def override(self, value: str) -> str:
        """One of the values as an override."""
        return f"{self.prefix}{self.key}={value}"


@dataclass(frozen=True)
class Level:
    """One setting of a factor: what it is called, and the overrides that set it."""

    label: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Factor:
    """What a study varies: one key, one config group, or several keys that move together."""

    name: str
    keys: tuple[str, ...]
    levels: tuple[Level, ...]


def factors_of(axes: Sequence[Axis], coupled: Sequence[Sequence[str]] = ()) -> list[Factor]:
    """One factor an axis, but one factor for all axes of a coupled set, whose n-th values go together.

    Factors come in the order of their first axis.

    Raises:
        ConfigError: a coupled set that names a key twice, a key without levels, or lists of unequal length.
    """
    by_key = {axis.key: axis for axis in axes}
    problems = _coupling_problems(by_key, coupled)
    if problems:
        raise ConfigError(problems)
    partners = {key: tuple(keys) for keys in coupled for key in keys}
    factors: list[Factor] = []
    for axis in axes:
        keys = partners.get(axis.key, (axis.key,))
        if not any(axis.key in factor.keys for factor in factors):
            factors.append(_factor([by_key[key] for key in keys]))
    return factors


def _factor(axes: Sequence[Axis]) -> Factor:
    rows = zip(*(axis.values for axis in axes), strict=True)
    levels = tuple(
        Level("/".join(values), tuple(axis.override(value) for axis, value in zip(axes, values, strict=True)))
        for values in rows
    )
    keys = tuple(axis.key for axis in axes)
    return Factor("+".join(keys), keys, levels)


def _coupling_problems(by_key: dict[str, Axis], coupled: Sequence[Sequence[str]]) -> list[str]:
    problems, seen = [], set[str]()
    for keys in coupled:
        named = f"study.coupled=[[{','.join(keys)}]]"
        twice = [key for position, key in enumerate(keys) if key in seen or key in keys[:position]]
        missing = [key for key in keys if key not in by_key]
        lengths = {key: len(by_key[key].values) for key in keys if key in by_key}
        seen |= set(keys)
        if twice:
            problems.append(f"{named}: {twice[0]} is named twice; a key belongs to one factor")
        elif missing:
            problems.append(f"{named}: {missing[0]} has no levels; list them, {missing[0]}=VALUE,VALUE")
        elif len(set(lengths.values())) > 1:
            counted = ", ".join(f"{key} has {count}" for key, count in lengths.items())
            problems.append(f"{named}: keys that move together need equally many levels, but {counted}")
    return problems
