"""Between Hydra's jobs and the pool's; a module whose name starts with _ is not scanned for plugins."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, filter_overrides, run_job, setup_globals
from hydra.errors import HydraException
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict
from rich.console import Console

from ftx.config.overrides import parsed
from ftx.errors import RunFailed
from ftx.launch.child import Exited, Raised, Returned
from ftx.launch.pool import Died, Ended, How, Job, NotStarted, Pool, Rules
from ftx.launch.slots import make_slots, visible_gpus
from ftx.record.layout import JOB_OUTPUT
from ftx.report.live import LiveView

if TYPE_CHECKING:
    from hydra_plugins.ftx_launcher.pool_launcher import PoolLauncher


class PoolInterrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM has ended the pool; the jobs that ran were told first, and `returns` says how they ended."""

    def __init__(self, exit_status: int, returns: Sequence[JobReturn]) -> None:
        super().__init__()
        self.exit_status, self.returns = exit_status, returns


class JobDied(RuntimeError):
    """A job that ended without a value and without an exception of its own."""


@dataclass(frozen=True)
class HydraJob:
    """One job of a sweep, composed when its turn comes."""

    number: int
    overrides: tuple[str, ...]
    master: DictConfig
    task: TaskFunction
    context: HydraContext

    @property
    def config(self) -> DictConfig:
        """The job's composed configuration."""
        config = self.context.config_loader.load_sweep_config(self.master, list(self.overrides))
        with open_dict(config):
            config.hydra.job.id, config.hydra.job.num = str(self.number), self.number
        return config

    def for_pool(self) -> Job:
        """As the pool takes it."""
        named = [word for word in self.overrides if word.startswith("hydra.job.name=")]
        name = str(parsed(named)[0].value()) if named else " ".join(filter_overrides(self.overrides))
        subdir = [word for word in self.overrides if word.startswith("hydra.sweep.subdir=")]
        folder = str(parsed(subdir)[0].value()) if subdir else str(self.number)
        console = Path(str(self.master.hydra.sweep.dir)) / folder / JOB_OUTPUT
        return Job(name or f"job {self.number}", self._packed, console)

    def _packed(self) -> bytes:
        packed: bytes = cloudpickle.dumps(_Call(self, Singleton.get_state()))
        return packed


class _Call:
    """Hydra's own `run_job`, in another process; that process composes, so that several do at once."""

    def __init__(self, job: HydraJob, singletons: Any) -> None:
        self._job, self._singletons = job, singletons

    def __call__(self) -> JobReturn:
        setup_globals()
        Singleton.set_state(self._singletons)
        done = run_job(
            hydra_context=self._job.context,
            task_function=self._job.task,
            config=self._job.config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
        if done.status is JobStatus.FAILED:
            raise done._return_value  # the pool sorts endings by what was raised
        return done


def run_pool(launcher: "PoolLauncher", jobs: Sequence[HydraJob]) -> list[JobReturn]:
    """Run the jobs as the launcher's settings say. Raises PoolInterrupted after a signal."""
    slots = make_slots(
        launcher.slots,
        device=launcher.device,
        gpus=visible_gpus() if launcher.device in ("auto", "cuda") else [],
        per_job=launcher.devices_per_job,
        threads=launcher.threads,
    )
    hours = launcher.max_hours
    rules = Rules(
        retries=launcher.retries,
        is_machine_fault=is_machine_fault,
        stop_on_failure=launcher.on_failure == "stop",
        max_seconds=None if hours is None else hours * 3600,
    )
    with LiveView(Console(file=sys.stdout), total=len(jobs), slots=len(slots)) as view:
        pool = Pool(slots, view, launcher.preload, rules)
        ended = pool.run([job.for_pool() for job in jobs])
    returns = [job_return(how, job) for how, job in zip(ended, jobs, strict=True)]
    if pool.interrupted_by is not None:
        raise PoolInterrupted(128 + pool.interrupted_by, returns)
    return returns


def is_machine_fault(how: How) -> bool:
    """Whether the same job may well succeed when it is tried again: out of memory or killed, not a divergence."""
    if isinstance(how, Raised):
        oom = isinstance(how.error, RunFailed) and how.error.status == "out_of_memory"
        return oom or isinstance(how.error, MemoryError)
    return isinstance(how, Died)


def job_return(ended: Ended, job: HydraJob) -> JobReturn:
    """What Hydra's sweepers expect of a job."""
    how = ended.how
    if isinstance(how, Returned):
        returned: JobReturn = how.value
        return returned
    done = JobReturn(overrides=list(job.overrides), status=JobStatus.FAILED)
    if isinstance(how, NotStarted):
        done._return_value = RunFailed("missing", f"not started: {how.reason}")
        return done
    with suppress(HydraException):  # a job that could not be composed
        done.cfg = job.config
        done.hydra_cfg = OmegaConf.create({"hydra": done.cfg.hydra})
    if isinstance(how, Raised):
        done._return_value = how.error
    else:
        done._return_value = JobDied(f"called sys.exit({how.status})" if isinstance(how, Exited) else how.reason)
    return done
