"""The model's own answers, during training where they decide, and at the end for the record."""

from typing import Any

from ftx.job.preparation import Preparation
from ftx.job.trainer import ScoreHook
from ftx.record.atomic import write_text
from ftx.record.layout import RunDir
from ftx.record.strict_json import dumps
from ftx.report.progress import Progress
from ftx.scores.exact_match import prediction_line, summarise
from ftx.scores.generation import Generated, generate, longest_answer


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
        if split in ready.data.splits:
            predictions[split] = generate_split(ready, model, split, progress)
    return predictions


def generate_split(ready: Preparation, model: Any, split: str, progress: Progress) -> list[Generated]:
    """Answers to the first `score.max_examples` rows of a split."""
    score = ready.config.score
    rows = ready.data.splits[split][: score.max_examples]
    return generate(
        model,
        ready.tokenizer,
        rows,
        batch_size=score.batch_size,
        max_new_tokens=score.max_new_tokens or longest_answer(rows),
        on_batch=lambda done, total: progress.working(f"scoring {split}", done, total),
    )


def write_predictions(run: RunDir, predictions: dict[str, list[Generated]]) -> None:
    """One line per scored example; whole or not at all."""
    lines = [dumps(prediction_line(split, item)) for split, items in predictions.items() for item in items]
    if lines:
        write_text(run.predictions, "".join(f"{line}\n" for line in lines))
