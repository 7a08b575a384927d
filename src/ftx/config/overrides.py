"""What can be said of overrides one by one, before anything is composed, so that all problems come at once."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from ftx.config.keys import GROUPS, flat, is_free, schema_keys, section_names, unknown_key
from ftx.config.values import shown, value_problem

_NEVER_SWEPT = ("study", "debug", "name", "notes", "hypothesis", "output_root", "labbook")
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
    name = override.key_or_group
    swept = override.is_sweep_override()
    if name in _NOT_OURS:
        yield f"{name}: ftx makes its run directories itself (output_root=FOLDER, name=NAME), and stays where it starts"
    if swept and not override.is_discrete_sweep():
        return  # an interval, for a sweeper that searches; ftx's own refuses it (split_axes)
    if swept and multirun and (name in _NEVER_SWEPT or name.startswith(("study.", "hydra.", "hydra/"))):
        yield f"{override.input_line}: a study does not vary {name}; give it one value"
        return
    if name == "hydra" or name.startswith(("hydra.", "hydra/")) or is_free(name):
        return
    if (name == "study" or name.startswith("study.")) and not multirun:
        yield f"{override.input_line}: a study is several runs; add -m"
    elif override.is_delete():
        yield f"~{name}: settings cannot be removed; give it another value (null where that is allowed)"
    elif swept and not multirun:
        typed = str(override.input_line).partition("=")[2]
        yield (
            f"{name}={typed} lists several values: add -m to run each of them, or write one list as {name}=[{typed}]"
        )
    else:
        values = list(override.sweep_iterator()) if swept else [override.value()]
        for value in values:
            if name in GROUPS and not isinstance(value, dict):
                yield from _option_problems(name, value, options[name])
            else:
                yield from _value_problems(name, value, swept=swept)


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
    problem = value_problem(name, plain_value(value))
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


def plain_value(value: Any) -> Any:
    """Hydra's quoted strings and nested values as plain Python."""
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    return str(value.text) if hasattr(value, "text") else value
