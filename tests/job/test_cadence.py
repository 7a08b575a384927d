"""Evaluations fall where they were asked for, at least once, and always at the end."""

import pytest

from ftx.config.schema import OptimConfig, RunConfig
from ftx.job.cadence import cadence, total_steps, warmup_steps


@pytest.mark.parametrize(
    ("per_epoch", "total", "every", "expected"),
    [
        (20, 60, 1.0, [20, 40, 60]),
        (20, 60, 0.5, [10, 20, 30, 40, 50, 60]),
        (20, 60, 2.0, [40, 60]),
        (20, 60, 10.0, [60]),
        (20, 7, 1.0, [7]),
        (3, 6, 0.1, [1, 2, 3, 4, 5, 6]),
        (7, 21, 0.5, [4, 7, 10, 14, 18, 21]),
    ],
)
def test_cadence(per_epoch: int, total: int, every: float, expected: list[int]) -> None:
    assert cadence(per_epoch, total, every) == expected


@pytest.mark.parametrize(
    ("optim", "total", "warmup"),
    [
        (OptimConfig(), 60, 2),
        (OptimConfig(warmup_ratio=0.0), 60, 0),
        (OptimConfig(epochs=0.5), 10, 1),
        (OptimConfig(max_steps=1), 1, 0),
        (OptimConfig(max_steps=3, warmup_ratio=0.99), 3, 2),
    ],
)
def test_the_peak_is_always_reached(optim: OptimConfig, total: int, warmup: int) -> None:
    config = RunConfig(optim=optim)
    assert total_steps(config, rows=156) == total
    assert warmup_steps(config, rows=156) == warmup
