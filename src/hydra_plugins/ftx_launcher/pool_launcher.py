"""Hydra launcher `pool`: a thin class over `ftx.launch`. Light, because every Hydra application imports it."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, configure_log, filter_overrides, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

_LOG = logging.getLogger(__name__)


@dataclass
class PoolLauncherConf:
    """The launcher's settings; in ftx they come from the study's node, elsewhere they are typed here.

    Typed Any, because the defaults are interpolations; the class below says what they come to.
    """

    _target_: str = "hydra_plugins.ftx_launcher.pool_launcher.PoolLauncher"
    slots: Any = "${oc.select:study.slots,auto}"
    devices_per_job: Any = "${oc.select:study.devices_per_job,1}"
    device: str = "${oc.select:hardware.device,auto}"
    threads: Any = "${oc.select:hardware.threads,null}"
    preload: Any = "${oc.select:study.preload,[]}"
    retries: Any = "${oc.select:study.retries,0}"
    on_failure: str = "${oc.select:study.on_failure,continue}"
    max_hours: Any = "${oc.select:study.max_hours,null}"


ConfigStore.instance().store(group="hydra/launcher", name="pool", node=PoolLauncherConf, provider="ftx")


class PoolLauncher(Launcher):
    """Runs every job of a sweep in a process of its own; the arguments are explained at ftx's `study` keys."""

    def __init__(
        self,
        slots: str | int,
        devices_per_job: int,
        device: str,
        threads: int | None,
        preload: Sequence[str],
        retries: int,
        on_failure: str,
        max_hours: float | None,
    ) -> None:
        self.slots = None if slots == "auto" else int(slots)
        self.devices_per_job = devices_per_job
        self.device = device
        self.threads = threads
        self.preload = list(preload)
        self.retries = retries
        self.on_failure = on_failure
        self.max_hours = max_hours
        self.config: DictConfig | None = None
        self.task_function: TaskFunction | None = None
        self.hydra_context: HydraContext | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what Hydra hands over."""
        self.config, self.task_function, self.hydra_context = config, task_function, hydra_context

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs and return how each ended, in order; a failed one raises when its value is read."""
        from hydra_plugins.ftx_launcher._jobs import HydraJob, run_pool

        assert self.config is not None
        assert self.task_function is not None
        assert self.hydra_context is not None
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        sweep_dir = Path(str(self.config.hydra.sweep.dir))
        sweep_dir.mkdir(parents=True, exist_ok=True)
        context, task = self.hydra_context, self.task_function
        jobs = [
            HydraJob(number, tuple(overrides), self.config, task, context)
            for number, overrides in enumerate(job_overrides, initial_job_idx)
        ]
        for job in jobs:
            _LOG.info("\t#%d : %s", job.number, " ".join(filter_overrides(job.overrides)))
        return run_pool(self, jobs)
