"""Bars on a terminal, plain lines elsewhere, and never silence for long."""

import io

from rich.console import Console

from ftx.report.progress import Progress


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines_of(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_plain_lines_are_few_and_say_how_long_it_takes() -> None:
    console, clock = Console(file=io.StringIO()), Clock()
    progress = Progress(console, clock)
    progress.start(100)
    clock.now += 50  # an evaluation before the first step is not part of a step
    progress.first_step()
    for step in range(1, 101):
        clock.now += 2
        progress.step(step, 1.0 / step)
    lines = lines_of(console)
    assert len(lines) == 10
    assert lines[4] == "step 50/100  loss 0.0200  100 s, about 100 s left"


def test_a_long_evaluation_is_mentioned_a_short_one_is_not() -> None:
    console, clock = Console(file=io.StringIO()), Clock()
    progress = Progress(console, clock)
    progress.start(10)
    progress.working("evaluating", 1, 3)
    clock.now += 11
    progress.working("evaluating", 2, 3)
    progress.working("evaluating", 3, 3)
    assert lines_of(console) == ["evaluating: 2 of 3 batches"]


def test_a_terminal_gets_bars() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    progress = Progress(console)
    progress.start(4)
    progress.step(2, 0.5)
    progress.working("evaluating", 1, 2)
    progress.evaluated(2, 1.0, "validation", {"loss": 0.25, "token_accuracy": 0.5})
    progress.stop()
    progress.stop()
    text = "\n".join(lines_of(console))
    assert "training" in text
    assert "2/4" in text
    assert "epoch 1.00, step 2: validation loss 0.2500  token accuracy 0.5000" in text
