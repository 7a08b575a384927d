"""What is said of the losses comes out of the history alone."""

from math import nan

from ftx.record.history import Event
from ftx.record.losses import losses_from, mean_train_loss


def train(step: int, loss: float, tokens: int) -> Event:
    return Event(step, step / 2, "train", {"loss": loss, "target_tokens": tokens}, 0.0)


def evaluated(step: int, loss: float) -> Event:
    return Event(step, step / 2, "validation", {"loss": loss}, 0.0)


EVENTS = [evaluated(0, 0.1), train(1, 4.0, 10), train(2, 2.0, 30), evaluated(2, 1.0), train(3, 1.5, 10)]


def test_the_untrained_model_is_not_the_best() -> None:
    assert losses_from(EVENTS, 3.0) == {
        "first_train_loss": 4.0,
        "final_train_loss": 1.5,
        "best_eval_loss": 1.0,
        "best_epoch": 1.0,
        "best_step": 2,
        "final_eval_loss": 1.0,
        "seconds": 3.0,
    }


def test_what_never_happened_is_null() -> None:
    assert set(losses_from([], None).values()) == {None}


def test_a_loss_that_is_not_finite_is_never_the_best() -> None:
    losses = losses_from([*EVENTS, evaluated(3, nan)], None)
    assert losses["best_step"] == 2
    assert losses["final_eval_loss"] is not None
    assert losses["final_eval_loss"] != losses["final_eval_loss"]


def test_an_epochs_train_loss_is_a_mean_over_tokens() -> None:
    assert mean_train_loss(EVENTS, 0, 2) == 2.5
    assert mean_train_loss(EVENTS, 3, 4) is None
