"""Evaluations fall where they were asked for, at least once, and always at the end."""

import pytest

from ftx.job.callbacks import cadence_steps


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
    assert cadence_steps(per_epoch, total, every) == expected
