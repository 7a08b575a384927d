"""The jobs of a sweep of any Hydra application; a module whose name starts with _ is not scanned for plugins."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from hydra.core.config_loader import ConfigLoader
from omegaconf import DictConfig, OmegaConf

from ftx.config.axes import split_axes, with_file_axes
from ftx.config.keys import flat
from ftx.config.overrides import is_hydras
from ftx.design.factors import factors_of
from ftx.design.plan import Settings, plan, replicates_of
from ftx.errors import ConfigError

if TYPE_CHECKING:
    from hydra_plugins.ftx_sweeper.ofat_sweeper import OfatSweeper


def expand(
    sweeper: "OfatSweeper", arguments: Sequence[str], config: DictConfig, loader: ConfigLoader
) -> list[list[str]]:
    """Overrides of every job: what is fixed, then the arm's levels, then the replicate's."""
    sweep = with_file_axes(split_axes(arguments), sweeper.params)
    hydras = [axis.key for axis in sweep.axes if is_hydras(axis.key)]
    if hydras:
        raise ConfigError([f"{hydras[0]}: Hydra's own settings are the same for all jobs; give it one value"])
    replicates = [axis for axis in sweep.axes if axis.key in sweeper.replicates]
    factors = factors_of([axis for axis in sweep.axes if axis.key not in sweeper.replicates], sweeper.coupled)

    def settings(overrides: Sequence[str]) -> Settings:
        composed = loader.load_sweep_config(config, [*sweep.fixed, *overrides])
        return Settings(_flat(composed, resolve=False), _flat(composed, resolve=True))

    design = plan(sweeper.design, factors, replicates_of(replicates), settings)
    return [[*sweep.fixed, *arm.overrides, *replicate.overrides] for arm, replicate in design.trials]


def _flat(composed: DictConfig, *, resolve: bool) -> dict[str, Any]:
    masked = OmegaConf.masked_copy(composed, [str(name) for name in composed if name != "hydra"])
    container = OmegaConf.to_container(masked, resolve=resolve, throw_on_missing=False)
    return flat(cast(dict[str, Any], container))
