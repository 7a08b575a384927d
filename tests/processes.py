"""ftx in processes of its own, and what they leave behind."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftx.record.layout import RunDir


@dataclass(frozen=True)
class Finished:
    """A process that has ended."""

    status: int
    out: str
    err: str
    folder: Path

    def run_dirs(self) -> list[RunDir]:
        return [RunDir(path) for path in sorted((self.folder / "outputs").glob("*"))]

    def record(self) -> dict[str, Any]:
        (run,) = self.run_dirs()
        return json.loads(run.record.read_text())


def environment(**more: str) -> dict[str, str]:
    """Without a network for model hubs and without a GPU."""
    # One thread: two test processes on two cores would otherwise wait for each other at every barrier.
    return os.environ | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **more}


def run_module(module: str, *arguments: str, folder: Path, **more: str) -> Finished:
    """`python -m MODULE ARGUMENTS` in `folder`."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr, folder)
