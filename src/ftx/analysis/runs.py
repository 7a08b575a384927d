"""The planned runs of an arm: which finished, which failed, which are missing."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from ftx.analysis.distributions import Array
from ftx.analysis.error import AnalysisError
from ftx.analysis.least_squares import levels_of
from ftx.analysis.outcomes import Outcome, outcome


@dataclass(frozen=True)
class ArmRuns:
    """One arm; replicates that are planned and what became of them."""

    arm: Hashable
    outcomes: dict[Hashable, Outcome]
    """Of every planned replicate."""
    values: dict[Hashable, float]
    """The metric of the replicates that are ok."""
    losses: dict[Hashable, float] | None
    """Their final_train_loss; None: not known for this table."""

    def count(self, wanted: Outcome) -> int:
        """Number of planned replicates with this outcome."""
        return sum(found == wanted for found in self.outcomes.values())

    @property
    def array(self) -> Array:
        """(n_ok,) metric values."""
        return np.array(list(self.values.values()), dtype=np.float64)

    def shared_with(self, other: "ArmRuns") -> list[Hashable]:
        """Replicates that are ok in both."""
        return [replicate for replicate in self.values if replicate in other.values]


def runs_by_arm(
    arms: Sequence[Hashable],
    replicates: Sequence[Hashable],
    values: Sequence[float | None] | Array,
    *,
    statuses: Sequence[str | None] | None = None,
    final_train_losses: Sequence[float | None] | Array | None = None,
    crossed: bool = True,
) -> dict[Hashable, ArmRuns]:
    """Sort planned runs, one entry each in every sequence, by arm, in order of appearance.

    `crossed`: every arm is planned with every replicate that occurs, and an absent pair is a missing run.
    Losses that are all None are as good as none given.
    AnalysisError: no runs, sequences of unequal length, a run given twice, an unknown status.
    """
    _check_lengths(arms, replicates=replicates, values=values, statuses=statuses, final_train_losses=final_train_losses)
    if final_train_losses is not None and all(loss is None for loss in final_train_losses):
        final_train_losses = None
    grid = levels_of(replicates)
    sorted_runs = {arm: ArmRuns(arm, {}, {}, None if final_train_losses is None else {}) for arm in levels_of(arms)}
    for place, (arm, replicate) in enumerate(zip(arms, replicates, strict=True)):
        runs, value = sorted_runs[arm], values[place]
        if replicate in runs.outcomes:
            raise AnalysisError(f"arm {arm!r} has two runs of replicate {replicate!r}; keep one of them")
        runs.outcomes[replicate] = outcome(None if statuses is None else statuses[place], value)
        if runs.outcomes[replicate] == "ok" and value is not None:
            runs.values[replicate] = float(value)
            if runs.losses is not None and final_train_losses is not None:
                loss = final_train_losses[place]
                runs.losses[replicate] = float("nan") if loss is None else float(loss)
    return {arm: _in_order(runs, grid, crossed) for arm, runs in sorted_runs.items()}


def _in_order(runs: ArmRuns, grid: Sequence[Hashable], crossed: bool) -> ArmRuns:
    """The same runs in the order of `grid`, with absent pairs as missing runs where the design is crossed."""
    planned = [replicate for replicate in grid if crossed or replicate in runs.outcomes]
    return ArmRuns(
        arm=runs.arm,
        outcomes={replicate: runs.outcomes.get(replicate, "missing") for replicate in planned},
        values={replicate: runs.values[replicate] for replicate in planned if replicate in runs.values},
        losses=runs.losses,
    )


def _check_lengths(arms: Sequence[Hashable], **others: Sequence[object] | Array | None) -> None:
    if len(arms) == 0:
        raise AnalysisError("no runs: nothing to compare")
    for name, entries in others.items():
        if entries is not None and len(entries) != len(arms):
            raise AnalysisError(f"{name} has {len(entries)} entries for {len(arms)} runs; give one for each run")
