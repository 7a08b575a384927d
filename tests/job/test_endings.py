"""What each exception is called in the record."""

import pickle

import pytest

from ftx.errors import DataError
from ftx.job.endings import Diverged, Interrupted, StopRequest, ending_of


@pytest.mark.parametrize(
    ("error", "status", "exit_status"),
    [
        (Diverged(7, "grad_norm", float("nan")), "diverged", 1),
        (KeyboardInterrupt(), "interrupted", 130),
        (Interrupted("SIGTERM", 143), "interrupted", 143),
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


def test_a_stop_waits_for_the_end_of_a_step_and_only_there() -> None:
    request = StopRequest()
    with pytest.raises(Interrupted):
        request.ask("SIGINT", 130)  # nothing is being trained
    request = StopRequest()
    request.start_of_steps()
    request.ask("SIGINT", 130)
    assert request.pending is not None
    with pytest.raises(Interrupted):
        request.ask("SIGINT", 130)  # twice: now
    with pytest.raises(Interrupted) as caught:
        request.end_of_steps()
    assert (caught.value.cause, caught.value.exit_status) == ("SIGINT", 130)


def test_an_interruption_travels_between_processes() -> None:
    sent = pickle.loads(pickle.dumps(Interrupted("SIGTERM", 143)))
    assert (str(sent), sent.exit_status) == ("interrupted: SIGTERM", 143)
