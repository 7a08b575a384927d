"""The design matrix of several factors and a seed block, and what it cannot separate."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ftx.analysis import least_squares
from ftx.analysis.distributions import Array
from ftx.analysis.error import AnalysisError
from ftx.analysis.least_squares import indicators, levels_of, rank_of

SEED = "seed"
"""Name of the seed block in messages."""


@dataclass(frozen=True)
class Design:
    """Labels per run of every factor with at least two levels, and of the seed block."""

    factors: dict[str, tuple[Hashable, ...]]
    levels: dict[str, tuple[Hashable, ...]]
    seeds: tuple[Hashable, ...] | None

    @property
    def runs(self) -> int:
        """n."""
        return len(next(iter(self.factors.values())))

    def columns(self, factor: str) -> Array:
        """(n, levels - 1): indicators of every level but the first."""
        return indicators(self.factors[factor], self.levels[factor][1:])

    def seed_columns(self) -> Array:
        """(n, seeds - 1); no columns without a block."""
        return indicators(self.seeds, levels_of(self.seeds)[1:]) if self.seeds is not None else self.empty()

    def empty(self) -> Array:
        """(n, 0)."""
        return np.zeros((self.runs, 0))

    def product(self, a: str, b: str) -> Array:
        """(n, (a - 1)(b - 1)): the interaction's columns."""
        left, right = self.columns(a), self.columns(b)
        return (left[:, :, None] * right[:, None, :]).reshape(self.runs, -1)

    def matrix(self, without: str | None = None, pairs: Sequence[tuple[str, str]] = (), blocks: bool = True) -> Array:
        """Intercept, the factors' columns, the seeds' and the pairs' interactions."""
        mains = [self.columns(name) for name in self.factors if name != without]
        seeds = [self.seed_columns()] if blocks else []
        return np.hstack([np.ones((self.runs, 1)), *mains, *seeds, *(self.product(a, b) for a, b in pairs)])


def factorial_design(
    factors: Mapping[str, Sequence[Hashable]], seeds: Sequence[Hashable] | None, references: Mapping[str, Hashable]
) -> tuple[Design, list[str]]:
    """The factors that vary, each with its reference level first, and words about those that do not."""
    levels = {name: levels_of(labels) for name, labels in factors.items()}
    problems = [
        f"factor {name} has one level ({found[0]}): nothing to compare"
        for name, found in levels.items()
        if len(found) < 2
    ]
    varying = {name: tuple(labels) for name, labels in factors.items() if len(levels[name]) > 1}
    if not varying:
        raise AnalysisError("; ".join(problems) or "no factors given; name at least one")
    for name, reference in references.items():
        if reference not in levels.get(name, ()):
            known = ", ".join(str(level) for level in levels.get(name, ()))
            raise AnalysisError(f"reference {reference!r} of factor {name} has no finished run; its levels are {known}")
    ordered = {name: _first(levels[name], references.get(name, levels[name][0])) for name in varying}
    return Design(varying, ordered, None if seeds is None else tuple(seeds)), problems


def _first(levels: tuple[Hashable, ...], reference: Hashable) -> tuple[Hashable, ...]:
    return (reference, *(level for level in levels if level != reference))


def confounded_factors(design: Design) -> dict[str, str]:
    """For every factor that cannot be separated from others (or from the seeds), the words that say so."""
    columns = {name: design.columns(name) for name in design.factors}
    if design.seeds is not None:
        columns[SEED] = design.seed_columns()
    found: dict[str, str] = {}
    for a, b in combinations(columns, 2):
        if not _independent([columns[a], columns[b]]):
            for name in (a, b):
                found.setdefault(name, f"cannot separate {a} from {b}")
    fit = least_squares.fit(design.matrix(), np.zeros(design.runs))
    for name in design.factors:
        if name not in found and not all(fit.estimable(contrast_rows(design, name))):
            others = ", ".join(other for other in columns if other != name)
            found[name] = f"cannot separate {name} from {others}"
    return {name: words for name, words in found.items() if name in design.factors}


def _independent(blocks: Sequence[Array]) -> bool:
    joined = np.hstack([np.ones((blocks[0].shape[0], 1)), *blocks])
    return rank_of(joined) == 1 + sum(rank_of(np.hstack([joined[:, :1], block])) - 1 for block in blocks)


def first_column(design: Design, factor: str) -> int:
    """The first of the factor's columns in the additive matrix."""
    names = list(design.factors)
    return 1 + sum(len(design.levels[name]) - 1 for name in names[: names.index(factor)])


def contrast_rows(design: Design, factor: str) -> Array:
    """(levels - 1, p): each level minus the reference, in the additive matrix."""
    return np.eye(len(design.levels[factor]) - 1, design.matrix().shape[1], k=first_column(design, factor))
