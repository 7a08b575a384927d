"""From a command line to a `RunConfig`: parse, compose, check everything, name every problem at once.

Nothing here writes to disk or imports torch. `RunConfig` leaves this module fully resolved but for what only
the machine knows (`ftx.job.hardware`).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, product
from typing import Any, cast

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ftx.config.checks import cross_field_problems
from ftx.config.command_line import CommandLine, group_options, hydra_overrides, own_config_dir, packaged_config_dir
from ftx.config.keys import FREE_NODES, flat, is_known, schema_keys, unknown_key
from ftx.config.overrides import override_problems, parsed
from ftx.config.resolve import resolve
from ftx.config.schema import RunConfig
from ftx.config.values import value_problem
from ftx.errors import ConfigError

CONFIG_NAME = "train"
MOST_COMBINATIONS_CHECKED = 50


def register_schema() -> None:
    """Let conf/train.yaml name the typed schema in its defaults list."""
    ConfigStore.instance().store(name="run_schema", node=RunConfig)


def compose_run(line: CommandLine) -> RunConfig:
    """The checked and resolved configuration that the command line asks for; of a sweep, its first job's.

    Raises:
        ConfigError: with every problem found, one line each.
    """
    _refuse_shadowed(line)
    with _hydra():
        overrides = hydra_overrides(line)
        problems = override_problems(overrides, group_options(line), multirun=line.multirun)
        if problems:
            raise ConfigError(problems)
        jobs = list(islice(_jobs(overrides), MOST_COMBINATIONS_CHECKED))
        configs = []
        for words in jobs:
            try:
                configs.append(to_run_config(_composed(words)))
            except ConfigError as error:
                problems += [problem for problem in error.problems if problem not in problems]
        if problems:
            raise ConfigError(problems)
        return configs[0]


def _jobs(overrides: Sequence[str]) -> Iterator[list[str]]:
    """The overrides of every job: all combinations of swept values, as Hydra's basic sweeper runs them."""
    choices = []
    for word, override in zip(overrides, parsed(overrides), strict=True):
        if override.is_sweep_override() and override.is_discrete_sweep():
            key = override.get_key_element()
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        elif not override.is_sweep_override():
            choices.append([word])
    return (list(words) for words in product(*choices))


def _composed(words: list[str]) -> DictConfig:
    try:
        return hydra_compose(config_name=CONFIG_NAME, overrides=words)
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
        raise ConfigError([_in_words(error)]) from error


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
    """The one door out of Hydra: a plain, checked, resolved `RunConfig`.

    Raises:
        ConfigError: unknown keys, wrong types or ranges, or settings that contradict each other.
    """
    try:
        container = OmegaConf.to_container(composed, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError([_in_words(error)]) from error
    settings = cast(dict[str, Any], container)
    settings.pop("hydra", None)
    problems = []
    for name, value in flat(settings, whole=FREE_NODES).items():
        if not is_known(name):
            problems.append(unknown_key(name))
        elif name in schema_keys() and (problem := value_problem(name, value)):
            problems.append(problem)
    if problems:
        raise ConfigError(problems)
    typed = OmegaConf.merge(OmegaConf.structured(RunConfig), settings)
    config = resolve(cast(RunConfig, OmegaConf.to_object(typed)))
    problems = cross_field_problems(config)
    if problems:
        raise ConfigError(problems)
    return config


def _in_words(error: Exception) -> str:
    """Hydra's own message on one line; for a key that does not exist, with the one that was probably meant."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    name = next((line.removeprefix("full_key: ") for line in lines if line.startswith("full_key: ")), "")
    said = " ".join(line for line in lines if "_type=" not in line and not line.startswith("full_key: "))
    if name and not is_known(name):
        return f"{unknown_key(name)} ({said})"
    return f"{name}: {said}" if name else said


@contextmanager
def _hydra() -> Iterator[None]:
    """Hydra's composer over conf/, with its errors raised and not printed."""
    register_schema()
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=str(packaged_config_dir().resolve()), version_base="1.3"):
            yield
    finally:
        if before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = before
