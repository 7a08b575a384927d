"""TensorBoard event files in the run directory: scalars, and the HParams tab filled."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams


class TensorBoardTracker:
    """Writes `SPLIT/METRIC` scalars, and the HParams entry of the run into the same event file.

    `SummaryWriter.add_hparams` would make it a second run in TensorBoard's list, ended before it began.
    """

    def __init__(self, folder: Path, *, again: bool = False) -> None:
        # With a purge step TensorBoard shows nothing of that step or later from the files before.
        self._writer = SummaryWriter(str(folder), purge_step=0 if again else None)

    def start(self, settings: Mapping[str, Any], metrics: Sequence[str]) -> None:
        """Write what was set, and which scalars the HParams tab shows as results."""
        values = {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in settings.items()
        }
        made = hparams(values, dict.fromkeys(metrics, 0.0))  # type: ignore[no-untyped-call]  # torch leaves it untyped
        experiment, session_start, _ = made
        self._add(experiment, session_start)

    def log(self, *, step: int, split: str, metrics: Mapping[str, float], time: float | None = None) -> None:
        """Write each metric as a scalar."""
        for name, value in metrics.items():
            self._writer.add_scalar(f"{split}/{name}", value, step, walltime=time)

    def close(self, final: Mapping[str, float] | None) -> None:
        """Write the results that the HParams tab shows, and how the run ended."""
        for name, value in (final or {}).items():
            self._writer.add_scalar(name, value)
        ended = api_pb2.STATUS_FAILURE if final is None else api_pb2.STATUS_SUCCESS
        self._add(_session_end(ended))
        self._writer.close()

    def _add(self, *summaries: Any) -> None:
        writer = self._writer.file_writer
        assert writer is not None  # opened by the constructor, closed by close() alone
        for summary in summaries:
            writer.add_summary(summary)
        self._writer.flush()


def _session_end(status: int) -> Any:
    """The summary that tells the HParams tab how a run ended; TensorBoard's own maker of it needs TensorFlow."""
    ended = plugin_data_pb2.SessionEndInfo(status=status)
    content = plugin_data_pb2.HParamsPluginData(session_end_info=ended, version=metadata.PLUGIN_DATA_VERSION)
    plugin = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=content.SerializeToString())
    value = Summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=SummaryMetadata(plugin_data=plugin))
    return Summary(value=[value])
