"""Two hashes that say when two runs are the same: what moves the weights, and what only measures them.

Every key of the schema stands in exactly one of the lists below; a test holds them to it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ftx.config.schema import RunConfig

TRAIN_KEYS = (
    "seed",
    "data_seed",
    "model.dtype",
    "model.attn_implementation",
    "lora.variant",
    "lora.rank",
    "lora.alpha",
    "lora.dropout",
    "lora.target_modules",
    "optim.name",
    "optim.lr",
    "optim.scheduler",
    "optim.warmup_ratio",
    "optim.weight_decay",
    "optim.beta1",
    "optim.beta2",
    "optim.loraplus_ratio",
    "optim.epochs",
    "optim.max_steps",
    "optim.batch_size",
    "optim.max_grad_norm",
    "data.max_seq_len",
    "hardware.precision",
    "hardware.threads",
    "hardware.gradient_checkpointing",
    "hardware.deterministic",
    "custom",
)
# These decide which checkpoint is kept and when training stops, so they belong to the weights as long as
# validation is what chooses.
SELECTION_KEYS = (
    "metric.name",
    "metric.direction",
    "metric.at",
    "checkpoint.every_epochs",
    "early_stop.patience",
    "early_stop.min_delta",
)
EVALUATION_KEYS = (
    "metric.secondary",
    "data.eval_max_seq_len",
    "score.metrics",
    "score.max_new_tokens",
    "score.max_examples",
)
# What the model sees of a row and which tokens count, in training and in evaluation.
BOTH = ("data.on_long", "data.supervise", "data.template_kwargs")
# Rows, tokens, template and the model's weights are hashed themselves, not where they were found or how they were
# chosen; the rest changes no number.
NEITHER = (
    "name",
    "notes",
    "hypothesis",
    "output_root",
    "labbook",
    "preflight",
    "model.name",
    "model.bundled",
    "model.revision",
    "model.trust_remote_code",
    "data.source",
    "data.name",
    "data.revision",
    "data.split",
    "data.eval_split",
    "data.test_split",
    "data.path",
    "data.eval_path",
    "data.test_path",
    "data.columns.prompt",
    "data.columns.completion",
    "data.columns.messages",
    "data.columns.text",
    "data.eval_fraction",
    "data.split_seed",
    "data.weights",
    "data.max_examples",
    "data.group_by",
    "data.on_bad_row",
    "data.template",
    "data.max_dropped",
    "data.allow_overlap",
    "data.snapshot",
    "data.cache_gb",
    "hardware.device",
    "hardware.micro_batch_size",
    "hardware.eval_batch_size",
    "checkpoint.save_total_limit",
    "checkpoint.keep",
    "optim.on_divergence",
    "score.batch_size",
    "tracking.backends",
)


MOVES_WEIGHTS = (*TRAIN_KEYS, *BOTH, *SELECTION_KEYS)
"""Settings that can move the weights or decide which of them are kept; the rest moves none."""


def fingerprints(
    config: RunConfig, *, weights: str, template: str | None, content: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """The `train` and `evaluation` fingerprints of a fully resolved configuration, as hex digests.

    Args:
        config: resolved, hardware included.
        weights: what the base weights are (`ftx.model.base.identity`).
        template: hash of the chat template.
        content: hashes of the rows and tokens of each split (`ftx.data.splits.Contents.hashes`), and of which training
            rows are used.
    """
    settings = asdict(config)
    # Which rows the first N are depends on their order.
    rows = "any_order" if config.score.max_examples is None else "ordered"
    chosen_on_validation = config.metric.at == "best" or config.early_stop.patience is not None
    train: dict[str, Any] = _picked(settings, TRAIN_KEYS + BOTH)
    train |= {"weights": weights, "template": template}
    train |= {f"train_{name}": content["train"][name] for name in ("ordered", "tokens", "used")}
    if chosen_on_validation:
        train |= _picked(settings, SELECTION_KEYS)
        train |= {
            "validation_rows": content["validation"]["any_order"],
            "validation_tokens": content["validation"]["tokens"],
            "validation_limit": config.data.eval_max_seq_len,
        }
        if not config.metric.name.startswith("eval_"):
            train |= _picked(settings, ("score.max_new_tokens", "score.max_examples"))
            train["validation_rows"] = content["validation"][rows]
    evaluation = _picked(settings, EVALUATION_KEYS + SELECTION_KEYS + BOTH) | {"template": template}
    for name, hashes in content.items():
        if name != "train":
            evaluation |= {f"{name}_rows": hashes[rows], f"{name}_tokens": hashes["tokens"]}
    return {"train": _digest(train), "evaluation": _digest(evaluation)}


def resumed_fingerprint(train: str, altered: Sequence[str]) -> str:
    """The `train` fingerprint of a run that was continued with other settings than it began with: its own.

    Args:
        train: what it would be, had the run begun with the settings of now.
        altered: what was changed on the way, in words.
    """
    return _digest({"train": train, "altered": list(altered)}) if altered else train


def _picked(settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: _at(settings, name) for name in names}


def _at(settings: Mapping[str, Any], name: str) -> Any:
    value: Any = settings
    for part in name.split("."):
        value = value[part]
    return sorted(value) if name == "lora.target_modules" else value


def _digest(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
