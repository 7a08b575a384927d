"""What a tracker must be able to do, and which ones there are."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol


class Tracker(Protocol):
    """Receives what history.jsonl already holds."""

    def start(self, settings: Mapping[str, Any], metrics: Sequence[str]) -> None:
        """Told once, before training, what was set and which metrics will come."""

    def log(self, *, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """One logged event."""

    def close(self, final: Mapping[str, float] | None) -> None:
        """The run has ended: finished with these results, or None if it did not finish."""


def open_trackers(backends: Sequence[str], folder: Path) -> list[Tracker]:
    """The trackers that the configuration names, writing into the run directory."""
    trackers: list[Tracker] = []
    if "tensorboard" in backends:
        from ftx.tracking.tensorboard import TensorBoardTracker  # imports torch

        trackers.append(TensorBoardTracker(folder))
    return trackers
