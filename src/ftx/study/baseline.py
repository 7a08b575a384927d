"""The baseline of a study as overrides that stand for themselves, whatever study file they came from."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from ftx.config.axes import Sweep, typed_value
from ftx.config.command_line import as_hydra_reads
from ftx.config.compose import Composer
from ftx.config.keys import flat, schema_keys
from ftx.config.overrides import is_hydras
from ftx.config.schema import StudyConfig
from ftx.errors import ConfigError
from ftx.launch.slots import cores, threads_per_job


def baseline_words(
    composer: Composer, sweep: Sweep, options: Mapping[str, Any], study: StudyConfig
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The complete overrides of the baseline, without replicate keys, and notes for people.

    Args:
        composer: of the command line.
        sweep: its fixed overrides and axes.
        options: the chosen option of every config group.
        study: the study's settings.
    """
    hydras = [word for word in sweep.fixed if is_hydras(key_of(word))]
    mine = [word for word in sweep.fixed if not is_hydras(key_of(word)) and not _is_the_studys(word, study)]
    words = (*_set_by_the_study_file(composer, sweep.fixed, [*hydras, *mine], options), *mine)
    first_levels, notes = _first_levels(composer, words, sweep, study)
    words = (*words, *first_levels)
    swept = {axis.key for axis in sweep.axes}
    if composer.at(words).config.hardware.threads is None and "hardware.threads" not in swept:
        words = (*words, f"hardware.threads={threads_per_job(cores())}")
    return words, notes


def key_of(word: str) -> str:
    """The key or group of an override, without Hydra's signs in front."""
    return word.partition("=")[0].lstrip("+~")


def _is_the_studys(word: str, study: StudyConfig) -> bool:
    return key_of(word).partition(".")[0] == "study" or key_of(word) in study.replicates


def _set_by_the_study_file(
    composer: Composer, fixed: Sequence[str], mine: Sequence[str], options: Mapping[str, Any]
) -> tuple[str, ...]:
    """Overrides that do what the study file does: the groups it chooses, then the keys it sets."""
    if options.get("study") is None:
        return ()
    full = composer.find(fixed).composed
    typed = {key_of(word) for word in mine}
    before = composer.find(mine).options
    groups = tuple(
        f"{group}={typed_value(option)}"
        for group, option in options.items()
        if group != "study" and group not in typed and before.get(group) != option
    )
    wanted, had = (_as_composed(composed) for composed in (full, composer.find([*groups, *mine]).composed))
    kept = typed | set(full.study.replicates)
    keys = [key for key, value in wanted.items() if key not in kept and had.get(key) != value]
    return groups + tuple(as_hydra_reads(f"{key}={typed_value(wanted[key])}") for key in keys)


def _as_composed(composed: DictConfig) -> dict[str, Any]:
    """A run's settings by dotted name, before anything follows from them."""
    settings = cast(dict[str, Any], OmegaConf.to_container(composed, resolve=False))
    return flat({name: value for name, value in settings.items() if name not in ("study", "hydra")})


def _first_levels(
    composer: Composer, words: tuple[str, ...], sweep: Sweep, study: StudyConfig
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Swept keys that have no value of their own, such as data.path: their first level is the baseline."""
    try:
        _ = composer.at(words).config
    except ConfigError:
        missing = [axis for axis in sweep.axes if axis.key not in study.replicates and _has_no_default(axis.key)]
        if not missing:
            raise
        return (
            tuple(axis.override(axis.values[0]) for axis in missing),
            tuple(
                f"{axis.key} has no value of its own: its first level, {axis.values[0]}, is the baseline's"
                for axis in missing
            ),
        )
    return (), ()


def _has_no_default(key: str) -> bool:
    return key in schema_keys() and schema_keys()[key].default is None
