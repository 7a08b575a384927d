"""Everything of a run that can be known, and refused, before it has a directory and before torch trains."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ftx.config.fingerprint import fingerprints
from ftx.config.schema import RunConfig
from ftx.data.prepare import PreparedData, prepare
from ftx.data.splits import read_splits
from ftx.errors import ConfigError, DataError
from ftx.job.cadence import evaluation_steps
from ftx.model.adapter import ALL_LINEAR, refuse_unmatched
from ftx.model.base import context_length, identity, load_tokenizer, skeleton

_NAMELESS = ("seed", "notes", "hypothesis", "output_root", "labbook", "name", "hardware", "tracking", "score", "hydra")
_LONGEST_LABEL = 70


@dataclass(frozen=True)
class Preparation:
    """A run that is ready to start."""

    config: RunConfig
    overrides: list[str]
    flags: list[str]
    tokenizer: Any
    data: PreparedData
    weights: str
    fingerprint: dict[str, str]

    @property
    def name(self) -> str:
        """A readable name for the run directory: what was overridden, the seed, the start of the fingerprint."""
        label = self.config.name or _label(self.overrides)
        return f"{label[:_LONGEST_LABEL]}-s{self.config.seed}-{self.fingerprint['train'][:8]}"


def prepare_run(config: RunConfig, overrides: Sequence[str], flags: Sequence[str] = ()) -> Preparation:
    """Read the rows, split them, make them token ids, and find out what the weights are.

    Args:
        config: resolved, hardware included.
        overrides: what the person typed, for the name and the record.
        flags: what else it takes to compose the same, such as --config-dir.

    Raises:
        FtxError: data or model that this configuration cannot run with.
    """
    splits = read_splits(config.data)
    weights = identity(config.model)
    tokenizer = load_tokenizer(config.model)
    data = prepare(splits, config.data, tokenizer, context_length(config.model))
    if config.score.metrics and data.validation[0].reference is None:
        raise DataError(
            f"score.metrics={config.score.metrics}: rows of plain text have no answer to compare with; use score=none"
        )
    if config.lora.variant != "none" and config.lora.target_modules != ALL_LINEAR:
        refuse_unmatched(skeleton(config.model), config.lora.target_modules)
    _refuse_idle_patience(config, len(data.train))
    found = fingerprints(
        config,
        weights=weights,
        template=data.record["template_sha256"],
        content=data.record["content"],
    )
    return Preparation(config, list(overrides), list(flags), tokenizer, data, weights, found)


def _refuse_idle_patience(config: RunConfig, rows: int) -> None:
    patience, evaluations = config.early_stop.patience, len(evaluation_steps(config, rows))
    if patience is not None and patience >= evaluations:
        raise ConfigError(
            [
                f"early_stop.patience={patience} can never stop a run of {evaluations} evaluations: lower it, train "
                "longer (optim.epochs) or evaluate more often (checkpoint.every_epochs)"
            ]
        )


def _label(overrides: Sequence[str]) -> str:
    """`lora.rank=32 optim.lr=1e-3` as rank32-lr1e-3; paths and what does not change the numbers left out."""
    parts = []
    for word in overrides:
        key, _, value = word.lstrip("+~").partition("=")
        if key.replace("/", ".").split(".")[0] in _NAMELESS or "/" in value:
            continue
        leaf = key.rpartition(".")[2]
        parts.append(value if "." not in key else f"{leaf}{value}")
    return "-".join(parts) or "default"
