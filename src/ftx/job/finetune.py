"""One run from a prepared configuration to results: build, train, evaluate, score, save."""

import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import EarlyStoppingCallback, PrinterCallback, enable_full_determinism, set_seed
from trl import SFTConfig
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from ftx.config.schema import RunConfig
from ftx.data.render import TokenizedRow
from ftx.job.callbacks import Cadence, DivergenceGuard, HistoryCallback, cadence_steps
from ftx.job.hardware import peak_memory_bytes, start_measuring_memory
from ftx.job.preparation import Preparation
from ftx.job.trainer import ScoreHook, SupervisedTrainer, random_state_kept
from ftx.model.adapter import AdapterSaver, adapted_modules, attach_adapter, parameter_counts
from ftx.model.base import load_model
from ftx.record.layout import RunDir
from ftx.record.lines import append_line
from ftx.record.strict_json import dumps
from ftx.report.progress import Progress
from ftx.scores.exact_match import prediction_line, summarise
from ftx.scores.generation import Generated, generate, longest_reference
from ftx.tracking.protocol import Tracker

NEVER = 10**9  # steps; the Trainer's own evaluation and saving are left to Cadence


@dataclass
class Outcome:
    """What a finished run adds to its record."""

    result: dict[str, Any]
    scores: dict[str, Any]
    cost: dict[str, Any]
    stop_reason: str | None
    adapted_modules: dict[str, int]


def run_finetune(ready: Preparation, run: RunDir, trackers: list[Tracker], progress: Progress) -> Outcome:
    """Train the prepared run in its directory and return what came out.

    Raises:
        Diverged: at the first loss or gradient that is not finite.
        ModelError: adapter targets that the model does not have.
    """
    config, data = ready.config, ready.data
    started = time.perf_counter()
    start_measuring_memory(config.hardware.device)
    seed_everything(config)
    model = build_model(config)
    saver = AdapterSaver(model, config.lora.variant, run.checkpoints)
    trainer = build_trainer(ready, model, run, trackers, progress)

    trainer.train()
    stop_reason = early_stop_reason(trainer, config)
    chosen = chosen_checkpoint(trainer, config)
    test = trainer.evaluate(_dataset(data.test), metric_key_prefix="test") if data.test else {}
    predictions = score_splits(ready, model, progress)
    write_predictions(run, predictions)
    scores = {split: summarise(items) for split, items in predictions.items()}
    saver.save(model, ready.tokenizer, run.model if config.lora.variant == "none" else run.adapter)
    return Outcome(
        result=result_of(config, chosen, validation_metrics(trainer, chosen), test, scores),
        scores=scores,
        cost=cost_of(trainer, model, config, time.perf_counter() - started),
        stop_reason=stop_reason,
        adapted_modules=adapted_modules(model),
    )


def seed_everything(config: RunConfig) -> None:
    """Seed before anything is built, so that the seed decides the adapter's start values too."""
    torch.set_num_threads(int(config.hardware.threads or 1))
    if config.hardware.deterministic:
        enable_full_determinism(config.seed)
    else:
        set_seed(config.seed)


def build_model(config: RunConfig) -> Any:
    """The base model with its adapter; all its weights are trainable for lora=none."""
    model = load_model(config.model, config.model.dtype)
    if config.lora.variant == "none":
        return model
    model = attach_adapter(
        model,
        variant=config.lora.variant,
        rank=config.lora.rank,
        alpha=float(config.lora.alpha or 0),
        dropout=config.lora.dropout,
        target_modules=config.lora.target_modules,
    )
    if config.hardware.gradient_checkpointing:
        model.enable_input_require_grads()  # frozen inputs would leave the adapter without gradients
    return model


def build_trainer(
    ready: Preparation, model: Any, run: RunDir, trackers: list[Tracker], progress: Progress
) -> SupervisedTrainer:
    """The trainer with its data, callbacks and cadence."""
    config, data = ready.config, ready.data
    arguments = training_arguments(config, run.checkpoints)
    callbacks: list[Any] = [
        HistoryCallback(run.history, trackers, progress),
        DivergenceGuard(),
        Cadence(evaluation_steps(config, len(data.train))),
    ]
    if config.early_stop.patience is not None:
        callbacks.append(EarlyStoppingCallback(config.early_stop.patience, config.early_stop.min_delta))
    trainer = SupervisedTrainer(
        model=model,
        args=arguments,
        train_dataset=_dataset(data.train),
        eval_dataset=_dataset(data.validation),
        processing_class=ready.tokenizer,
        data_collator=DataCollatorForLanguageModeling(pad_token_id=ready.tokenizer.pad_token_id),
        callbacks=callbacks,
        score_hook=score_hook(ready, progress) if config.metric.name in config.score.metrics else None,
        loraplus_ratio=config.optim.loraplus_ratio if config.optim.name == "loraplus" else None,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def training_arguments(config: RunConfig, checkpoints: Path) -> SFTConfig:
    """Our settings in the words of transformers and TRL."""
    optim, hardware = config.optim, config.hardware
    micro = int(hardware.micro_batch_size or optim.batch_size)
    arguments = SFTConfig(
        output_dir=str(checkpoints),
        seed=config.seed,
        data_seed=config.data_seed,
        learning_rate=optim.lr,
        lr_scheduler_type="constant_with_warmup" if optim.scheduler == "constant" else optim.scheduler,
        warmup_steps=optim.warmup_ratio,  # below 1 it is a share of all steps
        weight_decay=optim.weight_decay,
        adam_beta1=optim.beta1,
        adam_beta2=optim.beta2,
        optim="adafactor" if optim.name == "adafactor" else "adamw_torch",
        num_train_epochs=optim.epochs,
        max_steps=optim.max_steps or -1,
        max_grad_norm=optim.max_grad_norm,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=optim.batch_size // micro,
        per_device_eval_batch_size=hardware.eval_batch_size,
        use_cpu=hardware.device == "cpu",
        bf16=config.lora.variant == "none" and hardware.precision == "bf16",
        gradient_checkpointing=hardware.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if hardware.gradient_checkpointing else None,
        dataloader_pin_memory=hardware.device == "cuda",
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        eval_on_start=True,
        eval_strategy="steps",
        eval_steps=NEVER,
        save_strategy="steps",
        save_steps=NEVER,
        save_total_limit=config.checkpoint.save_total_limit,
        load_best_model_at_end=config.metric.at == "best",
        metric_for_best_model=_trainer_metric(config.metric.name),
        greater_is_better=config.metric.direction == "max",
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # one device per run, whatever is visible
    return arguments


def evaluation_steps(config: RunConfig, rows: int) -> list[int]:
    """The optimiser steps after which the run is evaluated and saved."""
    per_epoch = math.ceil(rows / config.optim.batch_size)
    total = config.optim.max_steps or math.ceil(per_epoch * config.optim.epochs)
    return cadence_steps(per_epoch, total, config.checkpoint.every_epochs)


def chosen_checkpoint(trainer: SupervisedTrainer, config: RunConfig) -> dict[str, Any]:
    """Which checkpoint's weights the model now has."""
    state = trainer.state
    step = state.best_global_step if config.metric.at == "best" else state.global_step
    evaluated = _evaluations(trainer).get(int(step or state.global_step), {})
    return {"at": config.metric.at, "step": int(step or state.global_step), "epoch": evaluated.get("epoch")}


def validation_metrics(trainer: SupervisedTrainer, chosen: dict[str, Any]) -> dict[str, float]:
    """What validation gave at the chosen checkpoint."""
    return _evaluations(trainer)[chosen["step"]]


def early_stop_reason(trainer: SupervisedTrainer, config: RunConfig) -> str | None:
    """Why training ended before its last step, or None if it did not."""
    state = trainer.state
    if state.global_step >= state.max_steps:
        return None
    return (
        f"{config.metric.name} did not improve in {config.early_stop.patience} evaluations "
        f"(step {state.global_step} of {state.max_steps})"
    )


def score_hook(ready: Preparation, progress: Progress) -> ScoreHook:
    """Scores the validation rows during training, for a primary metric that is a task score."""

    def score(model: Any) -> dict[str, float]:
        summary = summarise(generate_split(ready, model, "validation", progress))
        return {name: summary[name] for name in ready.config.score.metrics}

    return score


def score_splits(ready: Preparation, model: Any, progress: Progress) -> dict[str, list[Generated]]:
    """The chosen checkpoint's own answers on validation and test; empty when no score is asked for."""
    if not ready.config.score.metrics:
        return {}
    predictions: dict[str, list[Generated]] = {}
    for split in ("validation", "test"):
        if split in ready.data.by_name():
            predictions[split] = generate_split(ready, model, split, progress)
    return predictions


def generate_split(ready: Preparation, model: Any, split: str, progress: Progress) -> list[Generated]:
    """Answers to the first `score.max_examples` rows of a split."""
    score = ready.config.score
    rows = ready.data.by_name()[split][: score.max_examples]
    with random_state_kept():
        return generate(
            model,
            ready.tokenizer,
            rows,
            batch_size=score.batch_size,
            max_new_tokens=score.max_new_tokens or longest_reference(rows, ready.tokenizer),
            on_batch=lambda done, total: progress.working(f"scoring {split}", done, total),
        )


def write_predictions(run: RunDir, predictions: dict[str, list[Generated]]) -> None:
    """One line per scored example."""
    for split, items in predictions.items():
        for item in items:
            append_line(run.predictions, dumps(prediction_line(split, item)))


def result_of(
    config: RunConfig,
    chosen: dict[str, Any],
    validation: dict[str, float],
    test: dict[str, float],
    scores: dict[str, Any],
) -> dict[str, Any]:
    """The primary metric: chosen on validation, measured on test where there is one."""
    name = config.metric.name
    validation_value = validation[_trainer_metric(name)]
    if name in config.score.metrics:
        measured = scores["test"][name] if "test" in scores else None
    else:
        measured = test.get(f"test_{name.removeprefix('eval_')}")
    on_test = measured is not None
    return {
        "metric": name,
        "direction": config.metric.direction,
        "split": "test" if on_test else "validation",
        "checkpoint": chosen,
        "value": measured if on_test else validation_value,
        "validation_value": validation_value,
        "same_rows": not on_test,
    }


def cost_of(trainer: SupervisedTrainer, model: Any, config: RunConfig, seconds: float) -> dict[str, Any]:
    """What the run took. `tokens` counts every token of the training passes, `trained_tokens` those with loss;
    `seconds` are the whole job's, `tokens_per_second` are training's alone.
    """
    train_seconds = next(entry["train_runtime"] for entry in trainer.state.log_history if "train_runtime" in entry)
    evaluating = sum(entry.get("eval_runtime", 0.0) for entry in trainer.state.log_history)
    return {
        "seconds": seconds,
        "tokens_per_second": trainer.tokens_seen / max(train_seconds - evaluating, 1e-9),
        "peak_memory_bytes": peak_memory_bytes(config.hardware.device),
        "trainable_parameters": parameter_counts(model)["trainable"],
        "steps": trainer.state.global_step,
        "tokens": trainer.tokens_seen,
        "trained_tokens": trainer.target_tokens_seen,
        "effective_batch": config.optim.batch_size,
    }


def settings_for_trackers(config: RunConfig) -> dict[str, Any]:
    """Every setting by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in asdict(config).items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": item for inner, item in value.items()}
        else:
            flat[name] = value
    return flat


def _evaluations(trainer: SupervisedTrainer) -> dict[int, dict[str, float]]:
    return {entry["step"]: entry for entry in trainer.state.log_history if "eval_loss" in entry}


def _trainer_metric(name: str) -> str:
    return name if name.startswith("eval_") else f"eval_{name}"


def _dataset(rows: list[TokenizedRow]) -> Dataset:
    return Dataset.from_dict({"input_ids": [row.input_ids for row in rows], "labels": [row.labels for row in rows]})
