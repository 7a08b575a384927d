"""What a tracker must be able to do, and which ones there are."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol


class Tracker(Protocol):
    """Receives what history.jsonl already holds."""

    def start(self, settings: Mapping[str, Any], metrics: Sequence[str]) -> None:
        """Told once, before training, what was set and which metrics will come."""

    def log(self, *, step: int, split: str, metrics: Mapping[str, float], time: float | None = None) -> None:
        """One logged event; `time` in seconds since 1970, None: now."""

    def close(self, final: Mapping[str, float] | None) -> None:
        """The run has ended: finished with these results, or None if it did not finish."""


def open_trackers(backends: Sequence[str], folder: Path, *, again: bool) -> list[Tracker]:
    """The trackers that the configuration names, writing into the run directory.

    Args:
        backends: their names.
        folder: the run directory.
        again: whether the run goes on, and its history will be logged anew from its first event: nothing that a
            tracker had of it before is to be seen any more.
    """
    trackers: list[Tracker] = []
    if "tensorboard" in backends:
        from ftx.tracking.tensorboard import TensorBoardTracker  # imports torch

        trackers.append(TensorBoardTracker(folder, again=again))
    return trackers
