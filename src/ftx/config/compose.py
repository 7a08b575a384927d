"""From a command line to a `RunConfig`: parse, compose, check everything, name every problem at once.

Nothing here writes to disk or imports torch. `RunConfig` leaves this module fully resolved but for what only
the machine knows (`ftx.job.hardware`).
"""

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from itertools import islice, product
from pathlib import Path
from typing import Any, cast

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ftx.config.checks import cross_field_problems
from ftx.config.keys import FREE_NODES, GROUPS, PROSE, flat, is_free, is_known, schema_keys, section_names, unknown_key
from ftx.config.resolve import resolve
from ftx.config.schema import RunConfig
from ftx.config.values import shown, value_problem
from ftx.errors import ConfigError

CONFIG_NAME = "train"

MOST_COMBINATIONS_CHECKED = 50

_SWITCHES = {"-m": "multirun", "--multirun": "multirun", "-h": "help", "--help": "help", "--json": "json"}
# Hydra's views of a configuration. Its other flags choose another program than ftx's and are refused.
_VIEWS = {"--cfg": "job", "-c": "job", "--info": "all", "-i": "all"}
_VIEW_OPTIONS = ("job", "hydra", "all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
_VIEW_FLAGS = ("--resolve", "--hydra-help", "--version")
_NOT_OURS = ("hydra.run.dir", "hydra.job.chdir", "hydra.output_subdir", "hydra.mode")


@dataclass
class CommandLine:
    """What a person typed, sorted."""

    overrides: list[str] = field(default_factory=list)
    multirun: bool = False
    help: bool = False
    json: bool = False
    config_dir: str | None = None
    view: list[str] = field(default_factory=list)


def parse_command_line(arguments: Sequence[str]) -> CommandLine:
    """Sort arguments into overrides, our flags and Hydra's, wherever they stand.

    Raises:
        ConfigError: a flag that ftx does not know, or one without its value.
    """
    line = CommandLine()
    queue = list(arguments)
    while queue:
        word = queue.pop(0)
        flag, equals, attached = word.partition("=")
        if not word.startswith("-"):
            line.overrides.append(word)
        elif word in _SWITCHES:
            setattr(line, _SWITCHES[word], True)
        elif flag in ("--config-dir", "-cd"):
            if not equals and not queue:
                raise ConfigError([f"{flag} needs a folder"])
            line.config_dir = attached if equals else queue.pop(0)
        elif flag in _VIEWS:
            named = attached if equals else queue.pop(0) if queue and queue[0] in _VIEW_OPTIONS else _VIEWS[flag]
            line.view += [flag, named]
        elif word in _VIEW_FLAGS:
            line.view.append(word)
        else:
            raise ConfigError([f"{word}: no such flag; settings are typed as key=value, see --help"])
    if line.json and line.view:
        raise ConfigError([f"--json has no meaning with {line.view[0]}, which prints Hydra's own text"])
    return line


def packaged_config_dir() -> Path:
    """The folder of ftx's own conf/: inside an installed wheel, or at the top of the checkout."""
    package = Path(str(resources.files("ftx")))
    inside = package / "conf"
    return inside if inside.is_dir() else package.parents[1] / "conf"


def own_config_dir(line: CommandLine) -> Path | None:
    """The person's config folder, which adds options to any group: --config-dir, else ./conf."""
    if line.config_dir is not None:
        folder = Path(line.config_dir).expanduser().resolve()
        if not folder.is_dir():
            raise ConfigError([f"--config-dir {line.config_dir}: no such folder"])
        return folder
    beside = Path.cwd() / "conf"
    return beside if beside.is_dir() and beside.resolve() != packaged_config_dir().resolve() else None


def group_options(line: CommandLine) -> dict[str, list[str]]:
    """The options of every group, by the files that hold them; nothing is composed."""
    folders = [packaged_config_dir(), own_config_dir(line)]
    return {
        group: sorted({file.stem for folder in folders if folder for file in (folder / group).glob("*.yaml")})
        for group in GROUPS
    }


def hydra_overrides(line: CommandLine) -> list[str]:
    """The overrides as Hydra must see them.

    Keys of one's own become addable, prose is quoted, and the person's folder is put on the search path.
    """
    overrides = [_as_hydra_reads(word) for word in line.overrides]
    folder = own_config_dir(line)
    if folder is not None:
        overrides.append(f"hydra.searchpath=[{quoted(f'file://{folder}')}]")
    return overrides


def _as_hydra_reads(word: str) -> str:
    name, _, value = word.partition("=")
    if is_free(name):
        return f"++{word}"
    if name in PROSE and value[:1] not in ("'", '"') and value != "null":
        # Commas, quotes and brackets in a sentence are not a list of levels.
        return f"{name}={quoted(value)}"
    return word


def quoted(text: str) -> str:
    """A text as Hydra's override grammar quotes it."""
    # Backslashes count only in front of a quote, the closing one included.
    escaped = re.sub(r"(\\*)(\'|$)", lambda found: found[1] * 2 + (f"\\{found[2]}" if found[2] else ""), text)
    return f"'{escaped}'"


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
    for word, override in zip(overrides, _parsed(overrides), strict=True):
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


def override_problems(overrides: Sequence[str], options: Mapping[str, Sequence[str]], *, multirun: bool) -> list[str]:
    """Every problem that can be seen in the overrides alone, before anything is composed."""
    problems: list[str] = []
    for word in overrides:
        try:
            parsed = _parsed([word])[0]
        except HydraException:
            problems.append(f"{word}: expected key=value (quote values with spaces or special characters)")
            continue
        problems.extend(_override_problems(parsed, options, multirun=multirun))
    return problems


def _override_problems(override: Override, options: Mapping[str, Sequence[str]], *, multirun: bool) -> Iterator[str]:
    name = override.key_or_group
    if name in _NOT_OURS:
        yield f"{name}: ftx makes its run directories itself (output_root=FOLDER, name=NAME), and stays where it starts"
    if name == "hydra" or name.startswith(("hydra.", "hydra/")) or is_free(name):
        return
    if override.is_delete():
        yield f"~{name}: settings cannot be removed; give it another value (null where that is allowed)"
    elif override.is_sweep_override() and not multirun:
        typed = str(override.input_line).partition("=")[2]
        yield (
            f"{name}={typed} lists several values: add -m to run each of them, or write one list as {name}=[{typed}]"
        )
    else:
        values = list(override.sweep_iterator()) if override.is_sweep_override() else [override.value()]
        for value in values:
            if name in GROUPS and not isinstance(value, dict):
                yield from _option_problems(name, value, options[name])
            else:
                yield from _value_problems(name, value, swept=override.is_sweep_override())


def _value_problems(name: str, value: Any, *, swept: bool) -> Iterator[str]:
    if name in section_names():
        if not isinstance(value, dict):
            yield f"{name} is a group of keys, got {shown(value)}: write {name}.KEY=VALUE"
            return
        for inner, item in flat({name: value}).items():
            yield from _leaf_problems(inner, item, swept=swept)
    else:
        yield from _leaf_problems(name, value, swept=swept)


def _leaf_problems(name: str, value: Any, *, swept: bool) -> Iterator[str]:
    if name not in schema_keys():
        yield unknown_key(name)
        return
    problem = value_problem(name, _plain(value))
    if problem and swept and not isinstance(value, list) and "a list" in problem:
        problem = f"{problem}; under -m a bare comma means several runs"
    if problem:
        yield problem


def _option_problems(group: str, option: Any, options: Sequence[str]) -> Iterator[str]:
    if option is not None and str(option) in options:
        return
    close = difflib.get_close_matches(str(option), options, n=1)
    meant = f"; did you mean {group}={close[0]}?" if close else ""
    option = "null" if option is None else shown(option)
    yield f"{group}={option}: no such option, expected one of {', '.join(options)}{meant}"


def _plain(value: Any) -> Any:
    """Hydra's quoted strings and nested values as plain Python."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(value.text) if hasattr(value, "text") else value


def _parsed(words: Iterable[str]) -> list[Override]:
    return OverridesParser.create().parse_overrides(list(words))


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
