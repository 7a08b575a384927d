"""TensorBoard event files in the run directory: scalars, and the HParams tab filled."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams


class TensorBoardTracker:
    """Writes `SPLIT/METRIC` scalars, and one HParams entry per run in the same event file."""

    def __init__(self, folder: Path) -> None:
        # A name of ours would make it a second run in TensorBoard's list, so HParams are written by hand below.
        self._writer = SummaryWriter(str(folder))

    def start(self, hyperparameters: Mapping[str, Any], metrics: Sequence[str]) -> None:
        """Write what was set, and which scalars the HParams tab shows as results."""
        values = {name: value if _is_plain(value) else str(value) for name, value in hyperparameters.items()}
        writer = self._writer.file_writer
        assert writer is not None
        for summary in hparams(values, dict.fromkeys(metrics, 0.0)):
            writer.add_summary(summary)
        self._writer.flush()

    def log(self, *, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Write each metric as a scalar."""
        for name, value in metrics.items():
            self._writer.add_scalar(f"{split}/{name}", value, step)

    def close(self, final: Mapping[str, float]) -> None:
        """Write the results that the HParams tab shows."""
        for name, value in final.items():
            self._writer.add_scalar(name, value)
        self._writer.close()


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))
