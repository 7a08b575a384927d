"""Values that follow from others: what a null in the configuration comes to mean."""

import copy
import math
from typing import Any

from ftx.config.schema import RunConfig

LEARNING_RATE_WITH_ADAPTER = 2e-4
LEARNING_RATE_ALL_WEIGHTS = 2e-5
LARGEST_DEFAULT_MICRO_BATCH = 8

# Each variant's scaling, which the derived alpha keeps whatever the rank. standard and dora: the common
# alpha = 2 x rank. pissa: alpha = rank, as its authors train it. rslora divides by the root of the rank;
# 8 is what alpha = 32 means there at rank 16, so that at the default rank only the rule differs.
DEFAULT_SCALING = {"standard": 2.0, "dora": 2.0, "pissa": 1.0, "rslora": 8.0}

METRIC_DIRECTIONS = {"eval_loss": "min", "eval_token_accuracy": "max", "exact_match": "max"}


def scaling(variant: str, rank: int, alpha: float) -> float:
    """The factor in front of the adapter's product: alpha / rank, for rslora alpha / sqrt(rank)."""
    return alpha / math.sqrt(rank) if variant == "rslora" else alpha / rank


def derived_alpha(variant: str, rank: int) -> float:
    """The alpha that gives `variant` its default scaling at this rank."""
    return DEFAULT_SCALING[variant] * (math.sqrt(rank) if variant == "rslora" else rank)


def derived_micro_batch_size(batch_size: int) -> int:
    """The largest divisor of `batch_size` that is at most 8."""
    return max(n for n in range(1, LARGEST_DEFAULT_MICRO_BATCH + 1) if batch_size % n == 0)


def paths_of(value: Any) -> list[str]:
    """The files that `data.path`, `data.eval_path` or `data.test_path` names: of null none, of a text that one."""
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def one_or_many(value: Any) -> Any:
    """A key of files as it is recorded: a list of one file is that file."""
    paths = paths_of(value)
    return paths[0] if len(paths) == 1 else value


def resolve(config: RunConfig) -> RunConfig:
    """A copy of `config` in which everything that follows from other settings is filled in.

    Device, precision and threads follow from the machine and are filled in by `ftx.job.hardware`.
    """
    out = copy.deepcopy(config)
    if out.data_seed is None:
        out.data_seed = out.seed
    if out.metric.direction is None:
        out.metric.direction = METRIC_DIRECTIONS.get(out.metric.name)
    out.lora.target_modules = sorted(set(out.lora.target_modules))  # a set: no order is another adapter
    if out.lora.alpha is None and out.lora.variant != "none":
        out.lora.alpha = derived_alpha(out.lora.variant, out.lora.rank)
    if out.optim.lr is None:
        full = out.lora.variant == "none"
        out.optim.lr = LEARNING_RATE_ALL_WEIGHTS if full else LEARNING_RATE_WITH_ADAPTER
    for name in ("path", "eval_path", "test_path"):
        setattr(out.data, name, one_or_many(getattr(out.data, name)))
    if out.data.weights == [1.0] * len(paths_of(out.data.path)):
        out.data.weights = None  # every row once, as without weights
    if out.hardware.micro_batch_size is None:
        out.hardware.micro_batch_size = derived_micro_batch_size(out.optim.batch_size)
    return out
