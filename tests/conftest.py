"""Shared by all tests: the command line in a process of its own, and one real run of the bundled model."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from processes import Finished, run_entry, run_module

os.environ.pop("COLUMNS", None)  # of the terminal that pytest, or pytest-xdist, was started in


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Finished]:
    """`python -m ftx.train` in an empty folder."""

    def call(*arguments: str, **environment: str) -> Finished:
        return run_entry("ftx.train", *arguments, folder=tmp_path, **environment)

    return call


@pytest.fixture(scope="session")
def default_run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The run that `make train` does, once for all tests that look at what it left."""
    # On one thread, which a busy machine does not slow down the way it slows two that wait for each other.
    finished = run_module("ftx.train", "hardware.threads=1", folder=tmp_path_factory.mktemp("default"))
    assert finished.status == 0, finished.err + finished.out
    return finished
