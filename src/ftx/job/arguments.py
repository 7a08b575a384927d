"""Our settings in the words of transformers and TRL, and when to evaluate."""

import math
from pathlib import Path

from trl import SFTConfig

from ftx.config.schema import RunConfig
from ftx.job.callbacks import cadence_steps

NEVER = 10**9  # steps; the Trainer's own evaluation and saving are left to Cadence


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
        metric_for_best_model=trainer_metric(config.metric.name),
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


def trainer_metric(name: str) -> str:
    """What the Trainer calls one of our validation metrics."""
    return name if name.startswith("eval_") else f"eval_{name}"
