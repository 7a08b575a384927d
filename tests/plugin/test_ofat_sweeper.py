"""The sweeper `ofat` in an application that is not ftx's, through Hydra's own runner of sweeps."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra import version
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig, OmegaConf

from ftx.errors import ConfigError
from hydra_plugins.ftx_sweeper.ofat_sweeper import OfatSweeper

APPLICATION = {"width": 8, "rate": 0.1, "seed": 0, "twice": "${width}", "layer": {"kind": "plain", "bias": True}}

Sweep = Callable[..., list[Any]]


class Task:
    """What the application does: it keeps the configuration of every job."""

    def __init__(self) -> None:
        self.configs: list[dict[str, Any]] = []

    def __call__(self, config: DictConfig) -> int:
        plain = OmegaConf.to_container(config, resolve=True)
        assert isinstance(plain, dict)
        self.configs.append({str(name): value for name, value in plain.items()})
        if config.width == 13:
            raise ValueError("an unlucky width")
        return int(config.width)


@pytest.fixture
def task() -> Task:
    return Task()


@pytest.fixture
def sweep(hydra_restore_singletons: Any, hydra_sweep_runner: Any, tmp_path: Path, task: Task) -> Iterator[Sweep]:
    """Runs `-m OVERRIDES` with the sweeper and Hydra's basic launcher; gives what the sweeper returned."""
    version.setbase("1.3")
    ConfigStore.instance().store(name="application", node=APPLICATION)
    quick = ["hydra/job_logging=disabled", "hydra/hydra_logging=disabled", "hydra.output_subdir=null"]

    def call(*overrides: str) -> list[Any]:
        runner = hydra_sweep_runner(
            calling_file=None,
            calling_module="hydra.test_utils.a_module",
            task_function=task,
            config_path=None,
            config_name="application",
            overrides=["hydra/sweeper=ofat", "hydra/launcher=basic", *quick, *overrides],
            temp_dir=tmp_path / "sweep",
        )
        with runner as done:
            assert (tmp_path / "sweep" / "multirun.yaml").is_file()
            return list(done.returns)

    return call


def overrides_of(returned: Sequence[Any]) -> list[list[str]]:
    (batch,) = returned
    return [list(job.overrides) for job in batch]


def test_hydra_finds_it() -> None:
    assert OfatSweeper.__name__ in [found.__name__ for found in Plugins.instance().discover(Sweeper)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], [[]]),
        (["width=16,32"], [[], ["width=16"], ["width=32"]]),
        (["width=8,16", "rate=0.1,0.2"], [[], ["width=16"], ["rate=0.2"]]),
        (["rate=0.2", "width=8,16"], [["rate=0.2"], ["rate=0.2", "width=16"]]),
        (
            ["width=8,16", "seed=0,1"],
            [["seed=0"], ["width=16", "seed=0"], ["seed=1"], ["width=16", "seed=1"]],
        ),
        (["+a=0,1"], [[], ["+a=0"], ["+a=1"]]),
        (["layer.bias=true,false"], [[], ["layer.bias=false"]]),
        (
            ["width=8,16", "rate=0.1,0.2", "hydra.sweeper.design=factorial"],
            [[], ["rate=0.2"], ["width=16"], ["width=16", "rate=0.2"]],
        ),
        (
            ["width=16,32", "rate=0.1,0.2", "hydra.sweeper.coupled=[[width,rate]]"],
            [[], ["width=16", "rate=0.1"], ["width=32", "rate=0.2"]],
        ),
        (
            ["rate=0.1,0.2", "width=1,8", "hydra.sweeper.replicates=[rate]"],
            [
                ["rate=0.1"],
                ["width=1", "rate=0.1"],
                ["rate=0.2"],
                ["width=1", "rate=0.2"],
            ],
        ),
        (["width=8,4", "hydra.sweeper.params={width: '8,16', rate: '0.1,0.2'}"], [[], ["width=4"], ["rate=0.2"]]),
    ],
    ids=[
        "nothing swept is the baseline alone",
        "the baseline is not among the levels",
        "two factors, one at a time",
        "what is fixed is in every job",
        "replicates are crossed",
        "a new key keeps its plus",
        "a key in a section",
        "factorial gives the grid",
        "keys that move together",
        "other replicates",
        "axes in params, one of them typed anew",
    ],
)
def test_the_overrides_of_the_jobs(sweep: Sweep, words: list[str], expected: list[list[str]]) -> None:
    assert overrides_of(sweep(*words)) == expected


def test_every_job_differs_from_the_baseline_in_one_factor_and_what_follows(sweep: Sweep, task: Task) -> None:
    sweep("width=8,16", "layer.kind=plain,gated")
    assert task.configs == [
        APPLICATION | {"twice": 8},
        APPLICATION | {"width": 16, "twice": 16},
        APPLICATION | {"twice": 8, "layer": {"kind": "gated", "bias": True}},
    ]


def test_it_returns_hydras_job_returns_in_one_batch(sweep: Sweep) -> None:
    (batch,) = sweep("width=8,16,32")
    assert all(isinstance(job, JobReturn) for job in batch)
    assert [job.status for job in batch] == [JobStatus.COMPLETED] * 3
    assert [job.return_value for job in batch] == [8, 16, 32]
    assert [job.cfg.width for job in batch] == [8, 16, 32]
    assert [job.hydra_cfg.hydra.job.num for job in batch] == [0, 1, 2]


def test_what_a_job_raises_is_raised_when_the_others_have_run(sweep: Sweep, task: Task) -> None:
    with pytest.raises(ValueError, match="an unlucky width"):
        sweep("width=13,32")
    assert [config["width"] for config in task.configs] == [8, 13, 32]


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["width=8,16", "widht=1"], HydraException, "widht"),
        (["widht=1,2"], HydraException, "widht"),
        (["width=8,16", "rate=${nothing},0.2"], Exception, "nothing"),
        (["rate=interval(0.1,0.2)"], ConfigError, "an interval has no levels"),
        (["width=8,16", "hydra.sweeper.coupled=[[width,rate]]"], ConfigError, "rate has no levels"),
        (["hydra.verbose=true,false"], HydraException, "hydra.verbose"),
        (["hydra/job_logging=default,disabled"], HydraException, "hydra/job_logging"),
        (["hydra.sweeper.params={hydra.verbose: 'true,false'}"], ConfigError, "hydra.verbose"),
        (["width=8,16", "hydra.sweeper.design=latin"], ConfigError, "latin"),
    ],
    ids=[
        "a bad key beside a sweep",
        "a bad key that is swept",
        "a value that cannot be resolved",
        "an interval",
        "a coupled key without levels",
        "a key of Hydra's",
        "a group of Hydra's",
        "a key of Hydra's in params",
        "a design that there is not",
    ],
)
def test_a_refusal_comes_before_any_job(
    sweep: Sweep, task: Task, words: list[str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        sweep(*words)
    assert task.configs == []
