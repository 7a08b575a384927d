"""Everything of a run that can be known, and refused, before it has a directory and before torch trains."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ftx.config.fingerprint import fingerprints
from ftx.config.schema import RunConfig
from ftx.data.findings import Finding, refuse_problems
from ftx.data.prepare import PreparedData, prepare
from ftx.data.templates import choose_template
from ftx.errors import DataError
from ftx.job.preflight import run_findings
from ftx.model.base import context_length, identity, load_tokenizer

_NAMELESS = (
    "seed",
    "preflight",
    "notes",
    "hypothesis",
    "output_root",
    "labbook",
    "name",
    "hardware",
    "tracking",
    "score",
    "hydra",
)
_IMPLIED = ("data=file", "data=hub")  # by a path or a name, which says more
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
    findings: list[Finding]
    fingerprint: dict[str, str]
    made_by: dict[str, str] | None = None

    @property
    def command(self) -> list[str]:
        """The command line that asks for the same run."""
        return ["python", "-m", "ftx.train", *self.flags, *self.overrides]

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


def read_inputs(config: RunConfig, *, lenient: bool = False) -> Inputs:
    """Read the rows, split them, make them token ids, and find out what the weights are.

    Args:
        config: resolved, hardware included.
        lenient: bad rows are a problem among the findings and not an error, so that the others can be looked at.

    Raises:
        FtxError: data or model that this configuration cannot run with.
    """
    weights = identity(config.model)
    tokenizer = load_tokenizer(config.model)
    choose_template(tokenizer, config.data.template, config.data.template_kwargs)
    data = prepare(config.data, tokenizer, context_length(config.model), lenient=lenient)
    return Inputs(tokenizer, data, weights)


def findings_of(config: RunConfig, inputs: Inputs) -> list[Finding]:
    """What can be seen of a run before it starts: its rows, and whether its settings suit them and this machine."""
    data = inputs.data
    return [
        *data.findings,
        *run_findings(
            config,
            train_rows=len(data.train),
            validation_rows=len(data.validation),
            has_reference=data.has_answers(config.score.max_examples),
        ),
    ]


def prepare_run(
    config: RunConfig,
    overrides: Sequence[str],
    flags: Sequence[str] = (),
    made_by: dict[str, str] | None = None,
    planned: str | None = None,
) -> Preparation:
    """A run that can start.

    Args:
        config: resolved, hardware included.
        overrides: what the person typed, for the name and the record.
        flags: what else it takes to compose the same, such as --config-dir.
        made_by: the study and arm that ask for the run; None: a person.
        planned: the `train` fingerprint that the study planned.

    Raises:
        FtxError: data or model that this configuration cannot run with.
    """
    inputs = read_inputs(config)
    findings = findings_of(config, inputs)
    refuse_problems(findings)
    fingerprint = fingerprints_of(config, inputs)
    if planned is not None and planned != fingerprint["train"]:
        raise DataError(
            "rows, model or code have changed since the study was planned, so this is not the planned run: start the "
            "study again, which plans anew"
        )
    return Preparation(
        config=config,
        overrides=list(overrides),
        flags=list(flags),
        tokenizer=inputs.tokenizer,
        data=inputs.data,
        weights=inputs.weights,
        findings=findings,
        fingerprint=fingerprint,
        made_by=made_by,
    )


def fingerprints_of(config: RunConfig, inputs: Inputs) -> dict[str, str]:
    """Both fingerprints of a run with these inputs."""
    record = inputs.data.record
    return fingerprints(config, weights=inputs.weights, template=record["template_sha256"], content=record["content"])


def inputs_of(ready: Preparation) -> dict[str, Any]:
    """What identifies rows, tokens, template and base weights."""
    record = ready.data.record
    return {"content": record["content"], "template": record["template_sha256"], "weights": ready.weights}


def _label(overrides: Sequence[str]) -> str:
    """`lora.rank=32 optim.lr=1e-3` as rank32-lr1e-3; paths and what does not change the numbers left out."""
    parts = []
    for word in overrides:
        key, _, value = word.lstrip("+~").partition("=")
        if key.replace("/", ".").split(".")[0] in _NAMELESS or "/" in value or word in _IMPLIED:
            continue
        leaf = key.rpartition(".")[2]
        parts.append(value if "." not in key else f"{leaf}{value}")
    return "-".join(parts) or "default"
