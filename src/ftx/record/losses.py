"""What the history of a run says of its losses."""

import math
from collections.abc import Sequence
from typing import Any

from ftx.record.history import Event
from ftx.record.run_record import LOSSES


def losses_from(events: Sequence[Event], seconds: float | None) -> dict[str, Any]:
    """The record's `losses`; what never happened is null.

    The best evaluation is the smallest finite eval_loss after the start; an untrained model is not a result.
    """
    losses: dict[str, Any] = dict.fromkeys(LOSSES)
    losses["seconds"] = seconds
    train = [event for event in events if event.split == "train" and _loss(event) is not None]
    if train:
        losses["first_train_loss"] = train[0].metrics["loss"]
        losses["final_train_loss"] = train[-1].metrics["loss"]
    evaluated = [
        event for event in events if event.split == "validation" and event.step > 0 and _loss(event) is not None
    ]
    if evaluated:
        losses["final_eval_loss"] = evaluated[-1].metrics["loss"]
    finite = [event for event in evaluated if math.isfinite(event.metrics["loss"])]
    if finite:
        best = min(finite, key=lambda event: event.metrics["loss"])
        losses |= {"best_eval_loss": best.metrics["loss"], "best_epoch": best.epoch, "best_step": best.step}
    return losses


def mean_train_loss(events: Sequence[Event], after: int, until: int) -> float | None:
    """Mean loss per supervised token over the optimiser steps in (after, until]; None if there are none."""
    steps = [
        event.metrics
        for event in events
        if event.split == "train" and after < event.step <= until and _loss(event) is not None
    ]
    tokens = sum(metrics["target_tokens"] for metrics in steps)
    if not tokens:
        return None
    return float(sum(metrics["loss"] * metrics["target_tokens"] for metrics in steps) / tokens)


def _loss(event: Event) -> float | None:
    return event.metrics.get("loss")
