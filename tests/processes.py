"""ftx in processes of its own, and what they leave behind."""

import importlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftx.record.layout import RunDir

# Without a network for model hubs and without a GPU. One thread: two test processes on two cores would otherwise wait
# for each other at every barrier.
SURROUNDINGS = {
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "FTX_CACHE": os.environ.setdefault("FTX_CACHE", str(Path(tempfile.gettempdir(), f"ftx-tests-{os.getuid()}"))),
}
IMPORTS = [
    "ftx.train",
    "ftx.plan",
    "ftx.inspect",
    "ftx.job.session",
    "ftx.job.finetune",
    "transformers.models.llama.modeling_llama",
]


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
    """That of every process of the tests."""
    return os.environ | SURROUNDINGS | more


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


def run_entry(module: str, *arguments: str, folder: Path, **more: str) -> Finished:
    """The same, from a fork server that has the imports done: seconds less, and a process of its own all the same."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by the fork server when it imports torch
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTS)
    with tempfile.TemporaryDirectory() as aside:
        out, err = Path(aside, "out"), Path(aside, "err")
        process = context.Process(target=_entry, args=(module, arguments, str(folder), str(out), str(err), more))
        process.start()
        process.join()
        return Finished(process.exitcode or 0, out.read_text(), err.read_text(), folder)


def _entry(module: str, arguments: tuple[str, ...], folder: str, out: str, err: str, more: dict[str, str]) -> None:
    for path, descriptor in ((out, 1), (err, 2)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
        os.close(file)
    os.environ.update(SURROUNDINGS | more)
    os.chdir(folder)
    sys.argv = [module]
    status = importlib.import_module(module).start(list(arguments))
    sys.stdout.flush()
    sys.exit(status)
