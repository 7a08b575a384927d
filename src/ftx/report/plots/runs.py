"""Which runs a row of the table is about, and in which order levels stand."""

from collections.abc import Hashable

from ftx.analysis.outcomes import outcome
from ftx.config.values import shown
from ftx.effects.observations import FactorLevels, Observation, as_number, same_level
from ftx.effects.table import EffectRow, StudyEffects


def runs_of(effects: StudyEffects, row: EffectRow) -> list[Observation]:
    """The planned runs that a row is about: one at a time the arm's, in a factorial all with that level."""
    observations = effects.observations
    mine = [each for each in observations.rows if same_level(each.levels[row.factor], row.level)]
    if observations.design == "factorial":
        return mine
    wanted = 0 if row.is_baseline else 1
    return [each for each in mine if len(observations.arm(each)) == wanted]


def paired_differences(effects: StudyEffects, row: EffectRow) -> list[float]:
    """Each finished run minus the baseline level's run that is otherwise equal and has the same replicate."""

    def identity(run: Observation) -> tuple[Hashable, ...]:
        others = (shown(level) for name, level in run.levels.items() if name != row.factor)
        return (str(run.replicate), *others)

    base = {
        identity(run): run.value
        for run in effects.observations.rows
        if same_level(run.levels[row.factor], row.baseline) and is_ok(run)
    }
    found = []
    for run in runs_of(effects, row):
        reference = base.get(identity(run))
        if is_ok(run) and run.value is not None and reference is not None:
            found.append(run.value - reference)
    return found


def is_ok(run: Observation) -> bool:
    """Whether a run has a value that counts."""
    return outcome(run.status, run.value) == "ok"


def level_order(factor: FactorLevels, level: Hashable) -> tuple[float, int]:
    """Numbers by size, everything else as the study has it."""
    numbers = [as_number(each) for each in factor.levels]
    place = next((n for n, each in enumerate(factor.levels) if same_level(each, level)), len(factor.levels))
    own = as_number(level)
    return (own if own is not None and None not in numbers else 0.0, place)


def towards(effects: StudyEffects) -> str:
    """Which way the metric is better, in words."""
    return "higher is better" if effects.observations.metric.higher_is_better else "lower is better"
