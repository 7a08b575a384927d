"""What can be said of overrides one by one, before anything is composed, so that all problems come at once."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException

from ftx.config.keys import GROUPS, WHOLE, flat, is_free, schema_keys, section_names, unknown_key
from ftx.config.values import shown, type_in_words, value_problem

_NEVER_SWEPT = ("name", "notes", "hypothesis", "output_root", "labbook")
_NOT_OURS = ("hydra.run.dir", "hydra.job.chdir", "hydra.output_subdir", "hydra.mode")


def parsed(words: Sequence[str]) -> list[Override]:
    """Overrides as Hydra's grammar reads them. Raises HydraException."""
    return OverridesParser.create().parse_overrides(list(words))


def override_problems(overrides: Sequence[str], options: Mapping[str, Sequence[str]], *, multirun: bool) -> list[str]:
    """Every problem that can be seen in the overrides alone, before anything is composed."""
    problems: list[str] = []
    for word in overrides:
        try:
            override = parsed([word])[0]
        except HydraException:
            problems.append(f"{word}: expected key=value (quote values with spaces or special characters)")
            continue
        problems.extend(_override_problems(override, options, multirun=multirun))
    return list(dict.fromkeys(problems))


def _override_problems(override: Override, options: Mapping[str, Sequence[str]], *, multirun: bool) -> Iterator[str]:
    name, typed = override.key_or_group, override.input_line
    if name in _NOT_OURS:
        yield f"{name}: ftx makes its run directories itself (output_root=FOLDER, name=NAME), and stays where it starts"
    if override.is_sweep_override():
        problem = _sweep_problem(override, multirun=multirun)
        if problem is not None:
            yield problem
            return
    inside_free = is_free(name) and name not in schema_keys()
    if is_hydras(name) or inside_free or (override.is_sweep_override() and not override.is_discrete_sweep()):
        return  # an interval is for a sweeper that searches; ftx's own refuses it (split_axes)
    if (name == "study" or name.startswith("study.")) and not multirun:
        yield f"{typed}: a study is several runs; add -m"
    elif override.is_delete():
        yield f"~{name}: settings cannot be removed; give it another value (null where that is allowed)"
    else:
        for value in override.sweep_iterator() if override.is_sweep_override() else [override.value()]:
            if name in GROUPS and not isinstance(value, dict):
                yield from _option_problems(name, value, options[name])
            else:
                yield from _value_problems(name, value)


def is_hydras(name: str) -> bool:
    """Whether a key or group is for Hydra itself."""
    return name == "hydra" or name.startswith(("hydra.", "hydra/"))


def _sweep_problem(override: Override, *, multirun: bool) -> str | None:
    """What is wrong with listing several values of this key."""
    name, typed = override.key_or_group, override.input_line
    values = str(typed).partition("=")[2]
    if not multirun:
        return (
            f"{name}={values} lists several values: add -m to run each of them, or write one list as {name}=[{values}]"
        )
    if name in ("study", "debug"):
        return f"{typed}: one {name} at a time; start each on its own"
    if name in _NEVER_SWEPT or name.startswith("study.") or is_hydras(name):
        return f"{typed}: a study does not vary {name}; give it one value"
    if override.value_type is ValueType.GLOB_CHOICE_SWEEP:
        return f"{typed}: glob() is not taken, so that a new file adds no level in silence; list the values"
    if _is_list(name) and not all(value is None or isinstance(value, list) for value in override.sweep_iterator()):
        return _list_spelling(name, values, list(override.sweep_iterator()))
    return None


def _is_list(name: str) -> bool:
    """Whether the key takes nothing but lists; of files a comma separates, one each is a level."""
    return name in schema_keys() and type_in_words(schema_keys()[name].type).startswith("a list")


def _list_spelling(name: str, typed: str, values: Sequence[Any]) -> str:
    items = [plain_value(value) for value in values]
    flattened = [item for value in items for item in (value if isinstance(value, list) else [value])]
    levels = ",".join(shown(value if isinstance(value, list) else [value]) for value in items)
    return (
        f"{name}={typed}: under -m a comma separates runs, and {name} takes lists; one list is "
        f"{name}={shown(flattened)}, several levels are {name}={levels}"
    )


def _value_problems(name: str, value: Any) -> Iterator[str]:
    if name in section_names():
        if not isinstance(value, dict):
            yield f"{name} is a group of keys, got {shown(value)}: write {name}.KEY=VALUE"
            return
        for inner, item in flat({name: value}, whole=WHOLE).items():
            yield from _leaf_problems(inner, item)
    else:
        yield from _leaf_problems(name, value)


def _leaf_problems(name: str, value: Any) -> Iterator[str]:
    if name not in schema_keys():
        yield unknown_key(name)
        return
    problem = value_problem(name, plain_value(value))
    if problem:
        yield problem


def _option_problems(group: str, option: Any, options: Sequence[str]) -> Iterator[str]:
    if option is not None and str(option) in options:
        return
    close = difflib.get_close_matches(str(option), options, n=1)
    meant = f"; did you mean {group}={close[0]}?" if close else ""
    yield f"{group}={shown(option)}: no such option, expected one of {', '.join(options)}{meant}"


def plain_value(value: Any) -> Any:
    """Hydra's quoted strings and nested values as plain Python."""
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        return {str(plain_value(key)): plain_value(item) for key, item in value.items()}
    return str(value.text) if hasattr(value, "text") else value
