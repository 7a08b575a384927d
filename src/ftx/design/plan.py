"""From factors and replicates to arms and trials, one factor at a time or all combinations.

What a level means is asked of `settings`, which composes a configuration: a level that resolves to the baseline
is the baseline, two levels that resolve to the same are one, and every arm is checked to differ from the
baseline in its own factors only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ftx.design.factors import Axis, Factor, Level
from ftx.errors import ConfigError

BASELINE = "baseline"
KINDS = ("ofat", "factorial")


@dataclass(frozen=True)
class Settings:
    """One composed configuration by dotted name: `typed` as composed, `resolved` with all that follows filled in."""

    typed: Mapping[str, Any]
    resolved: Mapping[str, Any]


Compose = Callable[[Sequence[str]], Settings]
"""From overrides (on top of the baseline's) to the settings they give. Raises ConfigError."""


@dataclass(frozen=True)
class Change:
    """One key in which an arm differs from the baseline."""

    key: str
    baseline: Any
    value: Any


@dataclass(frozen=True)
class Arm:
    """One setting of all factors. `levels` holds the factors in which it differs from the baseline."""

    levels: Mapping[str, Level]
    overrides: tuple[str, ...]
    changes: tuple[Change, ...]
    """What the levels set."""
    derived: tuple[Change, ...]
    """What follows from them, such as alpha from rank."""

    @property
    def is_baseline(self) -> bool:
        """Whether nothing differs."""
        return not self.levels

    @property
    def label(self) -> str:
        """`baseline`, or the levels by factor."""
        return " ".join(f"{name}={level.label}" for name, level in self.levels.items()) or BASELINE


@dataclass(frozen=True)
class Replicate:
    """One repetition of every arm: values of the replicate keys, and the overrides that set them."""

    values: Mapping[str, str]
    overrides: tuple[str, ...]

    @property
    def label(self) -> str:
        """`seed=0`, or several keys behind each other."""
        return " ".join(f"{key}={value}" for key, value in self.values.items())


@dataclass(frozen=True)
class Design:
    """The arms, the baseline first, and what is crossed with each."""

    kind: str
    factors: tuple[Factor, ...]
    baseline_levels: Mapping[str, str | None]
    """The listed level that is the baseline, by factor; None where its value is not among the levels."""
    arms: tuple[Arm, ...]
    replicates: tuple[Replicate, ...]
    repeated: tuple[tuple[str, str, str], ...]
    """Levels that were listed and are not arms of their own: factor, the level, the level that it equals."""

    @property
    def trials(self) -> list[tuple[Arm, Replicate]]:
        """All arms of the first replicate, then of the next: what a spent budget leaves is whole blocks."""
        return [(arm, replicate) for replicate in self.replicates for arm in self.arms]


def replicates_of(axes: Sequence[Axis]) -> tuple[Replicate, ...]:
    """Every combination of the replicate keys' values, each once, in the order they were listed."""
    unique = [list(dict.fromkeys(axis.values)) for axis in axes]
    return tuple(
        Replicate(
            {axis.key: value for axis, value in zip(axes, values, strict=True)},
            tuple(axis.override(value) for axis, value in zip(axes, values, strict=True)),
        )
        for values in product(*unique)
    )


def plan(kind: str, factors: Sequence[Factor], replicates: Sequence[Replicate], settings: Compose) -> Design:
    """The design of a study.

    Args:
        kind: "ofat": the baseline, and every other level of each factor with the other factors at baseline.
            "factorial": every combination of the listed levels, and the baseline.
        factors: with all their listed levels.
        replicates: crossed with every arm.
        settings: composes the baseline's overrides followed by those given.

    Raises:
        ConfigError: a level that cannot be composed, or that changes more than its own factor.
    """
    if kind not in KINDS:
        raise ConfigError([f"a design is one of {', '.join(KINDS)}, got {kind}"])
    base = settings(())
    found = [_distinct(factor, base, settings) for factor in factors]
    combinations = _factorial(found) if kind == "factorial" else _one_at_a_time(found)
    arms = [Arm({}, (), (), ())]
    arms += [_arm(levels, factors, base, settings) for levels in combinations if levels]
    problems = [problem for arm in arms for problem in _isolation_problems(arm, factors)]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return Design(
        kind,
        tuple(Factor(each.factor.name, each.factor.keys, each.levels) for each in found),
        {each.factor.name: each.baseline for each in found},
        tuple(arms),
        tuple(replicates),
        tuple((each.factor.name, *pair) for each in found for pair in each.same),
    )


@dataclass(frozen=True)
class _Distinct:
    """A factor's levels without repetitions, and which of them is the baseline."""

    factor: Factor
    levels: tuple[Level, ...]
    baseline: str | None
    same: tuple[tuple[str, str], ...]


def _distinct(factor: Factor, base: Settings, settings: Compose) -> _Distinct:
    kept: list[tuple[Level, Settings]] = []
    same: list[tuple[str, str]] = []
    baseline = None
    for level in factor.levels:
        mine = settings(level.overrides)
        twin = next((other.label for other, known in kept if _equal(known, mine)), None)
        if twin is not None:
            if twin != level.label:
                same.append((level.label, twin))
            continue
        kept.append((level, mine))
        if _equal(mine, base):
            baseline = level.label
    return _Distinct(factor, tuple(level for level, _ in kept), baseline, tuple(same))


def _equal(one: Settings, other: Settings) -> bool:
    """Whether two configurations resolve to the same; 1 is 1.0, but true is not 1."""
    return not _changed(one.resolved, other.resolved)


def _one_at_a_time(found: Sequence[_Distinct]) -> Iterator[dict[str, Level]]:
    for each in found:
        for level in each.levels:
            if level.label != each.baseline:
                yield {each.factor.name: level}


def _factorial(found: Sequence[_Distinct]) -> Iterator[dict[str, Level]]:
    for levels in product(*(each.levels for each in found)):
        yield {
            each.factor.name: level for each, level in zip(found, levels, strict=True) if level.label != each.baseline
        }


def _arm(levels: Mapping[str, Level], factors: Sequence[Factor], base: Settings, settings: Compose) -> Arm:
    overrides = tuple(word for factor in factors if factor.name in levels for word in levels[factor.name].overrides)
    mine = settings(overrides)
    named = {key for name, level in levels.items() for key in _keys(factors, name)}
    changed = _changed(base.resolved, mine.resolved)
    typed = {change.key for change in _changed(base.typed, mine.typed)} | named
    return Arm(
        dict(levels),
        overrides,
        tuple(change for change in changed if change.key in typed),
        tuple(change for change in changed if change.key not in typed),
    )


def _changed(base: Mapping[str, Any], mine: Mapping[str, Any]) -> list[Change]:
    names = [*base, *(name for name in mine if name not in base)]
    pairs = ((name, base.get(name), mine.get(name)) for name in names)
    return [
        Change(*pair) for pair in pairs if pair[1] != pair[2] or isinstance(pair[1], bool) != isinstance(pair[2], bool)
    ]


def _isolation_problems(arm: Arm, factors: Sequence[Factor]) -> Iterator[str]:
    keys = [key for name in arm.levels for key in _keys(factors, name)]
    outside = [change for change in arm.changes if not any(_belongs(change.key, key) for key in keys)]
    if outside:
        what = ", ".join(f"{change.key} ({change.baseline} -> {change.value})" for change in outside)
        yield (
            f"{arm.label} also sets {what}: an arm differs from the baseline in one factor only. Keys that move "
            "together are one factor: study.coupled=[[KEY,KEY]]"
        )


def _belongs(key: str, factor_key: str) -> bool:
    """A config group, `lora` or `hydra/x`, owns the keys of the section of its name."""
    name = factor_key.replace("/", ".")
    return key == name or key.startswith(f"{name}.")


def _keys(factors: Sequence[Factor], name: str) -> tuple[str, ...]:
    return next(factor.keys for factor in factors if factor.name == name)
