"""The typed schema behind every key: its type, default, range and meaning, in one place.

Hydra composes the YAML under conf/ onto these classes, so a group file only says what makes it
different. `to_run_config` (compose.py) is the one door from Hydra's world to a `RunConfig`.
A value of None means "follows from other settings"; `resolve.py` fills it in.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

Paths = Annotated[Any, "a file or a list of files, written [a.jsonl,b.jsonl], or null"]
"""OmegaConf knows no such type; the words are those of refusals and --help (`values.py`, `resolve.paths_of`)."""


def key(
    default: Any,
    help: str,
    *,
    choices: Sequence[str] = (),
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    remedy: str = "",
) -> Any:
    """Declare one configuration key: default, meaning, allowed values or range, remedy for a bad value."""
    bounds = {name: bound for name, bound in (("ge", ge), ("gt", gt), ("le", le), ("lt", lt)) if bound is not None}
    metadata = {"help": help, "choices": tuple(choices), "bounds": bounds, "remedy": remedy}
    if isinstance(default, (list, dict)):
        frozen = default
        return field(default_factory=lambda: frozen.copy(), metadata=metadata)
    return field(default=default, metadata=metadata)


def section(kind: type, help: str) -> Any:
    """Declare a nested group of keys."""
    return field(default_factory=kind, metadata={"help": help})


@dataclass
class MetricConfig:
    """The primary metric, declared before training."""

    name: str = key(
        "eval_loss",
        "what decides: checkpoint, early stop and the table",
        choices=("eval_loss", "eval_token_accuracy", "exact_match"),
    )
    direction: str | None = key(None, "min or max; null: the metric's own", choices=("min", "max"))
    at: str = key(
        "best", "which checkpoint counts: the best on validation, or the final one", choices=("best", "final")
    )
    secondary: list[str] = key([], "metrics shown beside the primary one and not tested")


@dataclass
class ModelConfig:
    """The base model."""

    name: str | None = key(None, "Hub name or local folder; 'tiny' is bundled")
    bundled: bool = key(False, "the weights travel inside ftx")
    revision: str | None = key(None, "Hub commit, tag or branch; the resolved commit is recorded")
    dtype: str = key("auto", "dtype of the base weights; auto: the precision's", choices=("auto", "fp32", "bf16"))
    attn_implementation: str = key(
        "auto",
        "attention kernel; auto: what transformers picks",
        choices=("auto", "eager", "sdpa", "flash_attention_2"),
    )
    trust_remote_code: bool = key(False, "run Python code that comes with the model")


@dataclass
class LoraConfig:
    """The adapter."""

    variant: str = key("standard", "kind of adapter", choices=("standard", "rslora", "dora", "pissa", "none"))
    rank: int = key(16, "rank of the update matrices", ge=1, le=4096, remedy="lora=none fine-tunes all weights instead")
    alpha: float | None = key(None, "numerator of the scaling; null: follows the rank, by variant", gt=0)
    dropout: float = key(0.05, "dropout before the adapter", ge=0, lt=1)
    target_modules: list[str] = key(
        ["all-linear"], "module names to adapt; all-linear: every linear layer but the output head"
    )


@dataclass
class OptimConfig:
    """Optimiser, schedule and length of training."""

    name: str = key("adamw", "optimiser", choices=("adamw", "adafactor", "loraplus"))
    lr: float | None = key(None, "peak learning rate; null: 2e-4 with an adapter, 2e-5 for lora=none", gt=0)
    scheduler: str = key("cosine", "decay after warmup", choices=("cosine", "linear", "constant"))
    warmup_ratio: float = key(0.03, "share of all steps spent rising to the peak", ge=0, lt=1)
    weight_decay: float = key(0.0, "decoupled weight decay", ge=0)
    beta1: float = key(0.9, "AdamW's first moment decay", ge=0, lt=1)
    beta2: float = key(0.999, "AdamW's second moment decay", ge=0, lt=1)
    loraplus_ratio: float = key(16.0, "optim=loraplus: learning rate of B over that of A", gt=0)
    epochs: float = key(3.0, "passes over the training rows", gt=0, le=10_000)
    max_steps: int | None = key(None, "stop after this many optimiser steps; overrides epochs", ge=1, le=10_000_000)
    batch_size: int = key(8, "rows per optimiser step, whatever the hardware", ge=1)
    max_grad_norm: float = key(1.0, "clip the gradient norm; 0: never", ge=0)
    on_divergence: str = key(
        "stop",
        "at the first loss or gradient that is not finite: stop, or go on to the end; the run is diverged either way",
        choices=("stop", "continue"),
    )


@dataclass
class ColumnsConfig:
    """Which column of the person's files holds which field."""

    prompt: str = key("prompt", "column of the prompt")
    completion: str = key("completion", "column of the completion")
    messages: str = key("messages", "column of the chat turns")
    text: str = key("text", "column of plain text")


@dataclass
class DataConfig:
    """Rows, splits, templates, lengths and what of a row is supervised."""

    source: str = key("file", "where rows come from", choices=("bundled", "file", "hub"))
    name: str | None = key(None, "bundled or Hub data set")
    revision: str | None = key(None, "Hub commit, tag or branch; the resolved commit is recorded")
    split: str = key("train", "Hub: split to train on")
    eval_split: str | None = key(None, "Hub: split to validate on; null: a fraction of the training split")
    test_split: str | None = key(None, "Hub: split to test on")
    path: Paths = key(None, "training rows: one file or a list; .jsonl, .json, .csv or .parquet, each also .gz")
    weights: list[float] | None = key(
        None, "how often the rows of each file of data.path stand in an epoch: 2 is twice, 0.5 half of them", gt=0
    )
    eval_path: Paths = key(None, "validation rows; null: a fraction of the training rows")
    test_path: Paths = key(None, "test rows, never used to choose anything")
    columns: ColumnsConfig = section(ColumnsConfig, "column names of your files")
    on_bad_row: str = key(
        "error", "rows that cannot be used: refuse them all by line, or skip and count them", choices=("error", "skip")
    )
    eval_fraction: float = key(0.1, "share of the training rows held out if there are no validation rows", gt=0, lt=1)
    split_seed: int = key(0, "seed of that split; the run's seed never moves it", ge=0)
    group_by: str | None = key(None, "column whose equal values stay on one side of that split; null: equal prompts")
    allow_overlap: bool = key(False, "train although validation or test prompts are among the training rows")
    template: str = key(
        "model",
        "chat template: the model's own, training (TRL's version of it), plain (for base models), or a .jinja file",
    )
    template_kwargs: dict[str, Any] = key({}, "what the template is told, such as {enable_thinking: false}")
    max_seq_len: int = key(1024, "longest training row in tokens", ge=2)
    eval_max_seq_len: int | None = key(None, "longest evaluation row; null: the model's limit, never max_seq_len", ge=2)
    on_long: str = key("drop", "rows longer than the limit", choices=("drop", "truncate", "error"))
    max_dropped: float = key(0.05, "refuse to train when more than this share of rows is dropped", ge=0, le=1)
    max_examples: int | None = key(None, "train on the first N rows; validation and test stay whole", ge=1)
    supervise: str = key(
        "auto",
        "what carries loss; auto: the completion, all assistant turns of a chat, all of a text",
        choices=("auto", "completion", "assistant", "last_turn", "all"),
    )
    snapshot: bool = key(False, "keep a copy of every file read, named by its content, in output_root/.data")
    cache_gb: float = key(
        20.0, "room for tokenised data, shared by all runs ($FTX_CACHE, else ~/.cache/ftx); 0: none", ge=0
    )


@dataclass
class HardwareConfig:
    """The device and how the batch fits on it; does not change the science."""

    device: str = key("auto", "auto, cpu, cuda, cuda:N or mps")
    precision: str = key(
        "auto", "auto: bf16 on accelerators that have it, fp32 on CPU", choices=("auto", "fp32", "bf16")
    )
    micro_batch_size: int | None = key(
        None, "rows per forward pass; null: the largest divisor of optim.batch_size up to 8", ge=1
    )
    eval_batch_size: int = key(16, "rows per forward pass of evaluation; does not move the loss", ge=1)
    threads: int | None = key(None, "CPU threads; null: all cores. Bit equality holds at equal threads", ge=1, le=1024)
    gradient_checkpointing: bool = key(False, "recompute activations: less memory, about a fifth slower")
    deterministic: bool = key(False, "refuse kernels that are not deterministic")


@dataclass
class CheckpointConfig:
    """When to evaluate and save, and how much to keep."""

    every_epochs: float = key(1.0, "evaluate and save this often; 0.25: four times an epoch", gt=0)
    save_total_limit: int = key(2, "checkpoints kept while a run is unfinished; the best and the last always are", ge=1)
    keep: bool = key(
        False, "keep the checkpoints of a finished run; false: only the adapter, or the model of lora=none"
    )


@dataclass
class EarlyStopConfig:
    """Stop when the primary metric no longer improves."""

    patience: int | None = key(None, "evaluations without improvement before stopping; null: never", ge=1)
    min_delta: float = key(0.0, "an improvement smaller than this does not count", ge=0)


@dataclass
class ScoreConfig:
    """Task scores, computed by generation with the chosen checkpoint."""

    metrics: list[str] = key(["exact_match"], "scores to compute; []: none", choices=("exact_match",))
    max_new_tokens: int | None = key(
        None, "longest output; null: the longest reference of the split and 16 tokens more", ge=1
    )
    batch_size: int = key(32, "prompts per generation batch", ge=1)
    max_examples: int | None = key(None, "score the first N rows of each split; null: all", ge=1)


@dataclass
class TrackingConfig:
    """Where curves go beside history.jsonl, which is always written."""

    backends: list[str] = key(["tensorboard"], "trackers; []: history.jsonl only", choices=("tensorboard",))


@dataclass
class RunConfig:
    """Everything that decides one run."""

    seed: int = key(0, "adapter initialisation, dropout and row order; never the split", ge=0, lt=2**32)
    data_seed: int | None = key(None, "row order alone; null: follows seed", ge=0, lt=2**32)
    name: str | None = key(None, "start of the run directory's name; null: what was overridden")
    notes: str = key("", "free text, recorded")
    hypothesis: str = key("", "what you expect, recorded before the run")
    output_root: str = key("outputs", "folder of run directories")
    labbook: str | None = key("labbook.md", "file that gets one line per run; null: none")
    preflight: bool = key(True, "before training, one step on the longest batch and a trial save; false: skip these")
    metric: MetricConfig = section(MetricConfig, "the primary metric")
    model: ModelConfig = section(ModelConfig, "the base model")
    lora: LoraConfig = section(LoraConfig, "the adapter")
    optim: OptimConfig = section(OptimConfig, "optimiser and schedule")
    data: DataConfig = section(DataConfig, "rows and splits")
    hardware: HardwareConfig = section(HardwareConfig, "device and memory")
    checkpoint: CheckpointConfig = section(CheckpointConfig, "evaluation and saving")
    early_stop: EarlyStopConfig = section(EarlyStopConfig, "early stopping")
    score: ScoreConfig = section(ScoreConfig, "task scores")
    tracking: TrackingConfig = section(TrackingConfig, "trackers")
    custom: dict[str, Any] = key({}, "free keys of your own; part of the fingerprint")


@dataclass
class StudyConfig:
    """Several runs that belong together. No run's configuration or fingerprint holds any of this."""

    name: str | None = key(None, "folder in multirun/; null: the factors and a hash of the baseline")
    design: str = key(
        "ofat",
        "ofat: the baseline and one factor at a time; factorial: all combinations",
        choices=("ofat", "factorial"),
    )
    axes: dict[str, Any] = key({}, "levels by key or group, such as {lora.rank: '8,16,32'}; typed ones replace these")
    coupled: list[list[str]] = key([], "keys whose levels move together, such as [[optim.batch_size,optim.lr]]")
    replicates: list[str] = key(["seed"], "keys that repeat every arm")
    replicate_top: int | None = key(
        None, "repeat only the baseline and the best N arms of what has finished, with the replicates given now", ge=1
    )
    reuse: str = key(
        "same",
        "finished runs of the same fingerprint: same code, versions and device, any of them, or never",
        choices=("same", "any", "never"),
    )
    max_runs: int | None = key(None, "start at most this many runs; the rest stays missing", ge=1)
    max_hours: float | None = key(None, "start no run after this many hours; the rest stays missing", gt=0)
    on_failure: str = key("continue", "when a run fails", choices=("continue", "stop"))
    retries: int = key(0, "start a run again this often after a machine fault (out of memory, killed)", ge=0, le=100)
    slots: str = key("auto", "runs at a time; auto: one a visible GPU, on a CPU the cores over hardware.threads")
    devices_per_job: int = key(1, "GPUs that each run sees", ge=1)
    preload: list[str] = key(
        ["ftx.job.session", "ftx.job.finetune", "transformers.models.llama.modeling_llama"],
        "modules imported once, before the runs",
    )


@dataclass
class Composition(RunConfig):
    """What Hydra composes: one run, and the study that asks for several."""

    study: StudyConfig = section(StudyConfig, "several runs: -m")
