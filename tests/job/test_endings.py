"""What each exception is called in the record."""

import pytest

from ftx.errors import DataError
from ftx.job.endings import Diverged, Terminated, ending_of


@pytest.mark.parametrize(
    ("error", "status", "exit_status"),
    [
        (Diverged(7, "grad_norm", float("nan")), "diverged", 1),
        (KeyboardInterrupt(), "interrupted", 130),
        (Terminated(), "interrupted", 143),
        (MemoryError(), "out_of_memory", 1),
        (RuntimeError("[enforce fail] . DefaultCPUAllocator: not enough memory: you tried"), "out_of_memory", 1),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "out_of_memory", 1),
        (type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory"), "out_of_memory", 1),
        (RuntimeError("shape mismatch"), "failed", 1),
        (DataError("x.jsonl:3: ..."), "failed", 1),
    ],
)
def test_endings(error: BaseException, status: str, exit_status: int) -> None:
    ending = ending_of(error)
    assert (ending.status, ending.exit_status) == (status, exit_status)
    assert ending.reason


@pytest.mark.train
def test_what_torch_really_raises_when_there_is_no_room() -> None:
    import torch

    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**15)
    assert ending_of(caught.value).status == "out_of_memory"


def test_divergence_names_its_step() -> None:
    assert ending_of(Diverged(7, "grad_norm", float("inf"))).reason == "grad_norm became inf at step 7"
