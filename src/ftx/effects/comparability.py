"""What differs between the runs of a study besides its factors, by arm; and what follows from a factor itself."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ftx.config.keys import flat
from ftx.design.plan import BASELINE
from ftx.effects.observations import Problem
from ftx.record.run_record import RunRecord, alterations, forced_resumes, moved_surroundings


@dataclass(frozen=True)
class Aspect:
    """Something that must be the same in all runs; `keys` are the settings that decide it."""

    name: str
    value: Callable[[RunRecord], Hashable]
    keys: tuple[str, ...] = ()
    follows: bool = False
    """Whether any factor may move it, as training moves the number of tokens."""


def _config(key: str) -> Callable[[RunRecord], Hashable]:
    return lambda record: str(flat(record.config).get(key))


def _content(split: str) -> Callable[[RunRecord], Hashable]:
    return lambda record: (record.dataset.get("content") or {}).get(split, {}).get("any_order")


def _diff(record: RunRecord) -> Hashable:
    code = record.code.get("config") or {}
    return (code.get("commit"), code.get("dirty"), code.get("patch_sha256"))


def _versions(record: RunRecord) -> Hashable:
    return tuple(sorted((name, version) for name, version in record.versions.items() if name != "ftx"))


ASPECTS = (
    Aspect("dataset", lambda record: record.dataset["sha256"], ("data",)),
    Aspect("training rows", _content("train"), ("data",)),
    Aspect("commit or uncommitted changes", _diff),
    Aspect("ftx's own code", lambda record: (record.code.get("ftx") or {}).get("sources")),
    Aspect("versions", _versions),
    Aspect(
        "device", lambda record: (record.hardware["accelerator"], record.hardware["device_name"]), ("hardware.device",)
    ),
    Aspect("precision", _config("hardware.precision"), ("hardware.precision", "hardware", "model.dtype")),
    Aspect("threads", _config("hardware.threads"), ("hardware.threads", "hardware")),
    Aspect(
        "attention kernel",
        lambda record: record.hyperparameters.get("model.attn_implementation"),
        ("model.attn_implementation", "model"),
    ),
    Aspect("template", lambda record: record.dataset.get("template_sha256"), ("model", "data", "model.name")),
    Aspect("gradient checkpointing", _config("hardware.gradient_checkpointing"), ("hardware.gradient_checkpointing",)),
    Aspect("effective batch", lambda record: record.cost["effective_batch"], ("optim.batch_size",)),
    Aspect("trained tokens", lambda record: record.cost["trained_tokens"], follows=True),
    Aspect("finished steps", lambda record: record.cost["steps"], follows=True),
)


def _measured_on(record: RunRecord) -> Hashable:
    """The rows that were measured on; for a loss also which tokens of them, which a score does not look at."""
    splits = ("validation", "test")
    content = record.dataset.get("content") or {}
    of_tokens = str(record.result["metric"] or "eval_").startswith("eval_")
    tokens = [content.get(split, {}).get("tokens") for split in splits] if of_tokens else []
    return (*(_content(split)(record) for split in splits), *tokens)


EVALUATION = Aspect("evaluation rows", _measured_on)


def comparability(
    runs: Sequence[tuple[str, RunRecord]], factor_keys: Mapping[str, Sequence[str]]
) -> tuple[list[Problem], set[str]]:
    """Findings, and the ids of runs that were measured on other rows than most and must not be averaged with them.

    Args:
        runs: arm and record of every run of the study.
        factor_keys: the keys of each factor.
    """
    finished = [(arm, record) for arm, record in runs if record.status == "finished"]
    problems, left_out = _other_evaluation(finished)
    keys = [key for keys in factor_keys.values() for key in keys]
    for aspect in ASPECTS:
        problems += _differences(aspect, finished, keys)
    return [*problems, *_resumed(finished)], left_out


def _resumed(runs: Sequence[tuple[str, RunRecord]]) -> Iterator[Problem]:
    """Runs that are no longer one run of their settings, or were moved on the way."""
    for what, found in (
        ("resumed with resume_force=true", forced_resumes),
        ("resumed with other settings than they began with", alterations),
        ("resumed with other code, versions or device than they began with", moved_surroundings),
    ):
        marked = [(arm, record, said) for arm, record in runs if (said := found(record))]
        if marked:
            detail = "; ".join(dict.fromkeys(f"{arm}: {', '.join(said)}" for arm, _, said in marked))
            yield Problem("resumed", f"{what}: {detail}", tuple(record.run_id for _, record, _ in marked))


def _other_evaluation(runs: Sequence[tuple[str, RunRecord]]) -> tuple[list[Problem], set[str]]:
    usual = _usual([(arm, EVALUATION.value(record)) for arm, record in runs])
    other = [(arm, record.run_id) for arm, record in runs if EVALUATION.value(record) != usual]
    if not other:
        return [], set()
    detail = f"{_arms(other)}: measured on other rows or tokens than the rest, so not compared"
    return [Problem("evaluation", detail, tuple(run for _, run in other))], {run for _, run in other}


def _differences(aspect: Aspect, runs: Sequence[tuple[str, RunRecord]], keys: Sequence[str]) -> list[Problem]:
    values = [(arm, aspect.value(record)) for arm, record in runs]
    if len({value for _, value in values}) < 2:
        return []
    usual = _usual(values)
    other = [
        (arm, record.run_id, value) for (arm, record), (_, value) in zip(runs, values, strict=True) if value != usual
    ]
    named = tuple(run for _, run, _ in other)
    detail = f"{aspect.name} differ{'' if aspect.name.endswith('s') else 's'}: {_described(values, usual)}"
    stopped = aspect.follows and all(record.stop_reason for _, record in runs if aspect.value(record) != usual)
    if stopped or _follows(aspect, values, keys):
        return [Problem("follows", f"follows from the factor: {detail}", named)]
    return [Problem("differs", detail, named)]


def _follows(aspect: Aspect, values: Sequence[tuple[str, Hashable]], keys: Sequence[str]) -> bool:
    """Whether the factor itself moves the aspect: its setting, or a consequence, the same in all runs of an arm."""
    by_arm: dict[str, set[Hashable]] = {}
    for arm, value in values:
        by_arm.setdefault(arm, set()).add(value)
    constant = all(len(found) == 1 for found in by_arm.values())
    own = any(key == mine or key.startswith(f"{mine}.") for mine in aspect.keys for key in keys)
    return constant and (aspect.follows or own)


def _usual(values: Sequence[tuple[str, Hashable]]) -> Hashable:
    """The baseline's commonest value; without a baseline, everybody's."""
    base = [value for arm, value in values if arm == BASELINE] or [value for _, value in values]
    return Counter(base).most_common(1)[0][0] if base else None


def _described(values: Sequence[tuple[str, Hashable]], usual: Hashable) -> str:
    """Arms with values that people can read; hashes and tuples only as arms."""
    parts: dict[str, None] = {}
    for arm, value in values:
        if value != usual:
            parts[f"{arm}: {value}" if _readable(value) else f"{arm}{_which(value, usual)}"] = None
    rest = f" ({BASELINE}: {usual})" if _readable(usual) else ""
    return ", ".join(parts) + rest


def _which(value: Hashable, usual: Hashable) -> str:
    """Of two sets of versions, the packages that differ: `(torch 2.12)`."""
    if not (isinstance(value, tuple) and isinstance(usual, tuple)):
        return ""
    pairs = [each for each in value if isinstance(each, tuple) and len(each) == 2 and each not in usual]
    return f" ({', '.join(f'{name} {version}' for name, version in pairs)})" if pairs else ""


def _readable(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) < 40)


def _arms(runs: Sequence[tuple[str, str]]) -> str:
    return ", ".join(dict.fromkeys(arm for arm, _ in runs))
