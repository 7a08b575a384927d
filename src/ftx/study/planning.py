"""From a command line to the trials of a study, each with its complete overrides, configuration and fingerprint."""

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from ftx.config.axes import Sweep, split_axes, typed_value, with_file_axes
from ftx.config.command_line import CommandLine, as_hydra_reads, group_options
from ftx.config.compose import Composed, Composer, to_study_config
from ftx.config.fingerprint import NEITHER, fingerprints
from ftx.config.keys import GROUPS, WHOLE, flat, schema_keys
from ftx.config.overrides import override_problems
from ftx.config.schema import RunConfig, StudyConfig
from ftx.design.factors import Axis, factors_of
from ftx.design.plan import Arm, Design, Replicate, Settings, plan, replicates_of
from ftx.errors import ConfigError, FtxError
from ftx.job.hardware import resolve_hardware
from ftx.job.preparation import Inputs, check_run, inputs_key, read_inputs
from ftx.launch.slots import cores, threads_per_job
from ftx.record.layout import safe_name

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
    fingerprint: dict[str, str]
    inputs: Inputs

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
    baseline: RunConfig
    """Resolved, hardware included, with the replicate keys as the configuration has them."""
    fixed: tuple[str, ...]
    """The overrides that every trial shares."""
    fingerprint: str
    """Of the baseline without its replicates: two studies of one name must agree in it."""
    options: Mapping[str, Any]
    """The baseline's option of every config group."""
    trials: tuple[Trial, ...]
    notes: tuple[str, ...]

    def typed_level(self, factor: str, arm: Arm) -> Any:
        """The level's value as the configuration has it; for a group its option, for coupled keys all of them."""
        if factor not in arm.levels:
            return None
        keys = next(each.keys for each in self.design.factors if each.name == factor)
        words = arm.levels[factor].overrides
        values = {key: _typed(key, word.partition("=")[2], arm) for key, word in zip(keys, words, strict=True)}
        return values if len(keys) > 1 else next(iter(values.values()))


def sweeper_of(composer: Composer) -> str:
    """The class of Hydra's sweeper that the command line, a study file or the person's conf/ asks for."""
    composed = composer.compose(composer.fixed_words(), with_hydra=True)
    return str(composed.hydra.sweeper._target_)


def study_of(composer: Composer) -> StudyConfig:
    """What the command line and a study file say of the study. Raises ConfigError."""
    return to_study_config(composer.compose(composer.fixed_words()))


def plan_study(line: CommandLine, composer: Composer) -> StudyPlan:
    """Compose, design and identify every trial; nothing is written.

    Raises:
        ConfigError: anything wrong with the study or with the configuration of an arm.
        FtxError: data or model that an arm cannot run with.
    """
    typed = split_axes(composer.words)
    first = composer.compose(typed.fixed, with_hydra=True)
    study = to_study_config(first)
    sweep = with_file_axes(typed, study.axes)
    _refuse_wrong_axes(sweep, study, line)
    choices = {str(group): option for group, option in first.hydra.runtime.choices.items() if group in GROUPS}
    base, sweep, notes = _baseline(composer, sweep, choices, study)

    def settings(overrides: Sequence[str]) -> Settings:
        return composer.at(base, overrides).settings()

    start = composer.at(base)
    factors = factors_of([axis for axis in sweep.axes if axis.key not in study.replicates], study.coupled)
    replicates = replicates_of([_replicate_axis(key, sweep, start) for key in study.replicates])
    design = plan(study.design, factors, replicates, settings)
    identified = _Identities()
    trials = tuple(_trial(composer, base, arm, replicate, identified) for arm, replicate in design.trials)
    identified.raise_problems()
    alone = resolve_hardware(start.config)
    fingerprint = _study_fingerprint(design, identified.fingerprint(alone, "the baseline")["train"])
    identified.raise_problems()
    name = study.name or _default_name(choices.get("study"), design, fingerprint)
    return StudyPlan(
        name=name,
        study=study,
        design=design,
        baseline=alone,
        fixed=tuple(map(_as_typed, base)),
        fingerprint=fingerprint,
        options=choices,
        trials=trials,
        notes=(*notes, *design.notes),
    )


def _refuse_wrong_axes(sweep: Sweep, study: StudyConfig, line: CommandLine) -> None:
    """Axes of a study file are looked at as typed ones were."""
    words = [axis.override(",".join(axis.values)) for axis in sweep.axes if axis.key in study.axes]
    problems = override_problems(words, group_options(line), multirun=True)
    if problems:
        raise ConfigError([f"study.axes: {problem}" for problem in problems])


def _baseline(
    composer: Composer, sweep: Sweep, choices: Mapping[str, Any], study: StudyConfig
) -> tuple[tuple[str, ...], Sweep, list[str]]:
    """The complete overrides of the baseline, without the study's own words and without replicate keys."""
    notes: list[str] = []
    mine = [word for word in sweep.fixed if not _is_the_studys(word) and _key(word) not in study.replicates]
    hydras = [word for word in sweep.fixed if _key(word).startswith("hydra")]
    full = composer.compose(sweep.fixed)
    words = (*_what_the_study_file_sets(composer, full, [*hydras, *mine], choices), *mine)
    words = (*words, *_first_levels(composer, words, sweep, study, notes))
    start = composer.at(words)
    axes = {axis.key for axis in sweep.axes}
    if start.config.hardware.threads is None and "hardware.threads" not in axes:
        words = (*words, f"hardware.threads={threads_per_job(cores())}")
    return words, sweep, notes


def _what_the_study_file_sets(
    composer: Composer, full: DictConfig, mine: Sequence[str], choices: Mapping[str, Any]
) -> tuple[str, ...]:
    """Overrides that stand for the study file, so that a trial needs no study to be composed."""
    typed = {_key(word) for word in mine}
    plain = composer.compose(mine, with_hydra=True)
    before = {str(group): option for group, option in plain.hydra.runtime.choices.items()}
    groups = tuple(
        f"{group}={'null' if option is None else option}"
        for group, option in choices.items()
        if group != "study" and group not in typed and before.get(group) != option
    )
    wanted, had = (_as_composed(composed) for composed in (full, composer.compose([*groups, *mine])))
    replicates = full.study.replicates
    return groups + tuple(
        as_hydra_reads(f"{key}={typed_value(value)}")
        for key, value in wanted.items()
        if key not in typed and key not in replicates and had.get(key) != value
    )


def _as_composed(composed: DictConfig) -> dict[str, Any]:
    """A run's settings by dotted name, before anything follows from them."""
    settings = cast(dict[str, Any], OmegaConf.to_container(composed, resolve=False))
    return flat({name: value for name, value in settings.items() if name not in ("study", "hydra")}, whole=WHOLE)


def _first_levels(
    composer: Composer, words: Sequence[str], sweep: Sweep, study: StudyConfig, notes: list[str]
) -> tuple[str, ...]:
    """Keys that have no value of their own, such as data.path: their first level is the baseline."""
    try:
        composer.at(tuple(words))
    except ConfigError:
        missing = [
            axis
            for axis in sweep.axes
            if axis.key in schema_keys()
            and schema_keys()[axis.key].default is None
            and axis.key not in study.replicates
        ]
        if not missing:
            raise
        notes += [
            f"{axis.key} has no value of its own: the baseline is its first level, {axis.values[0]}" for axis in missing
        ]
        return tuple(axis.override(axis.values[0]) for axis in missing)
    return ()


def _replicate_axis(key: str, sweep: Sweep, start: Composed) -> Axis:
    swept = next((axis for axis in sweep.axes if axis.key == key), None)
    if swept is not None:
        return swept
    typed = next((word for word in sweep.fixed if _key(word) == key), None)
    value = typed.partition("=")[2] if typed else typed_value(flat(asdict(start.config))[key])
    return Axis(key, (value,))


def _trial(
    composer: Composer, base: tuple[str, ...], arm: Arm, replicate: Replicate, identified: "_Identities"
) -> Trial:
    more = (*arm.overrides, *replicate.overrides)
    config = resolve_hardware(composer.at(base, more).config)
    words = tuple(_as_typed(word) for word in _last_of_each((*base, *more)))
    fingerprint = identified.fingerprint(config, f"{arm.label} {replicate.label}")
    return Trial(arm, replicate, words, config, fingerprint, identified.inputs[inputs_key(config)])


class _Identities:
    """Fingerprints of many configurations, whose data and model are read once each; problems are collected."""

    def __init__(self) -> None:
        self.inputs: dict[str, Any] = {}
        self._problems: dict[str, list[str]] = {}

    def fingerprint(self, config: RunConfig, whose: str) -> dict[str, str]:
        """Both fingerprints; empty if this configuration cannot run, which `raise_problems` says."""
        key = inputs_key(config)
        try:
            if key not in self.inputs:
                self.inputs[key] = None
                self.inputs[key] = read_inputs(config)
            inputs = self.inputs[key]
            if inputs is None:
                return {"train": "", "evaluation": ""}
            check_run(config, inputs)
        except FtxError as error:
            self._problems.setdefault(str(error), []).append(whose)
            return {"train": "", "evaluation": ""}
        record = inputs.data.record
        return fingerprints(
            config, weights=inputs.weights, template=record["template_sha256"], content=record["content"]
        )

    def raise_problems(self) -> None:
        """Raise ConfigError with every problem and the first trial that has it."""
        if self._problems:
            raise ConfigError([f"{whose[0]}: {problem}" for problem, whose in self._problems.items()])


def effective_settings(trial: Trial) -> str:
    """What the trial's settings come to here: two trials of equal text train the same steps on the same tokens.

    Warmup and length of training count in steps, the sequence length by the rows and tokens that it leaves.
    """
    from ftx.job.cadence import evaluation_steps, total_steps, warmup_steps

    config, data = copy.deepcopy(trial.config), trial.inputs.data
    rows = len(data.train)
    lengths = data.record["lengths"]["train"]
    steps = (warmup_steps(config, rows), total_steps(config, rows), evaluation_steps(config, rows))
    cut = config.data.max_seq_len if lengths["too_long"] else None
    config.optim = replace(config.optim, warmup_ratio=0.0, epochs=1.0, max_steps=None)
    config.data = replace(config.data, max_seq_len=2)
    same = fingerprints(
        config,
        weights=trial.inputs.weights,
        template=data.record["template_sha256"],
        content=data.record["content"],
    )["train"]
    return json.dumps([same, steps, cut, _unhashed(trial)])


def _unhashed(trial: Trial) -> dict[str, Any]:
    """What the arm changes outside the fingerprint, such as the micro batch size."""
    return {change.key: change.value for change in trial.arm.changes if change.key in NEITHER}


def _study_fingerprint(design: Design, baseline: str) -> str:
    names = [design.kind, sorted(factor.name for factor in design.factors), baseline]
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()


def _default_name(option: str | None, design: Design, fingerprint: str) -> str:
    leaves = [key.rpartition(".")[2] for factor in design.factors for key in factor.keys]
    label = option or "-".join(leaves) or "seeds"
    return f"{safe_name(label)[:60]}-{fingerprint[:_HASH_DIGITS]}"


def _typed(key: str, text: str, arm: Arm) -> Any:
    changed = {change.key: change.value for change in arm.changes}
    return changed.get(key, text)


def _is_the_studys(word: str) -> bool:
    return _key(word).partition(".")[0] in ("study", "hydra") or _key(word).startswith("hydra/")


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")


def _as_typed(word: str) -> str:
    return word.removeprefix("++")


def _last_of_each(words: Sequence[str]) -> Iterator[str]:
    """Of a key that stands twice, the last; groups before keys, so that no group undoes a key."""
    last = {_key(word): word for word in words}
    groups = [word for key, word in last.items() if key in GROUPS]
    yield from groups
    yield from (word for key, word in last.items() if key not in GROUPS)
