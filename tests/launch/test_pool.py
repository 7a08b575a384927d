"""Jobs end in every way there is, in real processes, and harm nobody."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from ftx.launch.child import Exited, Raised, Returned
from ftx.launch.pool import Died, Ended, How, Job, NotStarted, Pool, Rules
from launch import jobs

TESTS = Path(__file__).parents[1]

Call = Callable[[], Any]
RunJobs = Callable[..., list[Ended]]


@pytest.fixture
def view() -> jobs.Remembers:
    return jobs.Remembers()


@pytest.fixture
def run(tmp_path: Path, view: jobs.Remembers) -> RunJobs:
    """Runs callables, named 0, 1, 2 and so on."""

    def call(calls: Sequence[Call], slots: int = 2, **rules: Any) -> list[Ended]:
        named = [jobs.job(str(number), tmp_path, each) for number, each in enumerate(calls)]
        return Pool(jobs.slots(slots), view, ["ftx.launch.child", "ftx.launch.pool"], Rules(**rules)).run(named)

    return call


def console(folder: Path, name: str = "0") -> str:
    return (folder / "consoles" / f"{name}.log").read_text()


def in_words(how: How) -> tuple[Any, ...]:
    """An ending as something that can be compared."""
    match how:
        case Raised(error):
            return Raised, type(error).__name__, str(error)
        case Died():
            return Died, how.status, how.reason
        case _:
            return type(how), *vars(how).values()


def test_values_come_back_in_the_order_of_the_jobs(run: RunJobs) -> None:
    ended = run([partial(jobs.gives, "slow", 0.5), partial(jobs.gives, {"a": 1}), partial(jobs.gives, None)])
    assert [each.how for each in ended] == [Returned("slow"), Returned({"a": 1}), Returned(None)]
    assert [each.job.name for each in ended] == ["0", "1", "2"]
    assert ended[0].seconds >= 0.5 > ended[1].seconds


def test_no_jobs(run: RunJobs) -> None:
    assert run([]) == []


ENDINGS: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "raises": (partial(jobs.raises, ValueError, "no such file"), (Raised, "ValueError", "no such file")),
    "raises what cannot be pickled": (
        partial(jobs.raises, jobs.WithALock, "stuck"),
        (Raised, "RuntimeError", "WithALock: stuck"),
    ),
    "raises what cannot be read back": (
        partial(jobs.raises, jobs.TwoWords, "rank", 3),
        (Raised, "RuntimeError", "TwoWords: rank is 3"),
    ),
    "returns what cannot be pickled": (
        jobs.gives_a_lock,
        (Raised, "TypeError", "cannot pickle '_thread.lock' object"),
    ),
    "runs out of memory": (jobs.wants_too_much, (Raised, "MemoryError", "")),
    "sys.exit()": (partial(jobs.leaves, None), (Exited, 0)),
    "sys.exit(0)": (partial(jobs.leaves, 0), (Exited, 0)),
    "sys.exit(3)": (partial(jobs.leaves, 3), (Exited, 3)),
    "sys.exit(text)": (partial(jobs.leaves, "no disk left"), (Exited, 1)),
    "os._exit(7)": (partial(jobs.vanishes, 7), (Died, 7, "the process left with status 7 and said nothing")),
    "os._exit(0)": (partial(jobs.vanishes, 0), (Died, 0, "the process left with status 0 and said nothing")),
    "kill -9": (jobs.kills_itself, (Died, -signal.SIGKILL, "killed by SIGKILL")),
    "segmentation fault": (jobs.reads_address_zero, (Died, -signal.SIGSEGV, "killed by SIGSEGV")),
}


@pytest.mark.parametrize(("call", "expected"), ENDINGS.values(), ids=ENDINGS)
def test_an_ending_is_what_it_was_and_the_slot_is_used_again(
    run: RunJobs, view: jobs.Remembers, call: Call, expected: tuple[Any, ...]
) -> None:
    before, bad, after = run([partial(jobs.gives, 1), call, partial(jobs.gives, 2)], slots=1)
    assert in_words(bad.how) == expected
    assert (before.how, after.how) == (Returned(1), Returned(2))
    assert view.started_on == [("0", "slot 0"), ("1", "slot 0"), ("2", "slot 0")]
    assert [(ended.job.name, again) for ended, again in view.endings] == [("0", False), ("1", False), ("2", False)]


def test_a_value_that_cannot_be_read_back_is_a_failure_of_its_job(run: RunJobs) -> None:
    before, bad, after = run([partial(jobs.gives, 1), jobs.gives_what_cannot_be_read, partial(jobs.gives, 2)], slots=1)
    assert isinstance(bad.how, Raised)
    assert (before.how, after.how) == (Returned(1), Returned(2))


def test_a_job_beside_one_that_is_killed_does_not_notice(run: RunJobs) -> None:
    long, *killed = run([partial(jobs.gives, "here", 0.6), *[jobs.kills_itself] * 3])
    assert long.how == Returned("here")
    assert [each.how for each in killed] == [Died(-signal.SIGKILL)] * 3


def test_a_traceback_comes_back_and_stands_in_the_console_file(run: RunJobs, tmp_path: Path) -> None:
    (ended,) = run([partial(jobs.raises, ValueError, "no such file")])
    assert isinstance(ended.how, Raised)
    assert "in raises" in ended.how.trace
    assert ended.how.trace in console(tmp_path)


def test_the_text_of_sys_exit_stands_in_the_console_file(run: RunJobs, tmp_path: Path) -> None:
    run([partial(jobs.leaves, "no disk left")])
    assert console(tmp_path) == "no disk left\n"


def test_a_job_that_cannot_be_packed_fails_alone(view: jobs.Remembers, tmp_path: Path) -> None:
    def pack() -> bytes:
        raise ValueError("cannot be composed")

    good = jobs.job("good", tmp_path, partial(jobs.gives, 1))
    bad = Job("bad", pack, tmp_path / "bad.log")
    first, second, third = Pool(jobs.slots(1), view).run([good, bad, good])
    assert in_words(second.how) == (Raised, "ValueError", "cannot be composed")
    assert (first.how, third.how) == (Returned(1), Returned(1))


def test_never_more_jobs_at_once_than_slots(run: RunJobs, view: jobs.Remembers, tmp_path: Path) -> None:
    folder = tmp_path / "running"
    folder.mkdir()
    ended = run([partial(jobs.counts_neighbours, folder)] * 7, slots=3)
    running = [each.how.value for each in ended if isinstance(each.how, Returned)]
    assert len(running) == 7
    assert max(running) == 3
    assert {slot for _, slot in view.started_on} == {"slot 0", "slot 1", "slot 2"}


def test_the_environment_of_the_slot_reaches_the_job_and_nobody_else(run: RunJobs) -> None:
    ended = run([partial(jobs.environment, "SLOT")] * 2, slots=2)
    assert [each.how for each in ended] == [Returned("0"), Returned("1")]
    assert "SLOT" not in os.environ


def test_every_job_has_a_process_and_a_group_of_its_own(run: RunJobs) -> None:
    ended = run([jobs.ids] * 4)
    pids = [each.how.value for each in ended if isinstance(each.how, Returned)]
    assert len({pid for pid, _ in pids} | {os.getpid()}) == 5
    assert all(pid == group for pid, group in pids)


def test_a_job_does_not_see_what_another_left_in_a_module(run: RunJobs) -> None:
    before = dict(jobs.counter)
    ended = run([jobs.counts_calls] * 3, slots=1)
    assert [each.how for each in ended] == [Returned(1)] * 3
    assert jobs.counter == before


def test_what_a_job_reports_reaches_the_view(run: RunJobs, view: jobs.Remembers) -> None:
    run([partial(jobs.reports, 3), partial(jobs.gives, 1)])
    assert view.facts == [
        ("0", {"step": 1, "total": 3, "loss": 1.0}),
        ("0", {"step": 2, "total": 3, "loss": 0.5}),
        ("0", {"step": 3, "total": 3, "loss": 1 / 3}),
    ]
    assert view.ticks > 0


def test_many_reports_do_not_block_a_job(run: RunJobs, view: jobs.Remembers) -> None:
    (ended,) = run([partial(jobs.reports, 3000)])  # more than a pipe holds
    assert ended.how == Returned(None)
    assert len(view.facts) == 3000


@pytest.mark.parametrize(
    ("failures", "fail", "retries", "expected", "tries"),
    [
        (1, jobs.kills_itself, 1, Returned(2), 2),
        (2, jobs.kills_itself, 5, Returned(3), 3),
        (9, jobs.kills_itself, 2, Died(-signal.SIGKILL), 3),
        (1, jobs.kills_itself, 0, Died(-signal.SIGKILL), 1),
        (9, partial(jobs.leaves, 3), 2, Exited(3), 1),
    ],
    ids=["one more try", "as often as needed", "not more often than allowed", "none allowed", "no machine fault"],
)
def test_retries(
    run: RunJobs,
    view: jobs.Remembers,
    tmp_path: Path,
    failures: int,
    fail: Call,
    retries: int,
    expected: How,
    tries: int,
) -> None:
    folder = tmp_path / "tries"
    folder.mkdir()
    (ended,) = run([partial(jobs.works_at_last, folder, failures, fail)], retries=retries)
    assert (ended.how, ended.tries) == (expected, tries)
    assert len(list(folder.iterdir())) == tries
    assert [again for _, again in view.endings] == [True] * (tries - 1) + [False]


def test_the_rules_say_what_a_machine_fault_is(run: RunJobs, tmp_path: Path) -> None:
    asked: list[How] = []

    def is_fault(how: How) -> bool:
        asked.append(how)
        return isinstance(how, Exited)

    folder = tmp_path / "tries"
    folder.mkdir()
    at_last = partial(jobs.works_at_last, folder, 1, partial(jobs.leaves, 4))
    ended = run([at_last, jobs.kills_itself], slots=1, retries=1, is_machine_fault=is_fault)
    assert [each.how for each in ended] == [Returned(2), Died(-signal.SIGKILL)]
    assert Exited(4) in asked


def test_stop_on_failure_starts_nothing_more_and_lets_the_running_one_end(run: RunJobs, view: jobs.Remembers) -> None:
    fails, runs, never = run([partial(jobs.leaves, 3), partial(jobs.gives, 1, 0.5), jobs.ids], stop_on_failure=True)
    assert (fails.how, runs.how) == (Exited(3), Returned(1))
    assert never.how == NotStarted("0 has failed")
    assert never.tries == 0
    assert view.reasons == ["0 has failed"]


def test_a_job_that_waits_for_its_next_try_when_the_pool_stops_keeps_its_ending(run: RunJobs) -> None:
    killed, failed, never = run(
        [jobs.kills_itself, partial(jobs.leaves, 3), jobs.ids], slots=1, retries=1, stop_on_failure=True
    )
    assert (failed.how, type(never.how)) == (Exited(3), NotStarted)
    assert (killed.how, killed.tries) == (Died(-signal.SIGKILL), 1)


def test_when_the_time_is_spent_nothing_starts_and_the_running_one_ends(run: RunJobs, view: jobs.Remembers) -> None:
    runs, never, nor_this = run([partial(jobs.gives, 1, 0.6), jobs.ids, jobs.ids], slots=1, max_seconds=0.36)
    assert runs.how == Returned(1)
    assert never.how == nor_this.how == NotStarted("the time of 0.0001 h is spent")
    assert view.reasons == ["the time of 0.0001 h is spent"]


def test_time_that_suffices_stops_nothing(run: RunJobs, view: jobs.Remembers) -> None:
    ended = run([partial(jobs.gives, 1)] * 3, max_seconds=60)
    assert [each.how for each in ended] == [Returned(1)] * 3
    assert view.reasons == []


# In a process of its own: a fork server is started once a process, and signals are for whole processes.


def script(call: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", f"from pathlib import Path\nfrom launch import jobs\njobs.{call}"],
        env={name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
        | {"PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("prints, 'loss 0.5'", ["loss 0.5", "loss 0.5 on stderr"]),
        ("prints, 'last words', then=jobs.kills_itself", ["last words", "last words on stderr"]),
        ("c_writes, 'from C\\n'", ["from C"]),
        ("c_prints, 'from the C library'", ["from the C library"]),
    ],
    ids=["print", "print before kill -9", "write of C", "puts of C"],
)
def test_what_a_job_prints_lands_in_its_console_file(tmp_path: Path, call: str, expected: list[str]) -> None:
    # Not in the tests' process: whether Python and C keep text in buffers is settled when a process starts.
    started = script(f"pool_of_one(Path({str(tmp_path)!r}), jobs.{call})")
    out, _ = started.communicate(timeout=30)
    assert out == ""
    assert sorted(console(tmp_path).splitlines()) == expected


@pytest.mark.parametrize(
    ("preload", "there"),
    [([], False), (["wsgiref.headers"], True), (["no_such_module", "wsgiref.headers"], True)],
    ids=["nothing", "a module", "a module behind one that does not exist"],
)
def test_preloaded_modules_are_there_before_the_job_begins(tmp_path: Path, preload: list[str], there: bool) -> None:
    started = script(f"pool_that_preloads(Path({str(tmp_path)!r}), {preload}, 'wsgiref.headers')")
    out, _ = started.communicate(timeout=30)
    assert json.loads(out) == {"value": there}


@contextmanager
def waiting_jobs(folder: Path, *, deaf: bool = False) -> Iterator[subprocess.Popen[str]]:
    """A pool whose first two jobs have begun, and whose other two wait for a slot."""
    started = script(f"pool_of_waiting_jobs(Path({str(folder)!r}), deaf={deaf})", start_new_session=True)
    until(lambda: (folder / "began-0").exists() and (folder / "began-1").exists())
    family = psutil.Process(started.pid).children(recursive=True)
    try:
        yield started
        _, alive = psutil.wait_procs(family, timeout=5)
        assert alive == []
    finally:
        for process in [*family, psutil.Process(started.pid)] if started.poll() is None else family:
            if process.is_running():
                process.kill()
        started.communicate()


def until(happened: Callable[[], bool], seconds: float = 20) -> None:
    limit = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.02)


def names(folder: Path, kind: str) -> list[str]:
    return sorted(path.name for path in folder.glob(f"{kind}-*"))


SIGNALS = pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])


@SIGNALS
def test_the_first_signal_lets_the_running_jobs_end_and_starts_no_other(tmp_path: Path, sent: signal.Signals) -> None:
    with waiting_jobs(tmp_path) as started:
        started.send_signal(sent)
        out, _ = started.communicate(timeout=10)
        said = json.loads(out)
    assert said["interrupted_by"] == sent
    assert said["how"][:2] == [{"kind": "Returned", "value": "cleaned up"}] * 2
    assert said["how"][2:] == [{"kind": "NotStarted", "reason": "interrupted"}] * 2
    assert said["reasons"] == ["interrupted"]
    assert names(tmp_path, "cleaned") == ["cleaned-0", "cleaned-1"]
    assert names(tmp_path, "began") == ["began-0", "began-1"]


@SIGNALS
def test_the_second_signal_ends_jobs_that_ignored_the_first(tmp_path: Path, sent: signal.Signals) -> None:
    with waiting_jobs(tmp_path, deaf=True) as started:
        started.send_signal(sent)
        with pytest.raises(subprocess.TimeoutExpired):
            started.wait(timeout=0.5)
        started.send_signal(sent)
        out, _ = started.communicate(timeout=5)
        said = json.loads(out)
    assert said["interrupted_by"] == sent
    assert said["how"][:2] == [{"kind": "Died", "status": -signal.SIGKILL}] * 2
    assert [how["kind"] for how in said["how"][2:]] == ["NotStarted"] * 2
    assert names(tmp_path, "began") == ["began-0", "began-1"]


def test_a_signal_while_a_job_is_packed_keeps_it_from_starting(view: jobs.Remembers, tmp_path: Path) -> None:
    def pack() -> bytes:
        signal.raise_signal(signal.SIGINT)
        return late.pack()

    late = jobs.job("late", tmp_path, partial(jobs.gives, 1))
    pool = Pool(jobs.slots(1), view)
    (ended,) = pool.run([Job("late", pack, tmp_path / "late.log")])
    assert pool.interrupted_by == signal.SIGINT
    assert ended.how == NotStarted("interrupted")
    assert view.started_on == []


def test_a_pool_leaves_the_signal_handlers_as_they_were(run: RunJobs) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run([partial(jobs.gives, 1)])
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_when_the_launcher_is_killed_its_jobs_find_out_and_end(tmp_path: Path) -> None:
    with waiting_jobs(tmp_path) as started:
        pids = [int((tmp_path / f"began-{number}").read_text()) for number in range(2)]
        assert all(psutil.pid_exists(pid) for pid in pids)
        started.kill()
        started.wait()
        until(lambda: len(names(tmp_path, "orphaned")) == 2, seconds=3)
        # waiting_jobs then checks that no process is left over, the fork server neither
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert names(tmp_path, "began") == ["began-0", "began-1"]
