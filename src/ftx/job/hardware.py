"""What the machine decides: device, precision and threads, and what they are called in the record."""

import copy
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ftx.config.schema import RunConfig
from ftx.errors import ConfigError
from ftx.launch.slots import cores, visible_gpus

REFUSED = 2

_visible_at_first: list[str | None] = []  # what the process was given, before it pinned a device of that


def pin_device(device: str) -> None:
    """Leave one CUDA device visible, before torch looks.

    The Trainer wraps a model in data parallel, which multiplies the batch, whenever it sees two devices.
    """
    if not _visible_at_first:
        _visible_at_first.append(os.environ.get("CUDA_VISIBLE_DEVICES"))
    visible = _visible_at_first[0]
    kind, _, index = device.partition(":")
    if kind not in ("auto", "cuda") or visible == "":
        return
    position = int(index or 0)
    if visible is None:
        chosen = str(position)
    else:
        entries = visible.split(",")
        chosen = entries[position] if position < len(entries) else ""
    os.environ["CUDA_VISIBLE_DEVICES"] = chosen


@dataclass(frozen=True)
class Machine:
    """What torch says of a device that was asked for."""

    device: str
    """cpu, cuda or mps."""
    bf16: bool
    accelerator: str
    device_name: str | None


def ask_here(device: str) -> Machine:
    """Ask torch in this process, which begins to use the GPU by that. ConfigError: the machine has none such."""
    found = _device(device)
    facts = device_facts(found)
    return Machine(found, _has_bf16(found), str(facts["accelerator"]), facts["device_name"])


def ask_apart(device: str) -> Machine:
    """Ask in a process of its own where there are GPUs: a launcher that held one would take it from its jobs."""
    if device.partition(":")[0] not in ("auto", "cuda") or not visible_gpus():
        return ask_here(device)
    done = subprocess.run([sys.executable, "-m", __name__, device], capture_output=True, text=True, check=False)
    if done.returncode == REFUSED:
        raise ConfigError(json.loads(done.stdout))
    if done.returncode != 0:
        raise ConfigError([f"hardware.device={device}: torch could not be asked ({done.stderr.strip()[-300:]})"])
    return Machine(**json.loads(done.stdout))


def resolve_hardware(config: RunConfig, ask: Callable[[str], Machine] = ask_here) -> RunConfig:
    """A copy of `config` with device, precision and threads settled.

    Raises:
        ConfigError: an accelerator or a precision that this machine does not have.
    """
    out = copy.deepcopy(config)
    # With an adapter the base only computes, so bf16 loses nothing, and its dtype is the precision. All weights
    # trained in bf16 would lose most updates to rounding, so they stay fp32 under autocast.
    follows = config.hardware.precision == "auto" and config.lora.variant != "none"
    machine = ask(config.hardware.device)
    out.hardware.device = machine.device
    out.hardware.precision = _precision(config.model.dtype if follows else config.hardware.precision, machine)
    out.hardware.threads = config.hardware.threads or cores()
    if out.model.dtype == "auto":
        out.model.dtype = "fp32" if out.lora.variant == "none" else out.hardware.precision
    return out


def fallback_notice(asked: RunConfig, settled: RunConfig) -> list[str]:
    """A line that says what `auto` became, where that is less than an accelerator."""
    if asked.hardware.device != "auto" or settled.hardware.device != "cpu":
        return []
    return [f"No accelerator found: training on the CPU in {settled.hardware.precision}."]


def device_facts(device: str) -> dict[str, str | None]:
    """What the record calls the device: `accelerator` and `device_name`."""
    import torch

    if device == "cuda":
        return {"accelerator": "cuda", "device_name": torch.cuda.get_device_name(0)}
    return {"accelerator": device, "device_name": _processor_name()}


def start_measuring_memory(device: str) -> None:
    """Forget earlier peaks, so that a run in a used process reports its own."""
    import torch

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    elif device == "cpu":
        with suppress(OSError):  # only Linux can
            Path("/proc/self/clear_refs").write_text("5")


def peak_memory_bytes(device: str) -> int | None:
    """The most memory held since measuring began: the device's on CUDA, this process's on a CPU under Linux.

    None where the system cannot tell it for one run alone.
    """
    import torch

    if device == "cuda":
        return int(torch.cuda.max_memory_allocated())
    if device == "cpu":
        with suppress(OSError):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    return None


def _device(asked: str) -> str:
    if asked == "cpu":
        return "cpu"
    import torch

    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    kind = asked.partition(":")[0]
    if kind == "auto":
        return "cuda" if cuda else "mps" if mps else "cpu"
    if not {"cuda": cuda, "mps": mps}[kind]:
        others = [name for name, there in (("cuda", cuda), ("mps", mps)) if there]
        raise ConfigError(
            [
                f"hardware.device={asked}: this machine has none that torch {torch.__version__} can use; it has "
                f"{', '.join([*others, 'cpu'])} (hardware=auto takes the best there is)"
            ]
        )
    return kind


def _precision(asked: str, machine: Machine) -> str:
    if asked == "fp32" or (asked == "auto" and machine.device == "cpu"):
        return "fp32"
    if asked == "bf16" and not machine.bf16:
        raise ConfigError(
            [f"hardware.precision=bf16: this {machine.device} device has no bf16; use hardware.precision=fp32"]
        )
    return "bf16" if machine.bf16 else "fp32"


def _has_bf16(device: str) -> bool:
    import torch

    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device == "mps":
        try:
            torch.zeros(1, dtype=torch.bfloat16, device="mps")
        except (RuntimeError, TypeError):
            return False
    return True


def _processor_name() -> str | None:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or None


def _answer(device: str) -> int:
    """For `ask_apart`: what torch says, as JSON."""
    pin_device(device)
    try:
        print(json.dumps(asdict(ask_here(device))))
    except ConfigError as error:
        print(json.dumps(error.problems))
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_answer(sys.argv[1]))
