"""Whether one value suits one key: type, choices and range, said in words."""

import math
import types
from functools import cache
from typing import Annotated, Any, Union, cast, get_args, get_origin

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ftx.config.keys import Key, schema_keys
from ftx.config.resolve import one_or_many
from ftx.config.schema import Composition, Paths

_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
_BOUND_WORDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def value_problem(name: str, value: Any) -> str | None:
    """Why `value` does not suit the key `name`, or None when it does.

    Text that reads as a number suits a number (`"1e-4"`), as OmegaConf reads it.
    """
    leaf = schema_keys()[name]
    if value is leaf.default or (type(value) is type(leaf.default) and value == leaf.default):
        return None
    if isinstance(value, str) and "${" in value:
        return None  # an interpolation; its value is checked once it is known
    try:
        found = converted(name, value)
    except (OmegaConfBaseException, ValueError, TypeError):
        return f"{name} must be {type_in_words(leaf.type)}, got {shown(value)}{_remedy(leaf)}"
    if found is None:
        return None
    return _choice_problem(leaf, found) or _bound_problem(leaf, found)


def converted(name: str, value: Any) -> Any:
    """`value` as the type of the key `name`; raises where it cannot be that."""
    leaf = schema_keys()[name]
    if leaf.type == Paths:
        return _files(value)
    if isinstance(value, bool) and not _accepts(leaf.type, bool):
        raise ValueError("a truth value is not a number")
    scratch = _scratch()
    OmegaConf.update(scratch, leaf.name, value, merge=False)
    found = OmegaConf.select(scratch, leaf.name)
    return OmegaConf.to_container(found) if OmegaConf.is_config(found) else found


def _files(value: Any) -> Any:
    listed = isinstance(value, list) and value and all(isinstance(path, str) for path in value)
    if not (value is None or isinstance(value, str) or listed):
        raise ValueError("neither a file nor a list of files")
    return one_or_many(value)


@cache
def _scratch() -> DictConfig:
    """A typed node to try values on; building one takes 15 ms, so it is shared."""
    return cast(DictConfig, OmegaConf.structured(Composition))


def _choice_problem(leaf: Key, value: Any) -> str | None:
    if not leaf.choices:
        return None
    for item in value if isinstance(value, list) else [value]:
        if item not in leaf.choices:
            expected = ", ".join(leaf.choices)
            return f"{leaf.name} must be one of {expected}; got {shown(item)}{_remedy(leaf)}"
    return None


def _bound_problem(leaf: Key, value: Any) -> str | None:
    if isinstance(value, list):
        return next(filter(None, (_bound_problem(leaf, item) for item in value)), None)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    tests = {
        "ge": lambda bound: value >= bound,
        "gt": lambda bound: value > bound,
        "le": lambda bound: value <= bound,
        "lt": lambda bound: value < bound,
    }
    if math.isfinite(value) and all(tests[kind](bound) for kind, bound in leaf.bounds.items()):
        return None
    limits = [f"{_BOUND_WORDS[kind]} {shown(bound)}" for kind, bound in leaf.bounds.items()]
    if not math.isfinite(value):
        limits = ["a finite number"]
    return f"{leaf.name} must be {' and '.join(limits)}, got {shown(value)}{_remedy(leaf)}"


def type_in_words(hint: Any) -> str:
    """The type of a key as a person would say it, `int | None` as "a whole number or null"."""
    if get_origin(hint) is Annotated:
        return str(get_args(hint)[1])
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    words = []
    for part in parts:
        if part is type(None):
            words.append("null")
        elif get_origin(part) is list and get_origin(get_args(part)[0]) is list:
            words.append("a list of lists, written [[a,b]]")
        elif get_origin(part) is list:
            words.append(f"a list, written [a,b], of {_WORDS.get(get_args(part)[0], 'values')}")
        else:
            words.append(_WORDS.get(part, "a mapping"))
    return " or ".join(words)


def shown(value: Any) -> str:
    """A value as it would be typed: 16 for 16.0, 1e-4 for 0.0001, null, [a,b], text in quotes only where needed."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, float) and 0 < abs(value) < 1:
        return _shorter(value)
    if isinstance(value, (list, tuple)):
        return f"[{','.join(shown(item) for item in value)}]"
    return repr(value) if isinstance(value, str) and (not value or " " in value) else str(value)


def _shorter(value: float) -> str:
    """0.05, but 1e-3 and 2.5e-4, as people type learning rates."""
    decimal = repr(value)
    mantissa, _, exponent = f"{value:.15e}".partition("e")
    scientific = f"{float(mantissa):.15g}e{int(exponent)}"
    return scientific if len(scientific) < len(decimal) and float(scientific) == value else decimal


def _accepts(hint: Any, kind: type) -> bool:
    return kind is hint or kind in get_args(hint) or hint is Any


def _remedy(leaf: Key) -> str:
    return f" ({leaf.remedy})" if leaf.remedy else ""


def described_keys() -> list[tuple[str, str, str, str]]:
    """Name, default, what is allowed and meaning of every key, for --help."""
    return [(leaf.name, _default_in_words(leaf), _allowed(leaf), leaf.help) for leaf in schema_keys().values()]


def _default_in_words(leaf: Key) -> str:
    if leaf.default is None:
        return "null"
    return f"[{','.join(leaf.default)}]" if isinstance(leaf.default, list) else shown(leaf.default)


def _allowed(leaf: Key) -> str:
    if leaf.choices:
        return " | ".join(leaf.choices)
    limits = [f"{_BOUND_WORDS[kind]} {shown(bound)}" for kind, bound in leaf.bounds.items()]
    return ", ".join([type_in_words(leaf.type), *limits])
