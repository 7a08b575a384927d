"""The dear half of the preflight: the longest batch forward and backward, and a trial save, before the first step.

Running out of memory, a full disk and a save that asks for a network show in the first seconds, and not after hours.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # torch's own convention
from numpy.typing import ArrayLike
from torch import Tensor

from ftx.job.endings import Diverged, ending_of
from ftx.job.hardware import peak_memory_bytes
from ftx.job.trainer import SupervisedTrainer, supervised_logits


@dataclass(frozen=True)
class Rehearsal:
    """What the longest batch took."""

    rows: int
    tokens_per_row: int
    """Of its longest row; the others are padded to it."""
    seconds: float
    """Of the forward and backward pass."""
    peak_memory_bytes: int | None
    """The most memory held so far, with the optimiser's moments stood in for: what a step on this batch will take.
    None where the system cannot tell."""
    checkpoint_bytes: int
    """What the trial save wrote: the trained weights of a checkpoint, without the optimiser's states."""
    diverged: Diverged | None
    """Where the loss of that batch is not finite."""

    def __str__(self) -> str:
        memory = "unknown" if self.peak_memory_bytes is None else f"{self.peak_memory_bytes / 2**20:,.0f} MiB"
        size = f"{self.rows} rows of {self.tokens_per_row} tokens"
        return f"longest batch: {size}, {self.seconds:.1f} s, peak memory {memory}"


def rehearse(trainer: SupervisedTrainer, lengths: ArrayLike, scratch: Path) -> Rehearsal:
    """Pass the longest training rows forward and backward and save once; the run goes on as if nothing had been.

    Args:
        trainer: built and not yet started.
        lengths: tokens of each training row, shape (rows,), in the order of the trainer's data set.
        scratch: where the trial save is made, and removed; created if it is not there.

    Raises:
        MemoryError: it does not fit; the message names the batch and the remedies.
        OSError: the weights cannot be saved.
    """
    tokens = np.asarray(lengths)
    chosen = np.argsort(-tokens, kind="stable")[: trainer.args.per_device_train_batch_size]
    rows, longest = len(chosen), int(tokens[chosen[0]])
    started = time.perf_counter()
    try:
        with _unchanged(trainer):
            loss = _pass(trainer, trainer.data_collator([trainer.train_dataset[int(index)] for index in chosen]))
    except (MemoryError, RuntimeError) as error:
        if ending_of(error).status != "out_of_memory":
            raise
        raise MemoryError(_does_not_fit(trainer, rows, longest)) from error
    what = f"the loss of the longest batch ({rows} rows of {longest} tokens)"
    diverged = None if torch.isfinite(loss) else Diverged(0, what, float(loss))
    seconds = time.perf_counter() - started  # only now: looking at the loss waited for the device
    peak = peak_memory_bytes(trainer.args.device.type)
    return Rehearsal(rows, longest, seconds, peak, _trial_save(trainer.model, scratch), diverged)


@contextmanager
def _unchanged(trainer: SupervisedTrainer) -> Iterator[None]:
    """Give back the random states, the mode and the empty gradients, whatever happens inside."""
    device, model = trainer.args.device, trainer.model
    devices = [] if device.type == "cpu" else [device.index or 0]
    training = model.training
    with torch.random.fork_rng(devices=devices, device_type=device.type):
        try:
            yield
        finally:
            model.zero_grad(set_to_none=True)
            model.train(training)


def _pass(trainer: SupervisedTrainer, batch: dict[str, Tensor]) -> Tensor:
    """The loss of a batch, after the gradients were computed as a step of the Trainer computes them."""
    model, arguments = trainer.model, trainer.args
    if arguments.gradient_checkpointing:  # as trainer.train() will, a second time
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=arguments.gradient_checkpointing_kwargs)
    model.train()
    inputs = trainer._prepare_inputs(batch)
    held = _stand_ins(trainer)
    # trainer.train() builds this autocast into the model's forward.
    with trainer.compute_loss_context_manager(), trainer.accelerator.autocast():
        logits, targets = supervised_logits(model, inputs)
    loss = F.cross_entropy(logits, targets, reduction="sum") / max(len(targets), 1)
    trainer.accelerator.backward(loss)
    del held
    return loss.detach()


def _stand_ins(trainer: SupervisedTrainer) -> list[Tensor]:
    """As much memory as a later step holds besides: AdamW's two moments, and the gradients of an earlier pass."""
    weights = [weight for weight in trainer.model.parameters() if weight.requires_grad]
    if trainer.args.gradient_accumulation_steps > 1:
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
    moments = 0 if trainer.args.optim == "adafactor" else 2
    return [torch.zeros_like(weight) for weight in weights for _ in range(moments)]


def _does_not_fit(trainer: SupervisedTrainer, rows: int, longest: int) -> str:
    remedies = []
    if rows > 1:
        remedies.append(f"lower hardware.micro_batch_size={trainer.args.per_device_train_batch_size}")
    if not trainer.args.gradient_checkpointing:
        remedies.append("set hardware.gradient_checkpointing=true")
    remedies.append("lower data.max_seq_len")
    return f"the longest batch ({rows} rows of {longest} tokens) does not fit into memory: {', or '.join(remedies)}"


def _trial_save(model: Any, scratch: Path) -> int:
    """Save the trained weights and remove them again; their bytes."""
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trial-", dir=scratch) as folder:
        model.save_pretrained(folder)
        return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
