"""Our settings in the words of transformers and TRL."""

from pathlib import Path

from trl import SFTConfig

from ftx.config.schema import RunConfig
from ftx.job.cadence import warmup_steps

NEVER = 10**9  # steps; the Trainer's own evaluation and saving are left to Cadence


def training_arguments(config: RunConfig, rows: int, checkpoints: Path) -> SFTConfig:
    """The Trainer's arguments for training on `rows` rows, with checkpoints in the given folder."""
    optim, hardware = config.optim, config.hardware
    micro = int(hardware.micro_batch_size or optim.batch_size)
    arguments = SFTConfig(
        output_dir=str(checkpoints),
        seed=config.seed,
        data_seed=config.data_seed,
        learning_rate=optim.lr,
        lr_scheduler_type="constant_with_warmup" if optim.scheduler == "constant" else optim.scheduler,
        warmup_steps=warmup_steps(config, rows),
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
        bf16=hardware.precision == "bf16" and config.model.dtype == "fp32",
        gradient_checkpointing=hardware.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if hardware.gradient_checkpointing else None,
        dataloader_pin_memory=hardware.device == "cuda",
        max_length=None,
        remove_unused_columns=False,  # the labels are made of a column that the model does not take
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


def trainer_metric(name: str) -> str:
    """What the Trainer calls one of our validation metrics."""
    return name if name.startswith("eval_") else f"eval_{name}"
