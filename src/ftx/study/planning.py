"""From a command line to the trials of a study, each with its complete overrides, configuration and fingerprint."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from omegaconf import OmegaConf

from ftx.config.axes import Sweep, levels_of, split_axes, typed_value, with_file_axes
from ftx.config.command_line import CommandLine, group_options
from ftx.config.compose import Composed, Composer, Found, to_study_config
from ftx.config.keys import GROUPS, flat
from ftx.config.overrides import override_problems, parsed
from ftx.config.schema import RunConfig, StudyConfig
from ftx.config.values import shown
from ftx.design.factors import Axis, factors_of
from ftx.design.plan import BASELINE, Arm, Design, Replicate, Settings, plan, replicates_of
from ftx.errors import ConfigError
from ftx.job.hardware import Machine, ask_apart, resolve_hardware
from ftx.job.preparation import Inputs
from ftx.launch.slots import make_slots, visible_gpus
from ftx.record.layout import safe_name
from ftx.study.baseline import baseline_words, key_of
from ftx.study.identities import Identities

OWN_SWEEPER = "hydra_plugins.ftx_sweeper.ofat_sweeper.OfatSweeper"
OWN_LAUNCHER = "hydra_plugins.ftx_launcher.pool_launcher.PoolLauncher"
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
    slots: int
    """Runs at a time."""
    device: tuple[str, str | None]
    """Accelerator and device name, as a record of a run has them."""
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


@dataclass(frozen=True)
class Sketch:
    """A study that is composed and designed: no file was read and nothing heavy imported."""

    study: StudyConfig
    design: Design
    base: tuple[str, ...]
    """The overrides that every trial shares, as Hydra must see them."""
    start: Composed
    """The baseline."""
    options: Mapping[str, Any]
    launcher: str
    """The class of Hydra's launcher."""
    slots: int
    notes: tuple[str, ...]


def sweeper_of(composer: Composer) -> str:
    """The class of Hydra's sweeper that the command line, a study file or the person's conf/ asks for."""
    return composer.find(composer.fixed_words()).sweeper


def sketch_study(line: CommandLine, composer: Composer) -> Sketch:
    """Compose the baseline and every level, and design the study.

    Raises:
        ConfigError: anything wrong with the study or with the configuration of an arm.
    """
    typed = split_axes(composer.words)
    found = composer.find(composer.fixed_words())
    study = to_study_config(found.composed)
    sweep = with_file_axes(typed, study.axes)
    _refuse_wrong_axes(sweep, study, line)
    _refuse_unheard(study, found.launcher)
    base, notes = baseline_words(composer, sweep, found.options, study)

    def settings(overrides: Sequence[str]) -> Settings:
        return composer.at(base, overrides).settings()

    start = composer.at(base)
    factors = factors_of([axis for axis in sweep.axes if axis.key not in study.replicates], study.coupled)
    repeated = [_replicate_axis(key, sweep, found) for key in study.replicates]
    design = plan(study.design, factors, replicates_of(repeated), settings)
    hardware = start.config.hardware
    slots = make_slots(
        None if study.slots == "auto" else int(study.slots),
        device=hardware.device,
        gpus=visible_gpus() if hardware.device in ("auto", "cuda") else [],
        per_job=study.devices_per_job,
        threads=hardware.threads,
    )
    return Sketch(
        study=study,
        design=design,
        base=base,
        start=start,
        options=found.options,
        launcher=found.launcher,
        slots=len(slots) if found.launcher == OWN_LAUNCHER else 1,
        notes=(*notes, *_twice(repeated), *_notes(design, start)),
    )


def plan_study(sketch: Sketch, composer: Composer) -> StudyPlan:
    """Read data and models, and identify every trial; nothing is written.

    Raises:
        ConfigError: data or model that an arm cannot run with; every such problem at once.
    """
    identities, machines = Identities(), cache(ask_apart)
    found = [_trial(composer, sketch.base, *pair, identities, machines) for pair in sketch.design.trials]
    baseline = resolve_hardware(sketch.start.config, machines)
    machine = machines(sketch.start.config.hardware.device)
    alone = identities.of(baseline, "baseline")
    identities.raise_problems()
    assert alone is not None
    _, prints = alone
    fingerprint = _sha256([sketch.design.kind, prints["train"], prints["evaluation"]])
    return StudyPlan(
        name=sketch.study.name or _default_name(sketch.options.get("study"), sketch.design, fingerprint),
        study=sketch.study,
        design=sketch.design,
        fixed=tuple(map(_as_typed, sketch.base)),
        baseline=baseline,
        options=sketch.options,
        slots=sketch.slots,
        device=(machine.accelerator, machine.device_name),
        fingerprint=fingerprint,
        trials=tuple(trial for trial in found if trial is not None),
        notes=(*sketch.notes, *identities.notes(), *_measured_elsewhere(found, baseline.metric.name)),
    )


def _refuse_wrong_axes(sweep: Sweep, study: StudyConfig, line: CommandLine) -> None:
    """Axes of a study file are looked at as typed ones were."""
    words = [axis.override(",".join(axis.values)) for axis in sweep.axes if axis.key in study.axes]
    problems = override_problems(words, group_options(line), multirun=True)
    if problems:
        raise ConfigError([f"study.axes: {problem}" for problem in problems])


def _refuse_unheard(study: StudyConfig, launcher: str) -> None:
    """Settings that only the pool reads would be ignored in silence by another launcher."""
    if launcher == OWN_LAUNCHER:
        return
    default = StudyConfig()
    names = ("retries", "max_hours", "on_failure", "slots", "devices_per_job")
    given = [name for name in names if getattr(study, name) != getattr(default, name)]
    if given:
        raise ConfigError(
            [f"study.{name} is for hydra/launcher=pool; this study has {launcher}, which knows none" for name in given]
        )


def _replicate_axis(key: str, sweep: Sweep, found: Found) -> Axis:
    """The values of a replicate key: swept, typed, or as the study file and conf/ have it."""
    swept = next((axis for axis in sweep.axes if axis.key == key), None)
    if swept is not None:
        return swept
    typed = next((word for word in sweep.fixed if key_of(word) == key), None)
    value = OmegaConf.select(found.composed, key)
    return Axis(key, levels_of(parsed([typed or f"{key}={typed_value(value)}"])[0]))


def _trial(
    composer: Composer,
    base: tuple[str, ...],
    arm: Arm,
    replicate: Replicate,
    identities: Identities,
    machines: Callable[[str], Machine],
) -> Trial | None:
    more = (*arm.overrides, *replicate.overrides)
    config = resolve_hardware(composer.at(base, more).config, machines)
    found = identities.of(config, f"{arm.label} {replicate.label}")
    if found is None:
        return None
    words = tuple(_as_typed(word) for word in _last_of_each((*base, *more)))
    return Trial(arm, replicate, words, config, *found)


def _twice(axes: Sequence[Axis]) -> Iterator[str]:
    for axis in axes:
        left_out = len(axis.values) - len(set(axis.values))
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


def _measured_elsewhere(trials: Sequence[Trial | None], metric: str) -> Iterator[str]:
    """Arms that cannot be compared: measured on other rows than the baseline, or, for a loss, on other tokens."""
    measured: dict[str, list[Any]] = {}
    for trial in trials:
        if trial is not None:
            content = trial.inputs.data.record["content"]
            names = ("any_order", "tokens") if metric.startswith("eval_") else ("any_order",)
            measured[trial.arm.label] = [
                content[split][name] for split in content if split != "train" for name in names
            ]
    for arm, value in measured.items():
        if value != measured.get(BASELINE, value):
            yield (
                f"{arm} is measured on other rows or tokens than the baseline, so its {metric} will not be compared "
                "(the same data.eval_path, template and supervision for all; or a task score as metric.name)"
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
