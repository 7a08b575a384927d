"""A pool's jobs on the screen: one line an ending, counts and time left, a table where there is a terminal."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ftx.errors import RunFailed
from ftx.launch.child import Exited, Raised, Returned
from ftx.launch.pool import Died, Ended, Job, NotStarted
from ftx.launch.slots import Slot
from ftx.report.live import LiveView, duration, in_words

SLOT = Slot("cpu:0")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Screen:
    """A view with its console and clock; the total is four jobs."""

    def __init__(self, *, terminal: bool) -> None:
        self.console = Console(file=io.StringIO(), force_terminal=terminal, width=120, color_system=None)
        self.clock = Clock()
        self.view = LiveView(self.console, total=4, slots=2, clock=self.clock)

    def start(self, name: str) -> Job:
        job = Job(name, bytes, Path(f"{name}.log"))
        self.view.started(job, SLOT)
        return job

    def end(self, job: Job, how: Any, *, again: bool = False) -> None:
        self.view.ended(Ended(job, how, 1, 2.04), again=again)

    def text(self) -> str:
        assert isinstance(self.console.file, io.StringIO)
        return self.console.file.getvalue()

    def drawn(self) -> str:
        """What the next tick draws."""
        before = len(self.text())
        self.view.tick()
        return self.text()[before:]


@pytest.fixture(params=[False, True], ids=["plain", "terminal"])
def screen(request: pytest.FixtureRequest) -> Screen:
    return Screen(terminal=request.param)


def test_every_ending_is_a_line_that_stays(screen: Screen) -> None:
    with screen.view:
        jobs = [screen.start(f"lora.rank={rank}") for rank in (8, 16, 32)]
        screen.view.tick()
        screen.end(jobs[0], Returned(0.25))
        screen.end(jobs[1], Returned(None))
        screen.end(jobs[2], Died(-9))
    for line in (
        "[1/4] lora.rank=8: done, 0.2500 (2.0 s)",
        "[2/4] lora.rank=16: done (2.0 s)",
        "[3/4] lora.rank=32: killed by SIGKILL (2.0 s)",
    ):
        assert line in screen.text()


def test_without_a_terminal_there_are_lines_and_nothing_else() -> None:
    screen = Screen(terminal=False)
    with screen.view:
        job = screen.start("lora.rank=[a]")  # brackets are no markup
        screen.view.progressed(job, {"step": 1, "total": 9, "loss": 0.5})
        screen.view.tick()
        screen.end(job, Returned(None))
        screen.view.tick()
    assert screen.text() == "[1/4] lora.rank=[a]: done (2.0 s)\n"


def test_a_long_line_is_not_broken(screen: Screen) -> None:
    name = " ".join(f"some.key{number}=value" for number in range(30))
    with screen.view:
        screen.end(screen.start(name), Returned(None))
    assert f"{name}: done" in screen.text()


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (Raised(ValueError("no such file\nsecond line"), ""), "ValueError: no such file"),
        (Raised(MemoryError(), ""), "MemoryError"),
        (
            Raised(RunFailed("diverged", "loss is nan at step 3"), ""),
            str(RunFailed("diverged", "loss is nan at step 3")),
        ),
        (Exited(3), "left with sys.exit(3)"),
        (Exited(0), "left with sys.exit(0)"),
        (Died(-9), "killed by SIGKILL"),
        (Died(-11), "killed by SIGSEGV"),
        (Died(-64), "killed by SIGRTMAX"),
        (Died(7), "the process left with status 7 and said nothing"),
        (NotStarted("interrupted"), "interrupted"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_failures_in_words(how: Any, expected: str) -> None:
    assert in_words(how) == expected


def test_the_table_shows_every_running_job() -> None:
    screen = Screen(terminal=True)
    with screen.view:
        first, _ = screen.start("lora.rank=8"), screen.start("lora.rank=16")
        screen.view.progressed(first, {"step": 1, "total": 11, "loss": 0.5})
        screen.clock.now += 40
        screen.view.progressed(first, {"step": 5, "total": 11, "loss": 0.125})
        lines = screen.drawn().splitlines()
    (row,) = [line for line in lines if "lora.rank=8" in line]
    assert row.split() == ["lora.rank=8", "cpu:0", "5/11", "0.1250", "60", "s"]  # 10 s a step, six steps to go
    (row,) = [line for line in lines if "lora.rank=16" in line]
    assert row.split() == ["lora.rank=16", "cpu:0", "starting"]


def test_a_first_step_says_nothing_of_the_time_left() -> None:
    screen = Screen(terminal=True)
    with screen.view:
        job = screen.start("lora.rank=8")
        screen.clock.now += 30
        screen.view.progressed(job, {"step": 1, "total": 11, "loss": None})
        (row,) = [line for line in screen.drawn().splitlines() if "lora.rank=8" in line]
    assert row.split() == ["lora.rank=8", "cpu:0", "1/11"]


def test_counts_and_time_left() -> None:
    screen = Screen(terminal=True)
    with screen.view:
        jobs = [screen.start("a"), screen.start("b")]
        assert "2 running, 0 done, 0 failed, 2 to go" in screen.drawn()
        screen.clock.now += 60
        screen.end(jobs[0], Returned(None))
        assert "1 running, 1 done, 0 failed, 2 to go, about 3.0 min left" in screen.drawn()
        screen.end(jobs[1], Exited(3))
        screen.start("c")
        assert "1 running, 1 done, 1 failed, 1 to go, about 60 s left" in screen.drawn()


def test_a_job_that_is_tried_again_has_not_ended(screen: Screen) -> None:
    with screen.view:
        job = screen.start("a")
        screen.end(job, Died(-9), again=True)
        assert "[0/4] a: killed by SIGKILL, starting it again (2.0 s)" in screen.text()
        if screen.console.is_terminal:
            assert "0 running, 0 done, 0 failed, 4 to go" in screen.drawn()
        screen.start("a")
        screen.end(job, Returned(None))
    assert "[1/4] a: done" in screen.text()


def test_jobs_of_the_same_name_do_not_disturb_each_other(screen: Screen) -> None:
    with screen.view:
        first, second = screen.start("seed=1"), screen.start("seed=1")
        screen.end(first, Returned(None))
        screen.view.progressed(second, {"step": 1, "total": 2, "loss": 0.5})
        if screen.console.is_terminal:
            assert "1 running, 1 done, 0 failed, 2 to go" in screen.drawn()
        screen.end(second, Returned(None))
    assert "[2/4] seed=1: done" in screen.text()


@pytest.mark.parametrize("facts", [{"step": 1, "total": 2}, {"note": "loading"}], ids=["no loss yet", "other words"])
def test_a_job_may_report_what_it_likes(screen: Screen, facts: dict[str, Any]) -> None:
    with screen.view:
        screen.view.progressed(screen.start("a"), facts)
        screen.view.tick()


@pytest.mark.parametrize(
    ("running", "expected"),
    [
        (0, "No further run starts: interrupted\n"),
        (2, "No further run starts: interrupted; 2 running jobs end first (Ctrl-C again: at once)\n"),
    ],
    ids=["nothing runs", "two run"],
)
def test_why_no_further_job_starts(running: int, expected: str) -> None:
    screen = Screen(terminal=False)
    with screen.view:
        for number in range(running):
            screen.start(str(number))
        screen.view.stopping("interrupted")
    assert screen.text() == expected


def test_the_terminal_is_given_back_after_an_error() -> None:
    screen = Screen(terminal=True)
    with pytest.raises(ValueError, match="stop"), screen.view:  # noqa: PT012 -- what is tested is the exit of the view
        screen.view.tick()
        raise ValueError("stop")
    assert screen.text().count("\x1b[?25h") == 1  # the cursor is shown again


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0 s"), (89, "89 s"), (90, "1.5 min"), (5399, "90.0 min"), (5400, "1.5 h"), (86400, "24.0 h")],
    ids=lambda value: str(value),
)
def test_durations(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected
