"""One run from a prepared configuration to results: build, train, evaluate, score, save."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, enable_full_determinism, set_seed

from ftx.config.schema import RunConfig
from ftx.data.batches import Collator, examples
from ftx.job.arguments import training_arguments
from ftx.job.cadence import evaluation_steps
from ftx.job.callbacks import Cadence, DivergenceGuard, EarlyStop, HistoryCallback, StopGuard
from ftx.job.checkpointing import Checkpoints, Spent
from ftx.job.endings import StopRequest
from ftx.job.hardware import start_measuring_memory
from ftx.job.preparation import Preparation, inputs_of
from ftx.job.rehearsal import rehearse
from ftx.job.results import (
    Outcome,
    chosen_checkpoint,
    cost_of,
    early_stop_reason,
    result_of,
    validation_metrics,
)
from ftx.job.scoring import score_hook, score_splits, write_predictions
from ftx.job.trainer import SupervisedTrainer
from ftx.model.adapter import PISSA_START, adapted_modules, attach_adapter, keep_pissa_start, save_trained
from ftx.model.base import load_model
from ftx.record.checkpoints import FROM_THE_START, Choice
from ftx.record.layout import RunDir
from ftx.record.room import full_disk_said
from ftx.report.progress import Progress
from ftx.scores.exact_match import summarise
from ftx.tracking.protocol import Tracker


def run_finetune(
    ready: Preparation,
    run: RunDir,
    trackers: list[Tracker],
    progress: Progress,
    stop: StopRequest,
    begun: Choice = FROM_THE_START,
) -> Outcome:
    """Train the prepared run in its directory and return what came out.

    Args:
        ready: what to train.
        run: where.
        trackers: where its curves go besides the history.
        progress: who is told.
        stop: who may ask for the end.
        begun: the checkpoint that the run goes on from.

    Raises:
        Diverged: at the first loss or gradient that is not finite, unless optim.on_divergence says to go on.
        Interrupted: when `stop` was asked, after a checkpoint.
        DiskFull: no room for a checkpoint; those before it are whole.
        ModelError: adapter targets that the model does not have.
    """
    config, data = ready.config, ready.data
    checkpoints = checkpoints_for(ready, run, begun)
    folder = begun.checkpoint.path if begun.checkpoint else None
    pissa_start = run.checkpoints / PISSA_START if config.lora.variant == "pissa" else None
    start_measuring_memory(config.hardware.device)
    seed_everything(config)
    model = build_model(config, pissa_start if folder else None)
    if pissa_start is not None and folder is None:
        keep_pissa_start(model, pissa_start)
    trainer = build_trainer(ready, model, run, trackers, progress, checkpoints)
    guard = DivergenceGuard(checkpoints, go_on=config.optim.on_divergence == "continue")
    trainer.add_callback(guard)
    trainer.add_callback(StopGuard(stop))
    rehearsed = rehearsal_cost(trainer, ready, run, progress, guard) if config.preflight else {}
    if folder is not None:
        trainer.args.eval_on_start = False  # the step that the run goes on from has been looked at

    trainer.train(resume_from_checkpoint=None if folder is None else str(folder))
    stop.end_of_steps()
    trainer.remove_callback(EarlyStop)  # it would look for the primary metric in the test evaluation
    stop_reason = early_stop_reason(trainer, config)
    chosen = chosen_checkpoint(trainer, config)
    whole = config.lora.variant == "none"
    with full_disk_said(run, "the result"):
        save_trained(model, ready.tokenizer, run.model if whole else run.adapter, pissa_start)
    test = trainer.evaluate(examples(data.test), metric_key_prefix="test") if data.test is not None else {}
    predictions = score_splits(ready, model, progress)
    write_predictions(run, predictions)
    scores = {split: summarise(items) for split, items in predictions.items()}
    return Outcome(
        result=result_of(config, chosen, validation_metrics(trainer, chosen), test, scores),
        scores=scores,
        cost=cost_of(trainer, model, config) | rehearsed,
        stop_reason=stop_reason,
        diverged=checkpoints.diverged,
        model_facts={
            "lora.adapted_modules": adapted_modules(model),
            "model.attn_implementation": model.config._attn_implementation,
        },
    )


def seed_everything(config: RunConfig) -> None:
    """Seed before anything is built, so that the seed decides the adapter's start values too."""
    torch.set_num_threads(int(config.hardware.threads or 1))
    # Set both ways: an earlier run of this process may have asked for the other.
    torch.use_deterministic_algorithms(config.hardware.deterministic)
    torch.backends.cudnn.deterministic = config.hardware.deterministic
    if config.hardware.deterministic:
        enable_full_determinism(config.seed)
    else:
        set_seed(config.seed)


def checkpoints_for(ready: Preparation, run: RunDir, begun: Choice = FROM_THE_START) -> Checkpoints:
    """What writes the run's checkpoints, and knows what it has used before."""
    facts = {
        "config": asdict(ready.config),
        "inputs": inputs_of(ready),
        "diverged": begun.facts.get("diverged"),
    }
    return Checkpoints(run, ready.config.checkpoint.save_total_limit, facts, Spent(**begun.facts.get("spent", {})))


def build_model(config: RunConfig, pissa_start: Path | None = None) -> Any:
    """The base model with its adapter; all its weights are trainable for lora=none.

    `pissa_start`: see `attach_adapter`.
    """
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
        pissa_start=pissa_start,
    )
    if config.hardware.gradient_checkpointing:
        model.enable_input_require_grads()  # frozen inputs would leave the adapter without gradients
    return model


def build_trainer(
    ready: Preparation,
    model: Any,
    run: RunDir,
    trackers: list[Tracker],
    progress: Progress,
    checkpoints: Checkpoints,
) -> SupervisedTrainer:
    """The trainer with its data, callbacks and cadence."""
    config, data = ready.config, ready.data
    arguments = training_arguments(config, len(data.train), run.checkpoints)
    callbacks: list[Any] = [
        HistoryCallback(run.history, trackers, progress, checkpoints.spent),
        Cadence(evaluation_steps(config, len(data.train))),
    ]
    if config.early_stop.patience is not None:
        callbacks.append(EarlyStop(config.early_stop.patience, config.early_stop.min_delta))
    trainer = SupervisedTrainer(
        model=model,
        args=arguments,
        train_dataset=examples(data.train),
        eval_dataset=examples(data.validation),
        processing_class=ready.tokenizer,
        data_collator=Collator(ready.tokenizer.pad_token_id),
        callbacks=callbacks,
        checkpoints=checkpoints,
        on_eval_batch=lambda done, total: progress.working("evaluating", done, total),
        score_hook=score_hook(ready, progress) if config.metric.name in config.score.metrics else None,
        loraplus_ratio=config.optim.loraplus_ratio if config.optim.name == "loraplus" else None,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def rehearsal_cost(
    trainer: SupervisedTrainer, ready: Preparation, run: RunDir, progress: Progress, guard: DivergenceGuard
) -> dict[str, int | None]:
    """Rehearse the longest batch, say what it took, and return what the record keeps of it."""
    with full_disk_said(run, "a trial save"):
        rehearsal = rehearse(trainer, ready.data.train.lengths, run.checkpoints)
    progress.say(str(rehearsal))
    if rehearsal.diverged is not None:
        guard.meet(rehearsal.diverged)
    return {"rehearsal_peak_memory_bytes": rehearsal.peak_memory_bytes}
