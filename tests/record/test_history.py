import math
from pathlib import Path

from ftx.record.history import Event, append_event, read_history


def log(path: Path, step: int, split: str = "train", **metrics: float) -> None:
    append_event(path, step=step, epoch=step / 10, split=split, metrics=metrics, time=1.0)


def test_events_come_back_by_step_with_nan_and_one_per_split(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    log(path, 0, "validation", eval_loss=2.0)
    log(path, 5, train_loss=math.nan)
    log(path, 5, lr=1e-4)
    log(path, 5, "validation", eval_loss=1.0)
    events, problems = read_history(path)
    assert problems == []
    assert [(event.step, event.split) for event in events] == [
        (0, "validation"),
        (5, "train"),
        (5, "validation"),
    ]
    assert math.isnan(events[1].metrics["train_loss"])
    assert events[1].metrics["lr"] == 1e-4
    assert events[2] == Event(5, 0.5, "validation", {"eval_loss": 1.0}, 1.0)


def test_after_a_resume_the_later_value_counts(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    for step, loss in [(10, 3.0), (20, 2.0), (30, 1.0), (20, 2.5), (30, 1.5)]:
        log(path, step, train_loss=loss)
    events, _ = read_history(path)
    assert [(event.step, event.metrics["train_loss"]) for event in events] == [
        (10, 3.0),
        (20, 2.5),
        (30, 1.5),
    ]


def test_a_half_line_is_reported_and_not_glued_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    log(path, 1, train_loss=2.0)
    log(path, 2, train_loss=1.0)
    path.write_bytes(path.read_bytes()[:-20])
    log(path, 3, train_loss=0.5)
    events, problems = read_history(path)
    assert [event.step for event in events] == [1, 3]
    assert len(problems) == 1
    assert "history.jsonl, line 2: half a line" in problems[0]


def test_foreign_lines_are_reported_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"step": 1}\n\n[]\n{"step": "1", "epoch": 1, "split": "a", "metrics": {}, "time": 1}\n')
    events, problems = read_history(path)
    assert events == []
    assert problems == [
        "history.jsonl, line 1: no epoch, split, metrics, time",
        "history.jsonl, line 3: expected a JSON object, got list",
        "history.jsonl, line 4: step must be an integer, split a text, metrics an object",
    ]


def test_a_missing_history_is_a_problem_not_an_error(tmp_path: Path) -> None:
    events, problems = read_history(tmp_path / "history.jsonl")
    assert events == []
    assert problems == ["history.jsonl: cannot be read (No such file or directory)"]
