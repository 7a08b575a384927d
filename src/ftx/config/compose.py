"""From a command line to a `RunConfig`: parse, compose, check everything, name every problem at once.

Nothing here writes to disk or imports torch. `RunConfig` leaves this module fully resolved but for what only
the machine knows (`ftx.job.hardware`).
"""

import copy
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, reduce
from itertools import islice, product
from typing import Any, cast

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ftx.config.axes import with_file_words, without_mappings
from ftx.config.checks import cross_field_problems, study_problems
from ftx.config.command_line import (
    CommandLine,
    as_hydra_reads,
    group_options,
    own_config_dir,
    packaged_config_dir,
    search_path,
)
from ftx.config.keys import GROUPS, WHOLE, flat, is_free, is_known, schema_keys, unknown_key
from ftx.config.overrides import override_problems, parsed, plain_value
from ftx.config.resolve import resolve
from ftx.config.schema import Composition, RunConfig, StudyConfig
from ftx.config.values import converted, value_problem
from ftx.design.plan import Settings
from ftx.errors import ConfigError

CONFIG_NAME = "train"
MOST_COMBINATIONS_CHECKED = 50


def register_schema() -> None:
    """Let conf/train.yaml name the typed schema in its defaults list."""
    ConfigStore.instance().store(name="run_schema", node=Composition)


def compose_run(line: CommandLine) -> RunConfig:
    """The checked and resolved configuration that the command line asks for; of a sweep, its first job's.

    Raises:
        ConfigError: with every problem found, one line each.
    """
    with open_composer(line) as composer:
        words = composer.words_with_axes() if line.multirun else composer.words
        problems: list[str] = []
        configs = []
        for levels in islice(_combinations(words), MOST_COMBINATIONS_CHECKED):
            try:
                configs.append(composer.at(_fixed(words), levels).config)
            except ConfigError as error:
                problems += [problem for problem in error.problems if problem not in problems]
        if problems:
            raise ConfigError(problems)
        return configs[0]


@dataclass(frozen=True)
class Found:
    """What Hydra made of some overrides: the configuration, the option of every group, and the plugins' classes."""

    composed: DictConfig
    options: dict[str, str | None]
    sweeper: str
    launcher: str


@dataclass(frozen=True)
class Composed:
    """One run's configuration as it was composed: nested plain values, and the same typed."""

    typed: dict[str, Any]
    unresolved: RunConfig

    @cached_property
    def config(self) -> RunConfig:
        """With all that follows filled in. ConfigError: settings that contradict each other."""
        return _checked(resolve(self.unresolved))

    def settings(self) -> Settings:
        """Both by dotted name, for the design of a study."""
        return Settings(flat(self.typed), flat(asdict(self.config)))


class Composer:
    """Composes as often as a study needs it, the same overrides once.

    Args:
        words: the command line's overrides as Hydra must see them.
        search_path: what adds the person's own folder, to all that is composed.
    """

    def __init__(self, words: Sequence[str], search_path: Sequence[str]) -> None:
        self.words = list(words)
        self._search_path = list(search_path)
        self._found: dict[tuple[str, ...], Found] = {}
        self._composed: dict[tuple[str, ...], Composed] = {}

    def fixed_words(self) -> tuple[str, ...]:
        """The overrides that are not swept."""
        return _fixed(self.words)

    def words_with_axes(self) -> list[str]:
        """All overrides, with the axes of the study's file as if they had been typed."""
        return with_file_words(self.words, to_study_config(self.find(self.fixed_words()).composed).axes)

    def find(self, words: Sequence[str]) -> Found:
        """What Hydra makes of these overrides. Raises ConfigError."""
        key = tuple(words)
        if key not in self._found:
            self._found[key] = self._asked_of_hydra(key)
        return self._found[key]

    def at(self, base: Sequence[str], more: Sequence[str] = ()) -> Composed:
        """The configuration of `base` and then `more`.

        Where nothing interpolates, a key among `more` is put into the composed `base`: Hydra would do the same,
        in a hundred times the time.
        """
        words = (*base, *more)
        if words not in self._composed:
            self._composed[words] = self._substituted(base, more) if more else self._by_hydra(words)
        return self._composed[words]

    def _asked_of_hydra(self, words: Sequence[str]) -> Found:
        try:
            overrides = [*self._search_path, *words]
            composed = hydra_compose(config_name=CONFIG_NAME, overrides=overrides, return_hydra_config=True)
        except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
            raise ConfigError([_in_words(error)]) from error
        hydras = composed.hydra
        options = {str(group): option for group, option in hydras.runtime.choices.items() if group in GROUPS}
        plugins = str(hydras.sweeper._target_), str(hydras.launcher._target_)
        with open_dict(composed):
            composed.pop("hydra")
        return Found(composed, options, *plugins)

    def _by_hydra(self, words: Sequence[str]) -> Composed:
        composed = self.find(words).composed
        typed = cast(dict[str, Any], OmegaConf.to_container(composed, resolve=False))
        unresolved = _typed_config(_without_study(_plain_settings(composed)))
        return Composed(_without_study(typed), unresolved)

    def _substituted(self, base: Sequence[str], more: Sequence[str]) -> Composed:
        start = self.at(base)
        overrides = parsed(more)
        plain = all(_replaces(word) for word in overrides)
        if not plain or "${" in repr(start.typed) or any("${" in word for word in more):
            return self._by_hydra([*base, *more])
        typed, unresolved = copy.deepcopy(start.typed), copy.deepcopy(start.unresolved)
        for word in overrides:
            name, value = str(word.key_or_group), plain_value(word.value())
            problem = value_problem(name, value)
            if problem:
                raise ConfigError([problem])
            *sections, leaf = name.split(".")
            reduce(operator.getitem, sections, typed)[leaf] = value
            setattr(reduce(getattr, sections, unresolved), leaf, converted(name, value))
        return Composed(typed, unresolved)


def _replaces(word: Override) -> bool:
    """Whether the override puts one value in the place of another; a mapping of free keys is merged by Hydra."""
    return word.key_or_group in schema_keys() and not is_free(word.key_or_group) and not word.is_sweep_override()


@contextmanager
def open_composer(line: CommandLine) -> Iterator[Composer]:
    """A composer over conf/ and the person's folder, for a command line whose overrides are right one by one.

    Raises:
        ConfigError: with every problem that can be seen before anything is composed.
    """
    _refuse_shadowed(line)
    with _hydra():
        words = [as_hydra_reads(word) for word in line.overrides]
        problems = override_problems(words, group_options(line), multirun=line.multirun)
        if problems:
            raise ConfigError(problems)
        yield Composer(without_mappings(words) if line.multirun else words, search_path(line))


def _fixed(words: Sequence[str]) -> tuple[str, ...]:
    """The overrides that are not swept."""
    return tuple(word for word, override in zip(words, parsed(words), strict=True) if not override.is_sweep_override())


def _combinations(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """All combinations of swept values, as Hydra's basic sweeper runs them; intervals have none to be checked."""
    swept = [override for override in parsed(words) if override.is_sweep_override() and override.is_discrete_sweep()]
    return product(*([f"{one.get_key_element()}={value}" for value in one.sweep_string_iterator()] for one in swept))


def _refuse_shadowed(line: CommandLine) -> None:
    """Hydra would take ftx's own file of the same name, and the person's would change nothing."""
    folder, ours = own_config_dir(line), packaged_config_dir()
    if folder is None:
        return
    files = [file.relative_to(folder) for file in sorted(folder.rglob("*.yaml"))]
    shadowed = [
        file for file in files if (ours / file).is_file() and (ours / file).read_bytes() != (folder / file).read_bytes()
    ]
    if shadowed:
        raise ConfigError([f"{folder / file}: ftx has an option of that name; give yours another" for file in shadowed])


def to_run_config(composed: DictConfig) -> RunConfig:
    """The one door out of Hydra: a plain, checked, resolved `RunConfig`, without what belongs to a study.

    Raises:
        ConfigError: unknown keys, wrong types or ranges, or settings that contradict each other.
    """
    return run_config_of(_without_study(_plain_settings(composed)))


def to_study_config(composed: DictConfig) -> StudyConfig:
    """What the configuration says of the study. Raises ConfigError."""
    settings = {"study": _plain_settings(composed.study)}
    _refuse_wrong(settings)
    typed = OmegaConf.merge(OmegaConf.structured(StudyConfig), settings["study"])
    study = cast(StudyConfig, OmegaConf.to_object(typed))
    problems = study_problems(study)
    if problems:
        raise ConfigError(problems)
    return study


def run_config_of(settings: dict[str, Any]) -> RunConfig:
    """A checked, resolved `RunConfig` out of nested plain settings. Raises ConfigError."""
    return _checked(resolve(_typed_config(settings)))


def _typed_config(settings: dict[str, Any]) -> RunConfig:
    _refuse_wrong(settings)
    typed = OmegaConf.merge(OmegaConf.structured(RunConfig), settings)
    return cast(RunConfig, OmegaConf.to_object(typed))


def _checked(config: RunConfig) -> RunConfig:
    problems = cross_field_problems(config)
    if problems:
        raise ConfigError(problems)
    return config


def _plain_settings(composed: DictConfig) -> dict[str, Any]:
    try:
        return cast(dict[str, Any], OmegaConf.to_container(composed, resolve=True))
    except OmegaConfBaseException as error:
        raise ConfigError([_in_words(error)]) from error


def _without_study(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in ("hydra", "study")}


def _refuse_wrong(settings: Mapping[str, Any]) -> None:
    problems = []
    for name, value in flat(settings, whole=WHOLE).items():
        if not is_known(name):
            problems.append(unknown_key(name))
        elif name in schema_keys() and (problem := value_problem(name, value)):
            problems.append(problem)
    if problems:
        raise ConfigError(problems)


def _in_words(error: Exception) -> str:
    """Hydra's own message on one line; for a key that does not exist, with the one that was probably meant."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    name = next((line.removeprefix("full_key: ") for line in lines if line.startswith("full_key: ")), "")
    said = " ".join(line for line in lines if "_type=" not in line and not line.startswith("full_key: "))
    if name and not is_known(name):
        return f"{unknown_key(name)} ({said})"
    return f"{name}: {said}" if name else said


@contextmanager
def hydra_raises() -> Iterator[None]:
    """Inside the block Hydra raises its errors and does not print them and leave."""
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = before


@contextmanager
def _hydra() -> Iterator[None]:
    """Hydra's composer over conf/."""
    register_schema()
    GlobalHydra.instance().clear()
    with hydra_raises(), initialize_config_dir(config_dir=str(packaged_config_dir().resolve()), version_base="1.3"):
        yield
