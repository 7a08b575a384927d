"""Everything of a run that can be known, and refused, before it has a directory and before torch trains."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
    made_by: dict[str, str] | None = None

    @property
    def name(self) -> str:
        """A readable name for the run directory: what was overridden, the seed, the start of the fingerprint."""
        label = self.config.name or _label(self.overrides)
        return f"{label[:_LONGEST_LABEL]}-s{self.config.seed}-{self.fingerprint['train'][:8]}"


@dataclass(frozen=True)
class Inputs:
    """What a run is made of before anything is trained: tokenizer, token ids, and what the weights are."""

    tokenizer: Any
    data: PreparedData
    weights: str


def inputs_key(config: RunConfig) -> str:
    """Equal for two configurations whose inputs are the same."""
    return json.dumps([asdict(config.model), asdict(config.data)], sort_keys=True)


def read_inputs(config: RunConfig) -> Inputs:
    """Read the rows, split them, make them token ids, and find out what the weights are.

    Raises:
        FtxError: data or model that this configuration cannot run with.
    """
    splits = read_splits(config.data)
    weights = identity(config.model)
    tokenizer = load_tokenizer(config.model)
    return Inputs(tokenizer, prepare(splits, config.data, tokenizer, context_length(config.model)), weights)


def check_run(config: RunConfig, inputs: Inputs) -> None:
    """Refuse what can be seen to go wrong. Raises FtxError."""
    if config.score.metrics and inputs.data.validation[0].reference is None:
        raise DataError(
            f"score.metrics={config.score.metrics}: rows of plain text have no answer to compare with; use score=none"
        )
    if config.lora.variant != "none" and config.lora.target_modules != ALL_LINEAR:
        refuse_unmatched(skeleton(config.model), config.lora.target_modules)
    _refuse_idle_patience(config, len(inputs.data.train))


def prepare_run(
    config: RunConfig, overrides: Sequence[str], flags: Sequence[str] = (), made_by: dict[str, str] | None = None
) -> Preparation:
    """A run that can start.

    Args:
        config: resolved, hardware included.
        overrides: what the person typed, for the name and the record.
        flags: what else it takes to compose the same, such as --config-dir.
        made_by: the study and arm that ask for the run; None: a person.

    Raises:
        FtxError: data or model that this configuration cannot run with.
    """
    inputs = read_inputs(config)
    check_run(config, inputs)
    found = fingerprints_of(config, inputs)
    return Preparation(
        config, list(overrides), list(flags), inputs.tokenizer, inputs.data, inputs.weights, found, made_by
    )


def fingerprints_of(config: RunConfig, inputs: Inputs) -> dict[str, str]:
    """Both fingerprints of a run with these inputs."""
    record = inputs.data.record
    return fingerprints(config, weights=inputs.weights, template=record["template_sha256"], content=record["content"])


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
