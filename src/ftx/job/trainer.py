"""TRL's SFT trainer with the output head applied to supervised positions only, and a loss that is a token mean.

The head over every prompt and padding position is most of the cost on a CPU (383 s against 91 s for 156 rows
of SmolLM2-135M); the losses are the same. Evaluation sums over tokens, so that it does not depend on how rows are
batched, and leaves the random state alone, so that looking at a run does not change it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F  # torch's own convention
from torch import Tensor
from torch.utils.data import DataLoader
from transformers.trainer_utils import EvalLoopOutput
from trl import SFTTrainer

from ftx.data.render import IGNORED
from ftx.job.checkpointing import Checkpoints

ScoreHook = Callable[[Any], dict[str, float]]


def supervised_logits(model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Logits at the positions that predict a supervised token, and those tokens.

    Args:
        model: a causal language model whose output embeddings are one module.
        inputs: `input_ids`, `attention_mask` and `labels`, each of shape (rows, length).

    Returns:
        fp32 logits of shape (supervised tokens, vocabulary) and targets of shape (supervised tokens,). The model's
        own code still runs after the head, so logit scaling and soft capping apply.
    """
    labels = inputs["labels"]
    predicts = torch.zeros_like(labels, dtype=torch.bool)
    predicts[:, :-1] = labels[:, 1:] != IGNORED
    targets = labels[:, 1:][predicts[:, :-1]]

    def keep_supervised(_module: Any, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (arguments[0][predicts].unsqueeze(0), *arguments[1:])

    hook = model.get_output_embeddings().register_forward_pre_hook(keep_supervised)
    try:
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False)
    finally:
        hook.remove()
    return outputs.logits[0].float(), targets


class SupervisedTrainer(SFTTrainer):  # type: ignore[misc]  # TRL has no types
    """Trains on rows that are token ids with labels already.

    Args:
        checkpoints: writes them, and keeps count of what the run has used.
        score_hook: computes further metrics of the validation split at each evaluation, when the primary metric
            is a task score.
        on_eval_batch: told after each evaluated batch how many are done, and of how many.
        loraplus_ratio: learning rate of every adapter's B over that of its A; None for the same rate.
    """

    def __init__(
        self,
        *args: Any,
        checkpoints: Checkpoints,
        score_hook: ScoreHook | None = None,
        on_eval_batch: Callable[[int, int], None] | None = None,
        loraplus_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        self._on_eval_batch = on_eval_batch
        self._score_hook = score_hook
        self._loraplus_ratio = loraplus_ratio
        self.checkpoints = checkpoints
        self.spent = checkpoints.spent
        self._target_tokens_of_step = 0
        super().__init__(*args, **kwargs)
        # The loss below divides by the tokens of the whole optimiser step itself.
        self.model_accepts_loss_kwargs = True
        self._loss_shifts_labels = True

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Summed cross entropy over the supervised tokens of the optimiser step, divided by their number."""
        if return_outputs:
            raise RuntimeError("SupervisedTrainer never builds outputs; evaluate() goes through evaluation_loop")
        logits, targets = supervised_logits(model, inputs)
        self.spent.tokens += int(inputs["attention_mask"].sum())
        self.spent.target_tokens += len(targets)
        self._target_tokens_of_step += len(targets)
        divisor = num_items_in_batch if num_items_in_batch is not None else max(len(targets), 1)
        return F.cross_entropy(logits, targets, reduction="sum") / divisor

    def evaluation_loop(
        self,
        dataloader: DataLoader[Any],
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Token-weighted loss and accuracy of a split."""
        model = self.model
        model.eval()
        loss_sum, right, count, rows = 0.0, 0, 0, 0
        with random_state_kept():
            for number, batch in enumerate(dataloader, start=1):
                inputs = self._prepare_inputs(batch)
                with torch.inference_mode(), self.compute_loss_context_manager():
                    logits, targets = supervised_logits(model, inputs)
                    loss_sum += float(F.cross_entropy(logits, targets, reduction="sum"))
                    right += int((logits.argmax(-1) == targets).sum())
                count += len(targets)
                rows += len(inputs["input_ids"])
                if self._on_eval_batch is not None:
                    self._on_eval_batch(number, len(dataloader))
            metrics = {
                f"{metric_key_prefix}_loss": loss_sum / count,
                f"{metric_key_prefix}_token_accuracy": right / count,
            }
            if self._score_hook is not None and metric_key_prefix == "eval":
                metrics |= {f"eval_{name}": value for name, value in self._score_hook(model).items()}
        # No predictions are kept: only their sums were needed.
        return EvalLoopOutput(np.empty(0), None, metrics, rows)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add to each training step how many tokens it saw, in all, and how many carried loss in this step."""
        if "loss" in logs:
            logs["tokens"] = self.spent.tokens
            logs["target_tokens"] = self._target_tokens_of_step
            self._target_tokens_of_step = 0
        super().log(logs, start_time)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Whole or not at all, unlike the Trainer's own."""
        self.checkpoints.save(self)
        self.state.best_model_checkpoint = self.checkpoints.best(self.state)

    def _init_training_state(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """Begin or go on; the best checkpoint is where the run directory is now."""
        begun: tuple[int, int] = super()._init_training_state(*args, **kwargs)
        self.state.best_model_checkpoint = self.checkpoints.best(self.state)
        return begun

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """No step of an epoch in which training was over before the run went on; the Trainer would make one."""
        if not self.control.should_training_stop:
            super()._run_epoch(*args, **kwargs)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """AdamW with its own rate for B where LoRA+ is asked for, else what the arguments say."""
        if self._loraplus_ratio is None:
            return cast(torch.optim.Optimizer, super().create_optimizer(model))
        from peft.optimizers import create_loraplus_optimizer

        self.optimizer = cast(
            torch.optim.Optimizer,
            create_loraplus_optimizer(
                self.model,
                torch.optim.AdamW,
                lr=self.args.learning_rate,
                loraplus_lr_ratio=self._loraplus_ratio,
                loraplus_weight_decay=self.args.weight_decay,
                betas=(self.args.adam_beta1, self.args.adam_beta2),
                eps=self.args.adam_epsilon,
            ),
        )
        return self.optimizer


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Give the random state back as it was: a data loader alone draws from it."""
    with torch.random.fork_rng(devices=[]):
        yield
