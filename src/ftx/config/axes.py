"""What of a command line is fixed and what is swept: the axes of a study, from the study's file and as typed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from ftx.config.command_line import as_hydra_reads, quoted
from ftx.config.keys import flat, is_free, schema_keys
from ftx.config.overrides import parsed, plain_value
from ftx.config.values import converted, shown, value_problem
from ftx.design.factors import Axis
from ftx.errors import ConfigError


@dataclass(frozen=True)
class Sweep:
    """A command line in two parts; what is typed replaces what the study's file says of the same key."""

    fixed: tuple[str, ...]
    axes: tuple[Axis, ...]


def split_axes(words: Sequence[str]) -> Sweep:
    """Overrides in Hydra's grammar, sorted into fixed ones and axes; of a key typed twice the last counts.

    Raises:
        ConfigError: an interval, which has no levels.
    """
    fixed: dict[str, str] = {}
    axes: dict[str, Axis] = {}
    for word in words:
        override = parsed([word])[0]
        key = str(override.key_or_group)
        fixed.pop(key, None)
        axes.pop(key, None)
        if override.is_sweep_override():
            axes[key] = Axis(key, levels_of(override), prefix=str(override.get_key_element()).removesuffix(key))
        else:
            fixed[key] = word
    return Sweep(tuple(fixed.values()), tuple(axes.values()))


def with_file_axes(typed: Sweep, in_file: Mapping[str, Any]) -> Sweep:
    """Add the axes of the study's file for every key that was not typed.

    Raises:
        ConfigError: an axis that is not a list of values.
    """
    named = {axis.key for axis in typed.axes} | {str(parsed([word])[0].key_or_group) for word in typed.fixed}
    added = []
    for key, values in in_file.items():
        if key not in named:
            word = axis_word(key, values)
            try:
                override = parsed([word])[0]
            except HydraException:
                raise ConfigError([f"study.axes: {word} is not a list of values, such as {key}: 8,16,32"]) from None
            added.append(Axis(key, levels_of(override), prefix="++" if is_free(key) else ""))
    # The file's order first: a typed list that replaces levels does not move its factor.
    order = {key: position for position, key in enumerate(in_file)}
    axes = sorted([*typed.axes, *added], key=lambda axis: order.get(axis.key, len(order)))
    return Sweep(typed.fixed, tuple(axes))


def without_mappings(words: Sequence[str]) -> list[str]:
    """`lora={rank: 4}` as `lora.rank=4`: a group's option and a mapping of its name are two different things."""
    found = []
    for word in words:
        override = parsed([word])[0]
        value = None if override.is_sweep_override() or override.is_delete() else plain_value(override.value())
        if isinstance(value, dict):
            settings = flat({str(override.key_or_group): value})
            found += [as_hydra_reads(f"{key}={typed_value(item)}") for key, item in settings.items()]
        else:
            found.append(word)
    return found


def with_file_words(words: Sequence[str], in_file: Mapping[str, Any]) -> list[str]:
    """Overrides and, for every key that was not typed, the study file's axis as one more: for any sweeper."""
    named = {str(override.key_or_group) for override in parsed(words)}
    added = [axis_word(key, values) for key, values in in_file.items() if key not in named]
    return [*words, *map(as_hydra_reads, added)]


def levels_of(override: Override) -> tuple[str, ...]:
    """The values of an override, one or several, each as it would be typed alone.

    Values of schema keys in one spelling, so that 1 and 1.0 are one level in every launch of a study.

    Raises:
        ConfigError: an interval, which has no levels.
    """
    if override.is_sweep_override() and not override.is_discrete_sweep():
        raise ConfigError(
            [f"{override.input_line}: an interval has no levels; list values, or search it with hydra/sweeper=optuna"]
        )
    swept = override.is_sweep_override()
    values = [plain_value(value) for value in (override.sweep_iterator() if swept else [override.value()])]
    key = str(override.key_or_group)
    if key in schema_keys() and not any(value_problem(key, value) for value in values):
        return tuple(_one_spelling(key, value) for value in values)
    texts = override.sweep_string_iterator() if swept else [override.get_value_element_as_str()]
    return tuple(
        typed_value(value) if value is None or isinstance(value, (float, bool)) else str(text)
        for value, text in zip(values, texts, strict=True)
    )


def _one_spelling(key: str, value: Any) -> str:
    found = converted(key, value)
    return shown(found) if isinstance(found, float) else typed_value(found)


def axis_word(key: str, values: Any) -> str:
    """An axis of a study file as an override: `8,16,32`, or a YAML list of levels."""
    if isinstance(values, str):
        return f"{key}={values}"
    items = values if isinstance(values, list) else [values]
    return f"{key}={','.join(typed_value(item) for item in items)}"


def typed_value(value: Any) -> str:
    """A value as Hydra's grammar writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(typed_value(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{typed_value(item)}" for name, item in value.items()) + "}"
    if isinstance(value, str):
        return value if _stays_itself(value) else quoted(value)
    # 1.0 stays a float for keys of one's own, which have no type.
    return shown(value) if isinstance(value, float) and not value.is_integer() else str(value)


def _stays_itself(text: str) -> bool:
    """Whether Hydra reads the bare text as this very string."""
    try:
        return bool(text) and parsed([f"x={text}"])[0].value() == text
    except HydraException:
        return False
