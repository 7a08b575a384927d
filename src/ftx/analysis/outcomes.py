"""What became of a planned run: ok, failed or missing, and never a number in place of a state."""

from typing import Literal

import numpy as np

from ftx.analysis.error import AnalysisError

Outcome = Literal["ok", "failed", "missing"]

_OK = ("ok", "finished")
_FAILED = ("failed", "diverged", "out_of_memory")
_MISSING = ("missing", "killed", "interrupted", "running", "not_started")


def outcome(status: str | None, value: float | None) -> Outcome:
    """Judge one run by its status and its metric; without a status the metric alone decides.

    A run that finished without a finite metric has failed. Killed, interrupted, running and not started runs are
    missing. AnalysisError names the known words where the status is none of them.
    """
    if status in _MISSING:
        return "missing"
    if status in _FAILED:
        return "failed"
    if status is not None and status not in _OK:
        known = ", ".join(_OK + _FAILED + _MISSING)
        raise AnalysisError(f"status {status!r} is not known; expected one of {known}")
    return "ok" if value is not None and np.isfinite(value) else "failed"
