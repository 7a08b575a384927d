"""Measure what starting a job costs: many jobs that do nothing, through the pool.

    python scripts/simulate_launcher.py [--jobs N] [--slots K] [--preload MODULE ...] [--through-hydra] [--json]

A job's time runs from the moment the pool asks for it (it is then composed and pickled) until the pool knows how its
process ended. Beside it stands what each job would cost as a program of its own with the same imports: the time of
`python -c 'import MODULES'`, one after another, the median of a few.

Without --through-hydra the jobs go to the pool directly. With it they come from a sweep of a small Hydra application,
`-m number=range(0,N) hydra/launcher=pool`: then composing and pickling every job's configuration, Hydra's own set-up
in the job's process and the files it writes there are included, and in the total also Hydra's check of the whole
sweep before it starts. Jobs are composed one after another, so that more slots make each of them wait longer.
The first job waits until the fork server has imported the modules.
"""

import argparse
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import hydra
from hydra.core.config_store import ConfigStore
from rich.console import Console

from ftx.launch.child import Returned
from ftx.launch.pool import Ended, Job, Pool
from ftx.launch.slots import Slot, cores
from ftx.report.live import LiveView
from hydra_plugins.ftx_launcher import _jobs

LIGHT_MODULES = ("hydra", "omegaconf", "hydra_plugins.ftx_launcher._jobs")  # the last is all that this script imports
FRESH_PROCESSES = 5


@dataclass(frozen=True)
class Cost:
    """What was measured; times are in seconds."""

    mode: str
    jobs: int
    failed: int
    slots: int
    preload: tuple[str, ...]
    job_median: float
    job_p95: float
    first_job: float
    wall_time: float
    jobs_per_second: float
    fresh_process_median: float
    fresh_process_to_job: float
    """How many times longer a program of its own takes to start."""


class Stopwatch:
    """A view that hands everything on to another one and keeps how long every job took."""

    def __init__(self, view: Any) -> None:
        self._view = view
        self._asked: dict[Path, float] = {}
        self.seconds: dict[Path, float] = {}
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        """What is not timed."""
        return getattr(self._view, name)

    def watched(self, job: Job) -> Job:
        """The same job, timed from the moment it is asked for; the file it prints to tells it from the others."""

        def pack() -> bytes:
            self._asked[job.console] = time.perf_counter()
            return job.pack()

        return replace(job, pack=pack)

    def ended(self, ended: Ended, *, again: bool) -> None:
        """A job's time ends here."""
        self.seconds[ended.job.console] = time.perf_counter() - self._asked[ended.job.console]
        self.failed += not isinstance(ended.how, Returned)
        self._view.ended(ended, again=again)


class TimedPool(Pool):
    """A pool with a stopwatch."""

    latest: ClassVar[Stopwatch]

    def run(self, jobs: Sequence[Job]) -> list[Ended]:
        """As any pool."""
        self.view = TimedPool.latest = Stopwatch(self.view)
        return super().run([self.view.watched(job) for job in jobs])


def nothing(*_arguments: Any) -> float:
    """The job."""
    return 0.0


def through_the_pool(jobs: int, slots: int, preload: Sequence[str], folder: Path) -> None:
    """Run the jobs by the pool alone."""
    room = [Slot(f"cpu:{number}") for number in range(slots)]
    todo = [Job(str(n), lambda: cloudpickle.dumps(nothing), folder / f"{n}.log") for n in range(jobs)]
    with LiveView(Console(file=sys.stdout), total=jobs, slots=slots) as view:
        TimedPool(room, view, preload).run(todo)


def through_hydra(jobs: int, slots: int, preload: Sequence[str], folder: Path) -> None:
    """Run the jobs as a sweep of an application with one key."""
    ConfigStore.instance().store(name="simulation", node={"number": 0})
    _jobs.Pool = TimedPool  # the launcher makes its pool itself
    sys.argv[1:] = [
        "--multirun",
        f"number=range(0,{jobs})",
        "hydra/sweeper=basic",
        "hydra/launcher=pool",
        "hydra.launcher.device=cpu",
        f"hydra.launcher.slots={slots}",
        f"hydra.launcher.preload=[{','.join(preload)}]",
        "hydra/job_logging=disabled",
        "hydra/hydra_logging=disabled",
        f"hydra.sweep.dir='{folder}'",
    ]
    hydra.main(version_base="1.3", config_path=None, config_name="simulation")(nothing)()


def fresh_process_seconds(modules: Sequence[str]) -> float:
    """How long a program takes that imports these modules and ends."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {', '.join(modules)}"], check=True)
    return time.perf_counter() - began


def measure(jobs: int, slots: int, preload: Sequence[str], *, hydra_too: bool) -> Cost:
    """Run both and compare."""
    fresh = statistics.median(fresh_process_seconds(preload) for _ in range(FRESH_PROCESSES))
    run = through_hydra if hydra_too else through_the_pool
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        run(jobs, slots, preload, Path(folder))
        wall = time.perf_counter() - began
    seconds = list(TimedPool.latest.seconds.values())
    median = statistics.median(seconds)
    return Cost(
        mode="through Hydra" if hydra_too else "pool",
        jobs=len(seconds),
        failed=TimedPool.latest.failed,
        slots=slots,
        preload=tuple(preload),
        job_median=median,
        job_p95=sorted(seconds)[int(0.95 * (len(seconds) - 1))],
        first_job=seconds[0],
        wall_time=wall,
        jobs_per_second=jobs / wall,
        fresh_process_median=fresh,
        fresh_process_to_job=fresh / median,
    )


def in_words(cost: Cost) -> str:
    """A few lines."""
    return (
        f"{cost.jobs} jobs ({cost.mode}) on {cost.slots} slots, {cost.failed} failed: "
        f"{cost.wall_time:.1f} s, {cost.jobs_per_second:.1f} jobs a second\n"
        f"one job: median {cost.job_median * 1000:.0f} ms, 95% within {cost.job_p95 * 1000:.0f} ms, "
        f"the first {cost.first_job * 1000:.0f} ms\n"
        f"a program of its own with {', '.join(cost.preload)}: {cost.fresh_process_median * 1000:.0f} ms, "
        f"{cost.fresh_process_to_job:.1f} times as long as one job"
    )


def main() -> int:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description="Measure what starting a job costs.")
    parser.add_argument("--jobs", type=int, default=1000, help="how many jobs (default: 1000)")
    parser.add_argument("--slots", type=int, default=cores(), help="how many at once (default: one a core)")
    parser.add_argument("--preload", nargs="+", default=list(LIGHT_MODULES), help="modules the fork server imports")
    parser.add_argument("--through-hydra", action="store_true", help="as a sweep of a small Hydra application")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of words")
    options = parser.parse_args()
    cost = measure(options.jobs, options.slots, options.preload, hydra_too=options.through_hydra)
    print(json.dumps(asdict(cost)) if options.json else in_words(cost))
    return 1 if cost.failed else 0


if __name__ == "__main__":
    sys.exit(main())
