"""What to do next, from the evidence of a table: each suggestion in words and, for a study, as a command line."""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ftx.analysis.effect_table import SeedsNeeded
from ftx.analysis.power import FEWEST_SEEDS
from ftx.analysis.verdicts import BETTER, NOT_ENOUGH_SEEDS, WITHIN_NOISE, WORSE
from ftx.config.values import shown
from ftx.effects.observations import Observations, frozen, same_level
from ftx.effects.table import EffectRow, StudyEffects
from ftx.record.study_record import StudyRecord

RECOMMENDED_SEEDS = 5
_MOST_SEED_PLANS = 3
_MOST_COMBINED = 3
_TRAIN = ("python", "-m", "ftx.train", "-m")
_EQUIVALENT = "equivalent"
_MUCH_CHEAPER = 0.05
_COST_WORDS = {
    "trainable_parameters": "fewer trainable parameters",
    "seconds": "less time",
    "peak_memory_bytes": "less memory",
}


@dataclass(frozen=True)
class Suggestion:
    """A next step. `kind` is finish, more_seeds, drop, equivalent or combine."""

    kind: str
    text: str
    command: list[str] | None = None
    """Words of a command line that works as it is; None where there is nothing to run, or no study to run it in."""


def suggestions(effects: StudyEffects, study: StudyRecord | None = None) -> list[Suggestion]:
    """Next steps, the one that completes the evidence first.

    Args:
        effects: the judged table.
        study: its record, for command lines; None: the observations come from a table or from loose runs.
    """
    return [
        *_finish(effects, study),
        *_more_seeds(effects, study),
        *_combine(effects, study),
        *_drop(effects, study),
        *_equivalent(effects, study),
    ]


def _finish(effects: StudyEffects, study: StudyRecord | None) -> Iterator[Suggestion]:
    """Planned runs that are missing: the command that was typed goes on where it stopped."""
    missing = sum(trial.state == "missing" and trial.status != "finished" for trial in study.trials) if study else 0
    if study is None or not missing or not study.launches:
        return
    what = "1 planned run is" if missing == 1 else f"{missing} planned runs are"
    yield Suggestion("finish", f"{what} missing; the same command goes on.", list(study.launches[-1]["command"]))


def _more_seeds(effects: StudyEffects, study: StudyRecord | None) -> Iterator[Suggestion]:
    """How many seeds would find the effects that were seen, the fewest first."""
    plans: dict[int, list[EffectRow]] = {}
    for row in effects.rows:
        wanted = _wanted_seeds(row)
        if wanted is not None and wanted > row.n_ok:
            plans.setdefault(wanted, []).append(row)
    used = len(dict.fromkeys(map(str, _replicates(effects.observations))))
    for wanted, rows in sorted(plans.items())[:_MOST_SEED_PLANS]:
        more = wanted - used
        if more > 0:
            seeds = _next_seeds(effects.observations, study, more)
            yield Suggestion("more_seeds", _seeds_text(rows, wanted, seeds), _seeds_command(rows, study, seeds))
    hopeless = [row for row in effects.rows if row.verdict == WITHIN_NOISE and isinstance(row.seeds_needed, str)]
    if hopeless:
        yield Suggestion(
            "more_seeds",
            f"{_listed(hopeless)}: an effect as small as the one seen needs {hopeless[0].seeds_needed} seeds; "
            "more seeds are not worth it. To call the levels equivalent, declare the difference that does not matter "
            "with --margin.",
        )


def _wanted_seeds(row: EffectRow) -> int | None:
    if row.verdict == NOT_ENOUGH_SEEDS:
        return RECOMMENDED_SEEDS if row.n_ok < RECOMMENDED_SEEDS else None
    needed: SeedsNeeded = row.seeds_needed
    return needed if row.verdict == WITHIN_NOISE and isinstance(needed, int) else None


def _seeds_text(rows: Sequence[EffectRow], wanted: int, seeds: Sequence[int]) -> str:
    unjudged = [row for row in rows if row.verdict == NOT_ENOUGH_SEEDS]
    noisy = [row for row in rows if row.verdict == WITHIN_NOISE]
    parts = []
    if noisy:
        parts.append(
            f"{_listed(noisy)}: about {wanted} seeds would show a difference as large as the one seen (an estimate)"
        )
    if unjudged:
        parts.append(f"{_listed(unjudged)}: a verdict needs at least {FEWEST_SEEDS} seeds, better {wanted}")
    next_ones = f"; the next are {', '.join(map(str, seeds))}" if seeds else ""
    return (
        f"{'; '.join(parts)}{next_ones}. The table is then looked at again: --looks counts that in, where seeds were "
        "added because nothing was found."
    )


def _replicates(observations: Observations) -> list[Hashable]:
    return [row.replicate for row in observations.rows]


def _next_seeds(observations: Observations, study: StudyRecord | None, more: int) -> list[int]:
    """Whole numbers after the largest that was used; empty where the replicates are not one whole number each."""
    if study is not None and len(study.replicates) == 1:
        used: list[Any] = next(iter(study.replicates.values()))
    else:
        used = _replicates(observations)
    numbers = [_whole(value) for value in used]
    known = [value for value in numbers if value is not None]
    if not known or len(known) < len(numbers):
        return []
    return list(range(max(known) + 1, max(known) + 1 + more))


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else None


def _seeds_command(rows: Sequence[EffectRow], study: StudyRecord | None, seeds: Sequence[int]) -> list[str] | None:
    """The launch that has these factors, with the new seeds behind the old ones; finished runs are used again."""
    if study is None or not seeds or len(study.replicates) != 1:
        return None
    (key, used), *_ = study.replicates.items()
    launch = _launch_of({row.factor for row in rows}, study)
    if launch is None:
        return None
    kept = [word for word in launch if _key(word) not in (key, "study.replicate_top", "study.max_runs")]
    return [*kept, f"{key}={','.join(map(shown, [*used, *seeds]))}"]


def _launch_of(factors: set[str], study: StudyRecord) -> list[str] | None:
    """The newest command that sweeps all these factors, itself or through a study file."""
    keys = {key for factor in study.factors if factor["name"] in factors for key in factor["keys"]}
    for launch in reversed(study.launches):
        words = list(launch["command"])
        named = {_key(word) for word in words}
        if keys <= named or "study" in named:
            return words
    return None


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")


def _combine(effects: StudyEffects, study: StudyRecord | None) -> Iterator[Suggestion]:
    """The best levels of different factors together, and whether their effects add up."""
    observations = effects.observations
    best = _best_rows(effects)
    if observations.design != "ofat" or len(best) < 2:
        return
    base = next((row for row in effects.rows if row.is_baseline and row.mean is not None), None)
    if base is None or base.mean is None:
        return
    best = sorted(best, key=lambda row: -abs(row.effect or 0))[:_MOST_COMBINED]
    predicted = base.mean + math.fsum(row.effect or 0 for row in best)
    text = (
        f"Combine {_listed(best)}, each better alone. If their effects add up, {observations.metric.name} "
        f"will be {predicted:.4g}, where the baseline has {base.mean:.4g}"
    )
    if predicted < 0 and "loss" in observations.metric.name:
        text += " (no loss is below 0, so they cannot add up in full)"
    command = _combination(best, study)
    how = (
        "; a factorial study of these levels tests it, and uses finished runs of the same code again."
        if command and "study.design=factorial" in command
        else "; compare the mean of the combination's runs with that."
    )
    yield Suggestion("combine", text + how, command)


def _best_rows(effects: StudyEffects) -> list[EffectRow]:
    """Of each factor, the level with the best effect among those that are better than the baseline."""
    sign = 1 if effects.observations.metric.higher_is_better else -1
    found = []
    for factor in effects.observations.factors:
        rows = [row for row in effects.factor_rows(factor.name) if row.verdict == BETTER and row.effect is not None]
        if rows:
            found.append(max(rows, key=lambda row: sign * (row.effect or 0)))
    return found


def _combination(best: Sequence[EffectRow], study: StudyRecord | None) -> list[str] | None:
    """A factorial study of baseline and best levels; where the baseline cannot be an axis, the combination alone."""
    if study is None or not study.launches:
        return None
    words = list(study.baseline["overrides"])
    swept = {_key(word) for word in words}
    axes: list[str] = []
    alone: list[str] = []
    whole = True
    for row in best:
        factor = next((found for found in study.factors if found["name"] == row.factor), None)
        trial = next((t for t in study.trials if t.factor == row.factor and _is_level(t.level, row.level)), None)
        if factor is None or trial is None:
            return None
        keys = factor["keys"]
        alone += [word for word in trial.overrides if _key(word) in keys]
        label = next((level["label"] for level in factor["levels"] if _is_level(level["level"], row.level)), None)
        # A key that the baseline sets and an axis sweeps has the axis alone: the baseline would be another.
        whole = whole and len(keys) == 1 and None not in (label, factor["baseline_level"]) and keys[0] not in swept
        axes.append(f"{keys[0]}={factor['baseline_level']},{label}")
    head = [*_TRAIN, *_flags(study), *_replicate_words(study)]
    if whole:
        return [*head, "study.design=factorial", *words, *axes]
    replaced = {_key(word) for word in alone}
    return [*head, *(word for word in words if _key(word) not in replaced), *alone]


def _is_level(one: Any, other: Any) -> bool:
    return same_level(frozen(one), other)


def _flags(study: StudyRecord) -> list[str]:
    """Flags of the newest launch that say where configurations are."""
    words = list(study.launches[-1]["command"])[len(_TRAIN) :]
    found = []
    for position, word in enumerate(words):
        if word.startswith("--config-dir="):
            found.append(word)
        elif word == "--config-dir":
            found += words[position : position + 2]
    return found


def _replicate_words(study: StudyRecord) -> list[str]:
    words = [f"{key}={','.join(map(shown, values))}" for key, values in study.replicates.items()]
    keys = list(study.replicates)
    return words if keys == ["seed"] else [*words, f"study.replicates=[{','.join(keys)}]"]


def _without(row: EffectRow, study: StudyRecord | None) -> list[str] | None:
    """The launch that has this factor, without this level: the same study goes on with the levels that are left.

    None where no level but the baseline would be left, which is a study without the factor, or where several keys
    move together.
    """
    factor = next((each for each in study.factors if each["name"] == row.factor), None) if study else None
    launch = _launch_of({row.factor}, study) if study else None
    if factor is None or launch is None or len(factor["keys"]) != 1:
        return None
    left = [level for level in factor["levels"] if not _is_level(level["level"], row.level)]
    if not any(not level["is_baseline"] for level in left):
        return None
    (key,) = factor["keys"]
    return [*(word for word in launch if _key(word) != key), f"{key}={','.join(level['label'] for level in left)}"]


def _drop(effects: StudyEffects, study: StudyRecord | None) -> Iterator[Suggestion]:
    """Levels that are worse than the baseline."""
    metric = effects.observations.metric.name
    for row in effects.rows:
        if row.verdict == WORSE and row.effect is not None and row.ci_low is not None and row.ci_high is not None:
            yield Suggestion(
                "drop",
                f"{row.factor}={shown(row.level)} is safe to drop: {metric} is {row.effect:+.4g} against the "
                f"baseline {shown(row.baseline)} ({row.ci_low:.4g} to {row.ci_high:.4g}), which is worse"
                f"{_saving(effects, row)}.",
                _without(row, study),
            )


def _saving(effects: StudyEffects, row: EffectRow) -> str:
    """A warning where the worse level is much cheaper, so that dropping it costs something."""
    cheaper = _cheaper(row, _baseline_of(effects, row))
    return f", though it needs {cheaper}" if cheaper else ""


def _equivalent(effects: StudyEffects, study: StudyRecord | None) -> Iterator[Suggestion]:
    """Levels that do not differ by more than the margin: take the cheaper."""
    for row in effects.rows:
        if not (row.verdict or "").startswith(_EQUIVALENT):
            continue
        base = _baseline_of(effects, row)
        cheaper, dearer = _cheaper(row, base), base is not None and _cheaper(base, row)
        level = f"{row.factor}={shown(row.level)}"
        advice = (
            f"take {shown(row.level)}, which needs {cheaper}"
            if cheaper and not dearer
            else f"stay with {shown(row.baseline)}, which needs {dearer}"
            if dearer and not cheaper
            else "choose by anything else"
        )
        margin = effects.options.margin
        yield Suggestion(
            "equivalent",
            f"{level} and the baseline {shown(row.baseline)} are equivalent: they differ by less than "
            f"{margin if margin is None else format(margin, 'g')}; {advice}.",
            None if cheaper and not dearer else _without(row, study),
        )


def _baseline_of(effects: StudyEffects, row: EffectRow) -> EffectRow | None:
    return next((each for each in effects.factor_rows(row.factor) if each.is_baseline), None)


def _cheaper(row: EffectRow, other: EffectRow | None) -> str:
    """In what a level is cheaper than another by more than a little, in words; empty if in nothing."""
    parts = []
    for name, words in _COST_WORDS.items():
        mine, its = row.cost.get(name), None if other is None else other.cost.get(name)
        if mine is not None and its and mine < its * (1 - _MUCH_CHEAPER):
            parts.append(f"{1 - mine / its:.0%} {words}")
    return ", ".join(parts)


def _listed(rows: Sequence[EffectRow]) -> str:
    return ", ".join(f"{row.factor}={shown(row.level)}" for row in rows)
