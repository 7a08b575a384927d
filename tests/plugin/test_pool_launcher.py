"""The pool launcher keeps Hydra's own contract for launchers, whatever the application."""

from collections.abc import Iterator

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.test_utils.launcher_common_tests import IntegrationTestSuite, LauncherTestSuite
from hydra.version import VersionBase, __compat_version__

from hydra_plugins.ftx_launcher.pool_launcher import PoolLauncher

BASIC = "hydra/sweeper=basic"


@pytest.fixture(autouse=True)
def hydras_first_defaults() -> Iterator[None]:
    """The suite was written for Hydra's oldest defaults; whatever else composes in this process asks for 1.3."""
    base: VersionBase = VersionBase.instance()
    before = base.getbase()
    base.setbase(__compat_version__)
    yield
    base.setbase(before)


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
