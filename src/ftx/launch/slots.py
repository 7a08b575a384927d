"""What a job may use: visible GPUs, or a share of the cores."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field

from ftx.errors import ConfigError

MOST_JOBS_ON_A_CPU = 8
SHARE = "FTX_CORES"  # environment variable: how many cores a slot of a pool leaves to its job


@dataclass(frozen=True)
class Slot:
    """Room for one job at a time, and the environment that keeps the job inside it."""

    name: str
    environment: dict[str, str] = field(default_factory=dict)


def cores() -> int:
    """The cores this process may use: a job of a pool its share, any other process all that the system gives it."""
    share = os.environ.get(SHARE, "")
    if share.isdigit():
        return int(share)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_per_job(available: int) -> int:
    """CPU threads of each of several jobs, where nobody says: as many jobs as cores, but at most eight.

    It depends on the machine alone and not on the number of jobs, so that a study that grows keeps its runs.
    Two one-thread jobs are faster than one job with two threads (1.17x, SmolLM2 on two cores).
    """
    return max(1, available // MOST_JOBS_ON_A_CPU)


def visible_gpus() -> list[str]:
    """The GPUs that a child may be given, as CUDA_VISIBLE_DEVICES names them. Nothing is initialised."""
    restricted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if restricted is not None:
        return [name.strip() for name in restricted.split(",") if name.strip() not in ("", "-1")]
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    listed = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False)
    found = [line for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    return [str(index) for index in range(len(found))]


def make_slots(
    wanted: int | None, *, device: str, gpus: Sequence[str], per_job: int, threads: int | None
) -> list[Slot]:
    """The slots of a pool.

    Args:
        wanted: how many; None: one for every `per_job` GPUs, on a CPU the cores over `threads`.
        device: as in hardware.device.
        gpus: `visible_gpus()`.
        per_job: GPUs that each job sees.
        threads: of each job; None: `threads_per_job`.

    Raises:
        ConfigError: fewer GPUs than one job is to see.
    """
    if device == "mps":
        return [Slot(f"mps:{number}") for number in range(wanted or 1)]
    if device.startswith("cuda:"):  # the person chose the one GPU
        return [Slot(device) for _ in range(wanted or 1)]
    if device == "cpu" or not gpus:
        count = wanted or max(1, cores() // (threads or threads_per_job(cores())))
        share = {SHARE: str(max(1, cores() // count))}
        return [Slot(f"cpu:{number}", share) for number in range(count)]
    if per_job > len(gpus):
        raise ConfigError(
            [f"study.devices_per_job={per_job}: only {len(gpus)} GPUs are visible ({', '.join(gpus)}); lower it"]
        )
    groups = [gpus[start : start + per_job] for start in range(0, len(gpus) - per_job + 1, per_job)]
    return [
        Slot(f"gpu:{','.join(groups[number % len(groups)])}", _visible(groups[number % len(groups)]))
        for number in range(wanted or len(groups))
    ]


def _visible(gpus: Sequence[str]) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
