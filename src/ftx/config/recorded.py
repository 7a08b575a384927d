"""The configuration of a run that is there already: as its record has it, with what was typed put on top."""

import copy
import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from ftx.config.checks import TEMPLATES
from ftx.config.compose import run_config_of
from ftx.config.keys import FREE_NODES, GROUPS, is_free, schema_keys
from ftx.config.overrides import is_hydras, override_problems, parsed, plain_value
from ftx.config.resolve import paths_of
from ftx.config.schema import RunConfig
from ftx.errors import ConfigError

_STAYS = ("name", "output_root")
_FILES = ("data.path", "data.eval_path", "data.test_path", "data.template", "model.name")


def recorded_config(settings: Mapping[str, Any], words: Sequence[str], started_in: str | None, verb: str) -> RunConfig:
    """The checked configuration of a record with overrides on top.

    Args:
        settings: a record's `config`, nested.
        words: overrides, single keys of a run.
        started_in: the folder that relative paths in `settings` are meant from; they are used as they are where they
            exist from here too.
        verb: `resume` or `reproduce`, for messages.

    Raises:
        ConfigError: overrides that are wrong or cannot be put on a recorded configuration; a record whose settings this
            ftx does not know; or settings that contradict each other.
    """
    problems = override_problems(words, dict.fromkeys(GROUPS, ()), multirun=False)
    problems += [_misplaced(word, verb) for word in words if _is_misplaced(word)]
    if problems:
        raise ConfigError([problem for problem in dict.fromkeys(problems) if "no such option" not in problem])
    found = copy.deepcopy(dict(settings))
    for name in _FILES:
        _put(found, name, _from_here(name, _get(found, name), started_in))
    _refuse_unasked_code(found, words, verb)
    for override in parsed(words):
        _put(found, override.key_or_group, plain_value(override.value()))
    return run_config_of(found)


def _is_misplaced(word: str) -> bool:
    name = _key(word)
    return name in GROUPS or name in _STAYS or is_hydras(name) or name.startswith("study")


def _misplaced(word: str, verb: str) -> str:
    name = _key(word)
    if name in _STAYS:
        return f"{word}: with {verb}= the run directory is given; leave it out"
    if name in GROUPS:
        return f"{word}: beside {verb}= settings come from run.json, and only single keys go on top ({name}.KEY=VALUE)"
    return f"{word}: has no meaning beside {verb}=, which starts no study and goes without Hydra; leave it out"


def _key(word: str) -> str:
    return word.lstrip("+~").partition("=")[0].replace("/", ".").split("@")[0]


def _refuse_unasked_code(settings: Mapping[str, Any], words: Sequence[str], verb: str) -> None:
    """A record may come from anybody: that it once was trusted is no reason to run the code of a model."""
    if _get(settings, "model.trust_remote_code") and "model.trust_remote_code" not in map(_key, words):
        raise ConfigError(
            [
                f"model.trust_remote_code=true stands in the record: type it beside {verb}= if you trust the "
                f"Python code that comes with {_get(settings, 'model.name')}"
            ]
        )


def _from_here(name: str, value: Any, started_in: str | None) -> Any:
    """Relative paths that lead nowhere from here, from where the run was started."""
    if started_in is None or value is None or (name == "data.template" and value in TEMPLATES):
        return value
    moved = [_path_from_here(path, Path(started_in)) for path in paths_of(value)]
    return moved if isinstance(value, list) else moved[0]


def _path_from_here(path: str, started_in: Path) -> str:
    given = Path(path).expanduser()
    there = started_in / given
    return str(there) if not given.is_absolute() and not given.exists() and there.exists() else path


def _get(settings: Mapping[str, Any], name: str) -> Any:
    *sections, leaf = name.split(".")
    try:
        return reduce(operator.getitem, sections, settings).get(leaf)
    except (KeyError, AttributeError, TypeError):
        return None


def _put(settings: dict[str, Any], name: str, value: Any) -> None:
    """Set one key; inside a free node, where a name may have dots of its own, the node's key."""
    assert name in schema_keys() or is_free(name), name
    node = next((node for node in FREE_NODES if name.startswith(f"{node}.")), None)
    *sections, leaf = name.split(".") if node is None else [*node.split("."), name.removeprefix(f"{node}.")]
    reduce(lambda inner, key: inner.setdefault(key, {}), sections, settings)[leaf] = value
