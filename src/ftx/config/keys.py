"""Every key of the schema by its dotted name: what exists, and which real key an unknown one meant."""

import difflib
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, get_type_hints

from ftx.config.aliases import FOREIGN_NAMES
from ftx.config.schema import Composition, RunConfig

FREE_NODES = ("custom", "data.template_kwargs")
WHOLE = (*FREE_NODES, "study.axes")  # one value each, whatever keys it holds
PROSE = ("notes", "hypothesis")
GROUPS = ("model", "lora", "optim", "data", "hardware", "score", "tracking", "study", "debug")


@dataclass(frozen=True)
class Key:
    """One leaf of the schema."""

    name: str
    type: Any
    default: Any
    help: str
    choices: tuple[str, ...]
    bounds: dict[str, float]
    remedy: str


@cache
def schema_keys() -> dict[str, Key]:
    """Every leaf of what Hydra composes, by dotted name, in the order of the schema."""
    return {leaf.name: leaf for leaf in _leaves(Composition, "")}


@cache
def run_keys() -> tuple[str, ...]:
    """Dotted names of the leaves of `RunConfig`: all but the study's."""
    return tuple(leaf.name for leaf in _leaves(RunConfig, ""))


@cache
def section_names() -> frozenset[str]:
    """Dotted names of all nodes that hold keys, such as `optim` and `data.columns`."""
    names = {name.rpartition(".")[0] for name in schema_keys()}
    return frozenset(names - {""})


def _leaves(node: type, prefix: str) -> Iterator[Key]:
    hints = get_type_hints(node, include_extras=True)
    blank = node()
    for item in fields(node):
        name = f"{prefix}{item.name}"
        hint = hints[item.name]
        if is_dataclass(hint):
            yield from _leaves(hint, f"{name}.")  # type: ignore[arg-type]  # a dataclass type, not an instance
        else:
            meta = item.metadata
            yield Key(
                name,
                hint,
                getattr(blank, item.name),
                meta["help"],
                meta["choices"],
                dict(meta["bounds"]),
                meta["remedy"],
            )


def flat(settings: Mapping[str, Any], *, whole: Container[str] = (), prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name; an empty mapping holds none, one named in `whole` counts as one value."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and path not in whole:
            found |= flat(value, whole=whole, prefix=f"{path}.")
        else:
            found[path] = value
    return found


def is_free(name: str) -> bool:
    """Whether `name` is (inside) a node that takes any key."""
    return any(name == node or name.startswith(f"{node}.") for node in FREE_NODES)


def is_known(name: str) -> bool:
    """Whether the dotted `name` is a key or a section of the schema."""
    return name in schema_keys() or name in section_names() or is_free(name)


def unknown_key(name: str) -> str:
    """The message for a key that does not exist, with the real key that was probably meant."""
    return f"{name}: no such key. {suggestion(name)}"


def suggestion(name: str) -> str:
    """What to type instead of the unknown dotted `name`."""
    leaf = name.rpartition(".")[2]
    if leaf in FOREIGN_NAMES:
        return FOREIGN_NAMES[leaf]
    known = schema_keys()
    same_leaf = [other for other in known if other.rpartition(".")[2] == leaf]
    if same_leaf:
        return f"Did you mean {' or '.join(same_leaf)}?"
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6) or _close_leaves(leaf)
    if close:
        return f"Did you mean {close[0]}?"
    return "`python -m ftx.train --help` lists every key; keys of your own go under custom."


def _close_leaves(leaf: str) -> list[str]:
    by_leaf: dict[str, str] = {}
    for name in schema_keys():
        by_leaf.setdefault(name.rpartition(".")[2], name)
    return [by_leaf[match] for match in difflib.get_close_matches(leaf, by_leaf, n=1, cutoff=0.6)]
