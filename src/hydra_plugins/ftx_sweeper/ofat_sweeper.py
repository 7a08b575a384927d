"""Hydra sweeper `ofat`: a thin class over `ftx.design`. Light, because every Hydra application imports it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


@dataclass
class OfatSweeperConf:
    """The sweeper's settings; in ftx they come from the study's node, elsewhere they are typed here."""

    _target_: str = "hydra_plugins.ftx_sweeper.ofat_sweeper.OfatSweeper"
    params: Any = field(default_factory=lambda: "${oc.select:study.axes,null}")
    plan: str | None = None
    design: str = "${oc.select:study.design,ofat}"
    coupled: Any = field(default_factory=lambda: "${oc.select:study.coupled,[]}")
    replicates: Any = field(default_factory=lambda: "${oc.select:study.replicates,[seed]}")


ConfigStore.instance().store(group="hydra/sweeper", name="ofat", node=OfatSweeperConf, provider="ftx")


class OfatSweeper(Sweeper):
    """The baseline and each level of each factor alone, once per replicate.

    Args:
        params: axes, as in Hydra's basic sweeper.
        plan: study.json; its last launch says which jobs to run, and nothing is expanded here.
        design: ofat, or factorial for all combinations.
        coupled: keys that move together.
        replicates: keys that are crossed with every arm.
    """

    def __init__(
        self,
        params: dict[str, Any] | None,
        plan: str | None,
        design: str,
        coupled: Sequence[Sequence[str]],
        replicates: Sequence[str],
    ) -> None:
        self.params = dict(params or {})
        self.plan = plan
        self.design = design
        self.coupled = [list(keys) for keys in coupled]
        self.replicates = list(replicates)
        self.config: DictConfig | None = None
        self.launcher: Launcher | None = None
        self.hydra_context: HydraContext | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what Hydra hands over and make the launcher."""
        self.config, self.hydra_context = config, hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Launch all jobs in one batch and return their JobReturns; a failed job raises, unless a plan keeps book."""
        assert self.config is not None
        assert self.launcher is not None
        folder = Path(str(self.config.hydra.sweep.dir))
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        if self.plan is not None:
            return [self._planned(Path(self.plan))]
        jobs = self._expanded(arguments)
        self.validate_batch_is_legal(jobs)
        returns: Sequence[JobReturn] = self.launcher.launch(jobs, initial_job_idx=0)
        for job in returns:
            _ = job.return_value  # raises what the job raised
        return [returns]

    def _planned(self, plan: Path) -> Sequence[JobReturn]:
        """Launch the jobs of a study's plan and keep in it which of them failed."""
        from ftx.record.study_record import jobs_to_run, note_failures

        assert self.launcher is not None
        returns: Sequence[JobReturn] = ()
        try:
            returns = self.launcher.launch(jobs_to_run(plan), initial_job_idx=0)
        except KeyboardInterrupt as interrupted:
            returns = getattr(interrupted, "returns", ())
            raise
        finally:
            failed = {n: job._return_value for n, job in enumerate(returns) if job.status is JobStatus.FAILED}
            missing = [n for n, error in failed.items() if getattr(error, "status", None) == "missing"]
            note_failures(plan, {n: str(error) for n, error in failed.items() if n not in missing})
        return returns

    def _expanded(self, arguments: Sequence[str]) -> list[list[str]]:
        """The overrides of every job of any Hydra application."""
        from hydra_plugins.ftx_sweeper._expand import expand

        assert self.hydra_context is not None
        assert self.config is not None
        return expand(self, arguments, self.config, self.hydra_context.config_loader)
