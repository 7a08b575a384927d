"""What changed between a checkpoint and the settings that a run goes on with, and what of it is one run no longer."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ftx.config.fingerprint import NEITHER
from ftx.config.keys import WHOLE, flat
from ftx.config.schema import RunConfig
from ftx.config.values import shown

# Of the settings that move weights or decide among them, those that a person may want to change on the way. They are
# said and recorded. hardware.*: a run may go on with another machine than it began with.
MAY_CHANGE = (
    "optim.epochs",
    "optim.max_steps",
    "checkpoint.every_epochs",
    "early_stop.patience",
    "early_stop.min_delta",
    "metric.secondary",
    "score.metrics",
    "score.max_new_tokens",
    "score.max_examples",
    "hardware.threads",
    "hardware.gradient_checkpointing",
    "hardware.deterministic",
    "model.attn_implementation",
)
# The tensors of a checkpoint fit nothing else.
SHAPES = ("lora.variant", "lora.rank", "lora.target_modules", "optim.name", "model.dtype")
# Where things are and what they are called; said of no run.
_UNSAID = ("output_root", "labbook", "name", "notes", "hypothesis")


@dataclass(frozen=True)
class Change:
    """One setting with another value than before."""

    key: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.key} {shown(self.before)} -> {shown(self.now)}"


def changes(before: Mapping[str, Any], now: RunConfig) -> list[Change]:
    """Every setting that differs, but for names and places.

    Args:
        before: a recorded configuration, nested; keys that it does not have, because they are newer, are not compared.
        now: resolved, hardware included.
    """
    then, settings = flat(before, whole=WHOLE), flat(asdict(now), whole=WHOLE)
    return [
        Change(name, then[name], value)
        for name, value in settings.items()
        if name in then and then[name] != value and name not in _UNSAID
    ]


def forbidden(found: Sequence[Change], primary_metric: str) -> list[Change]:
    """Those that make it another run: what moves weights or is measured, without a reason to change on the way."""
    decides = not primary_metric.startswith("eval_")  # then the scores so far and those to come must be alike
    return [
        change
        for change in found
        if change.key not in (*MAY_CHANGE, *NEITHER) or (decides and change.key.startswith("score."))
    ]


def unforceable(found: Sequence[Change]) -> list[Change]:
    """Those that no force helps with: the checkpoint's tensors have other shapes."""
    return [change for change in found if change.key in SHAPES]
