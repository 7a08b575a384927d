"""The pool launcher keeps Hydra's own contract for launchers, whatever the application."""

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.test_utils.launcher_common_tests import IntegrationTestSuite, LauncherTestSuite

from hydra_plugins.ftx_launcher.pool_launcher import PoolLauncher

BASIC = "hydra/sweeper=basic"


def test_hydra_finds_it() -> None:
    assert PoolLauncher.__name__ in [found.__name__ for found in Plugins.instance().discover(Launcher)]


@pytest.mark.parametrize(("launcher_name", "overrides"), [("pool", [BASIC])])
class TestPoolLauncher(LauncherTestSuite):
    """Hydra's suite: overrides, configurations, directories and failures of sweeps."""


@pytest.mark.parametrize(
    ("task_launcher_cfg", "extra_flags"),
    [({}, ["-m", "hydra/launcher=pool", "hydra/job_logging=disabled", "hydra/hydra_logging=disabled"])],
)
class TestPoolLauncherIntegration(IntegrationTestSuite):
    """Hydra's suite: whole applications in processes of their own."""
