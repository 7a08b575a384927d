"""From a command line to the trials of a study, each with its complete overrides, configuration and fingerprint."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ftx.config.axes import Sweep, split_axes, typed_value, with_file_axes
from ftx.config.command_line import CommandLine, group_options
from ftx.config.compose import Composed, Composer, to_study_config
from ftx.config.keys import GROUPS, flat
from ftx.config.overrides import override_problems, parsed, plain_value
from ftx.config.schema import RunConfig, StudyConfig
from ftx.config.values import converted, shown
from ftx.design.factors import Axis, factors_of
from ftx.design.plan import Arm, Design, Replicate, Settings, plan, replicates_of
from ftx.errors import ConfigError
from ftx.job.hardware import resolve_hardware
from ftx.job.preparation import Inputs
from ftx.record.layout import safe_name
from ftx.study.baseline import baseline_words, key_of
from ftx.study.identities import Identities

OWN_SWEEPER = "hydra_plugins.ftx_sweeper.ofat_sweeper.OfatSweeper"
_HASH_DIGITS = 8


@dataclass(frozen=True)
class Trial:
    """One arm in one replicate, ready to be run by anybody."""

    arm: Arm
    replicate: Replicate
    overrides: tuple[str, ...]
    """Complete, as a person types them."""
    config: RunConfig
    """Resolved, hardware included."""
    inputs: Inputs
    fingerprint: dict[str, str]

    @property
    def name(self) -> str:
        """Arm and replicate, for people."""
        return f"{self.arm.label} {self.replicate.label}"


@dataclass(frozen=True)
class StudyPlan:
    """What a study is and which trials this command asks for."""

    name: str
    study: StudyConfig
    design: Design
    fixed: tuple[str, ...]
    """The overrides that every trial shares, as a person types them."""
    baseline: RunConfig
    """Resolved, hardware included, with the replicate keys as the configuration has them."""
    options: Mapping[str, Any]
    """The baseline's option of every config group."""
    fingerprint: str
    """Of the design's kind and the baseline without its replicates: two launches of one study agree in it."""
    trials: tuple[Trial, ...]
    notes: tuple[str, ...]

    def level(self, factor: str, arm: Arm) -> Any:
        """The arm's level as the configuration has it: for a group its option, for coupled keys all of them."""
        keys = next(each.keys for each in self.design.factors if each.name == factor)
        changed = {change.key: change.value for change in arm.changes}
        typed = {key_of(word): word.partition("=")[2] for word in arm.levels[factor].overrides}
        values = {key: changed.get(key, typed[key]) for key in keys}
        return values if len(keys) > 1 else values[keys[0]]

    def baseline_level(self, factor: str) -> Any:
        """The baseline's value of a factor, in the same form."""
        keys = next(each.keys for each in self.design.factors if each.name == factor)
        settings = flat(asdict(self.baseline))
        values = {key: settings.get(key, self.options.get(key)) for key in keys}
        return values if len(keys) > 1 else values[keys[0]]


def sweeper_of(composer: Composer) -> str:
    """The class of Hydra's sweeper that the command line, a study file or the person's conf/ asks for."""
    return composer.find(composer.fixed_words()).sweeper


def study_of(composer: Composer) -> StudyConfig:
    """What the command line and a study file say of the study. Raises ConfigError."""
    return to_study_config(composer.find(composer.fixed_words()).composed)


def plan_study(line: CommandLine, composer: Composer) -> StudyPlan:
    """Compose, design and identify every trial; nothing is written.

    Raises:
        ConfigError: anything wrong with the study, the configuration of an arm, or its data and model.
    """
    typed = split_axes(composer.words)
    first = composer.find(composer.fixed_words())
    study = to_study_config(first.composed)
    sweep = with_file_axes(typed, study.axes)
    _refuse_wrong_axes(sweep, study, line)
    base, notes = baseline_words(composer, sweep, first.options, study)

    def settings(overrides: Sequence[str]) -> Settings:
        return composer.at(base, overrides).settings()

    start = composer.at(base)
    factors = factors_of([axis for axis in sweep.axes if axis.key not in study.replicates], study.coupled)
    repeated = [_replicate_axis(key, sweep, start) for key in study.replicates]
    replicates = replicates_of([_each_once(axis) for axis in repeated])
    design = plan(study.design, factors, replicates, settings)
    identities = Identities()
    found = [_trial(composer, base, arm, replicate, identities) for arm, replicate in design.trials]
    baseline = resolve_hardware(start.config)
    alone = identities.of(baseline, "baseline")
    identities.raise_problems()
    assert alone is not None
    fingerprint = _sha256([design.kind, alone[1]["train"]])
    return StudyPlan(
        name=study.name or _default_name(first.options.get("study"), design, fingerprint),
        study=study,
        design=design,
        fixed=tuple(map(_as_typed, base)),
        baseline=baseline,
        options=first.options,
        fingerprint=fingerprint,
        trials=tuple(trial for trial in found if trial is not None),
        notes=(*notes, *_twice(repeated), *_notes(design, start)),
    )


def _refuse_wrong_axes(sweep: Sweep, study: StudyConfig, line: CommandLine) -> None:
    """Axes of a study file are looked at as typed ones were."""
    words = [axis.override(",".join(axis.values)) for axis in sweep.axes if axis.key in study.axes]
    problems = override_problems(words, group_options(line), multirun=True)
    if problems:
        raise ConfigError([f"study.axes: {problem}" for problem in problems])


def _replicate_axis(key: str, sweep: Sweep, start: Composed) -> Axis:
    swept = next((axis for axis in sweep.axes if axis.key == key), None)
    if swept is not None:
        return swept
    typed = next((word for word in sweep.fixed if key_of(word) == key), None)
    return Axis(key, (typed.partition("=")[2] if typed else typed_value(flat(asdict(start.config))[key]),))


def _trial(
    composer: Composer, base: tuple[str, ...], arm: Arm, replicate: Replicate, identities: Identities
) -> Trial | None:
    more = (*arm.overrides, *replicate.overrides)
    config = resolve_hardware(composer.at(base, more).config)
    found = identities.of(config, f"{arm.label} {replicate.label}")
    if found is None:
        return None
    words = tuple(_as_typed(word) for word in _last_of_each((*base, *more)))
    return Trial(arm, replicate, words, config, *found)


def _each_once(axis: Axis) -> Axis:
    """The axis without repetitions, however they are spelled."""
    unique = {repr(_value(axis, text)): text for text in reversed(axis.values)}
    return replace(axis, values=tuple(text for text in axis.values if unique[repr(_value(axis, text))] is text))


def _value(axis: Axis, text: str) -> Any:
    return converted(axis.key, plain_value(parsed([axis.override(text)])[0].value()))


def _twice(axes: Sequence[Axis]) -> Iterator[str]:
    for axis in axes:
        left_out = len(axis.values) - len(_each_once(axis).values)
        if left_out:
            yield f"{axis.key}={','.join(axis.values)} repeats {left_out} of its values: each is one replicate"


def _notes(design: Design, start: Composed) -> Iterator[str]:
    settings = flat(asdict(start.config))
    for name, label, twin in design.repeated:
        yield f"{name}={label} is the same setting as {name}={twin}: one level"
    for factor in design.factors:
        if design.baseline_levels[factor.name] is None:
            values = ", ".join(f"{key}={shown(settings[key])}" for key in factor.keys if key in settings)
            listed = ", ".join(level.label for level in factor.levels)
            yield (
                f"The baseline ({values or f'without {factor.name}'}) is not among the levels of {factor.name} "
                f"({listed}); it is run too."
            )


def _default_name(option: str | None, design: Design, fingerprint: str) -> str:
    leaves = [key.rpartition(".")[2] for factor in design.factors for key in factor.keys]
    label = option or "-".join(leaves) or "seeds"
    factors = sorted(factor.name for factor in design.factors)
    return f"{safe_name(label)[:60]}-{_sha256([fingerprint, *factors])[:_HASH_DIGITS]}"


def _sha256(parts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _as_typed(word: str) -> str:
    return word.removeprefix("++")


def _last_of_each(words: Sequence[str]) -> Iterator[str]:
    """Of a key that stands twice, the last; groups before keys."""
    last = {key_of(word): word for word in words}
    yield from (word for key, word in last.items() if key in GROUPS)
    yield from (word for key, word in last.items() if key not in GROUPS)
