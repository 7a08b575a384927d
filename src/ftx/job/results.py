"""What came out of a finished run: which checkpoint counts, its value, and what it cost."""

from dataclasses import dataclass
from typing import Any

from ftx.config.schema import RunConfig
from ftx.job.arguments import trainer_metric
from ftx.job.hardware import peak_memory_bytes
from ftx.job.trainer import SupervisedTrainer
from ftx.model.adapter import parameter_counts


@dataclass
class Outcome:
    """What a finished run adds to its record."""

    result: dict[str, Any]
    scores: dict[str, Any]
    cost: dict[str, Any]
    stop_reason: str | None
    diverged: str | None
    """The first number that was not finite, where training went on all the same."""
    model_facts: dict[str, Any]


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
    counted = state.stateful_callbacks["EarlyStop"]["attributes"]["early_stopping_patience_counter"]
    return (
        f"{config.metric.name} did not improve in {counted} evaluations (patience {config.early_stop.patience}; "
        f"step {state.global_step} of {state.max_steps})"
    )


def result_of(
    config: RunConfig,
    chosen: dict[str, Any],
    validation: dict[str, float],
    test: dict[str, float],
    scores: dict[str, Any],
) -> dict[str, Any]:
    """The primary metric: chosen on validation, measured on test where there is one."""
    name = config.metric.name
    validation_value = validation[trainer_metric(name)]
    measured = _values_of(name, validation, test, scores)["test"]
    on_test = measured is not None
    return {
        "metric": name,
        "direction": config.metric.direction,
        "split": "test" if on_test else "validation",
        "checkpoint": chosen,
        "value": measured if on_test else validation_value,
        "validation_value": validation_value,
        "same_rows": not on_test,
        "secondary": {other: _values_of(other, validation, test, scores) for other in config.metric.secondary},
    }


def _values_of(
    name: str, validation: dict[str, float], test: dict[str, float], scores: dict[str, Any]
) -> dict[str, float | None]:
    """One metric of the chosen checkpoint on each split; None where it was not measured."""
    if name.startswith("eval_"):
        return {"validation": validation.get(name), "test": test.get(name.replace("eval_", "test_", 1))}
    return {split: scores.get(split, {}).get(name) for split in ("validation", "test")}


def cost_of(trainer: SupervisedTrainer, model: Any, config: RunConfig) -> dict[str, Any]:
    """What the run took, in all its sessions that counted. `tokens` counts every token of the training passes,
    `trained_tokens` those with loss; `seconds` are the whole job's, `tokens_per_second` those of the steps alone.
    """
    spent = trainer.spent
    return {
        "seconds": trainer.checkpoints.seconds(),
        "tokens_per_second": spent.tokens / max(spent.step_seconds, 1e-9),
        "peak_memory_bytes": spent.most_memory(peak_memory_bytes(config.hardware.device)),
        "trainable_parameters": parameter_counts(model)["trainable"],
        "steps": trainer.state.global_step,
        "tokens": spent.tokens,
        "trained_tokens": spent.target_tokens,
        "effective_batch": config.optim.batch_size,
    }


def _evaluations(trainer: SupervisedTrainer) -> dict[int, dict[str, float]]:
    return {entry["step"]: entry for entry in trainer.state.log_history if "eval_loss" in entry}
