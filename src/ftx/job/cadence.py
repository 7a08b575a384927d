"""When a run evaluates and saves, and how long it warms up, in optimiser steps."""

import math

from ftx.config.schema import RunConfig


def steps_per_epoch(config: RunConfig, rows: int) -> int:
    """Optimiser steps in one pass over the training rows; the last may hold fewer rows."""
    return math.ceil(rows / config.optim.batch_size)


def total_steps(config: RunConfig, rows: int) -> int:
    """Optimiser steps of the whole run."""
    return config.optim.max_steps or math.ceil(steps_per_epoch(config, rows) * config.optim.epochs)


def warmup_steps(config: RunConfig, rows: int) -> int:
    """Steps spent rising to the peak: the ratio rounded up, but never so many that the peak is not reached."""
    total = total_steps(config, rows)
    return min(math.ceil(config.optim.warmup_ratio * total), total - 1)


def evaluation_steps(config: RunConfig, rows: int) -> list[int]:
    """The optimiser steps after which the run is evaluated and saved; the last step is always among them."""
    return cadence(steps_per_epoch(config, rows), total_steps(config, rows), config.checkpoint.every_epochs)


def cadence(per_epoch: int, total: int, every_epochs: float) -> list[int]:
    """Every so many epochs, at most once a step, and at the end."""
    interval = max(1.0, per_epoch * every_epochs)
    count = int(total / interval + 1e-9)
    return sorted({min(total, round(interval * number)) for number in range(1, count + 1)} | {total})
