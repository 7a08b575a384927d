"""What the jobs of a pool may use, and what they are told of it."""

from pathlib import Path

import pytest

from ftx.errors import ConfigError
from ftx.launch import slots
from ftx.launch.slots import Slot, make_slots, threads_per_job, visible_gpus

FOUR = ["0", "1", "2", "3"]


def gpu(names: str) -> Slot:
    return Slot(f"gpu:{names}", {"CUDA_VISIBLE_DEVICES": names})


@pytest.mark.parametrize(
    ("wanted", "device", "gpus", "per_job", "expected"),
    [
        (None, "auto", FOUR[:2], 1, [gpu("0"), gpu("1")]),
        (None, "cuda", FOUR[:2], 1, [gpu("0"), gpu("1")]),
        (None, "auto", FOUR, 2, [gpu("0,1"), gpu("2,3")]),
        (None, "auto", FOUR[:3], 2, [gpu("0,1")]),
        (1, "auto", FOUR, 1, [gpu("0")]),
        (3, "auto", FOUR[:2], 1, [gpu("0"), gpu("1"), gpu("0")]),
        (None, "auto", ["GPU-3a", "GPU-9c"], 1, [gpu("GPU-3a"), gpu("GPU-9c")]),
        (None, "cuda:1", FOUR, 1, [Slot("cuda:1")]),
        (2, "cuda:1", FOUR, 1, [Slot("cuda:1")] * 2),
        (None, "mps", [], 1, [Slot("mps:0")]),
        (2, "mps", [], 1, [Slot("mps:0"), Slot("mps:1")]),
        (2, "cpu", FOUR, 1, [Slot("cpu:0"), Slot("cpu:1")]),
        (2, "auto", [], 1, [Slot("cpu:0"), Slot("cpu:1")]),
    ],
    ids=[
        "one GPU a job",
        "cuda is any GPU",
        "two GPUs a job",
        "a GPU left over",
        "fewer slots than GPUs",
        "more slots than GPUs share them in turn",
        "UUIDs",
        "the GPU that was chosen",
        "two jobs on the GPU that was chosen",
        "mps has one",
        "mps, two wanted",
        "a CPU although there are GPUs",
        "no GPU",
    ],
)
def test_slots(wanted: int | None, device: str, gpus: list[str], per_job: int, expected: list[Slot]) -> None:
    made = make_slots(wanted, device=device, gpus=gpus, per_job=per_job, threads=None)
    assert [slot.name for slot in made] == [slot.name for slot in expected]
    for slot, other in zip(made, expected, strict=True):
        assert slot.environment.get("CUDA_VISIBLE_DEVICES") == other.environment.get("CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize(
    ("available", "wanted", "threads", "expected"),
    [
        (8, None, None, 8),
        (16, None, None, 8),
        (20, None, None, 10),
        (8, None, 2, 4),
        (8, None, 3, 2),
        (2, None, 4, 1),
        (1, None, None, 1),
        (8, 3, None, 3),
        (2, 5, 4, 5),
    ],
    ids=[
        "a core each",
        "two cores each",
        "two cores each of twenty",
        "two threads each",
        "threads that do not divide the cores",
        "more threads than cores",
        "one core",
        "as many as wanted",
        "as many as wanted, whatever they take",
    ],
)
def test_slots_of_a_cpu(
    monkeypatch: pytest.MonkeyPatch, available: int, wanted: int | None, threads: int | None, expected: int
) -> None:
    monkeypatch.setattr(slots, "cores", lambda: available)
    made = make_slots(wanted, device="cpu", gpus=[], per_job=1, threads=threads)
    assert [slot.name for slot in made] == [f"cpu:{number}" for number in range(expected)]
    shares = {slot.environment[slots.SHARE] for slot in made}
    assert shares == {str(max(1, available // expected))}


def test_a_job_of_a_pool_has_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(slots.SHARE, "3")
    assert slots.cores() == 3


def test_fewer_gpus_than_a_job_is_to_see_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"study.devices_per_job=3: only 2 GPUs are visible \(0, 1\); lower it"):
        make_slots(None, device="cuda", gpus=["0", "1"], per_job=3, threads=None)


@pytest.mark.parametrize(
    ("available", "threads"), [(1, 1), (2, 1), (8, 1), (15, 1), (16, 2), (64, 8)], ids=lambda number: str(number)
)
def test_threads_of_a_job_depend_on_the_machine_alone(available: int, threads: int) -> None:
    assert threads_per_job(available) == threads


def test_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {2, 5, 7}, raising=False)
    assert slots.cores() == 3


@pytest.mark.parametrize(
    ("restricted", "expected"),
    [
        ("", []),
        ("-1", []),
        ("0", ["0"]),
        ("2,0", ["2", "0"]),
        ("2, 0", ["2", "0"]),
        ("GPU-8a1b,MIG-7c", ["GPU-8a1b", "MIG-7c"]),
    ],
    ids=["empty", "-1", "one", "two in their order", "spaces", "UUIDs"],
)
def test_visible_gpus_are_those_that_are_left(
    monkeypatch: pytest.MonkeyPatch, restricted: str, expected: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", restricted)
    assert visible_gpus() == expected


@pytest.mark.parametrize(
    ("said", "status", "expected"),
    [
        (
            "GPU 0: H200 (UUID: GPU-3a)\n  MIG 1g.18gb Device 0: (UUID: MIG-1)\nGPU 1: H200 (UUID: GPU-9c)\n",
            0,
            ["0", "1"],
        ),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 9, []),
    ],
    ids=["two GPUs", "no driver"],
)
def test_visible_gpus_are_asked_of_the_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, status: int, expected: list[str]
) -> None:
    (tmp_path / "said").write_text(said)
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n/bin/cat {tmp_path / 'said'}\nexit {status}\n")
    tool.chmod(0o755)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_gpus() == expected


def test_no_driver_no_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_gpus() == []
