"""Share of outputs that equal the reference, spaces at the ends aside."""

from collections.abc import Sequence
from typing import Any

from ftx.scores.generation import Generated


def is_exact(item: Generated) -> bool:
    """Whether one output equals its reference."""
    return item.output.strip() == str(item.row.reference).strip()


def summarise(items: Sequence[Generated]) -> dict[str, Any]:
    """The split's score, with its n and how the outputs ended."""
    return {
        "exact_match": sum(map(is_exact, items)) / len(items),
        "n": len(items),
        "stopped_at_end_token": sum(item.stopped for item in items) / len(items),
        "ran_into_limit": sum(not item.stopped for item in items) / len(items),
    }


def prediction_line(split: str, item: Generated) -> dict[str, Any]:
    """One line of predictions.jsonl."""
    return {
        "split": split,
        "where": item.row.where,
        "prompt": item.prompt,
        "reference": item.row.reference,
        "output": item.output,
        "stopped": item.stopped,
        "metrics": {"exact_match": float(is_exact(item))},
    }
