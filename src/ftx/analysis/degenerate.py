"""Arms that are no new information: copies of the baseline, or seeds that changed nothing."""

from collections.abc import Hashable, Sequence

from ftx.analysis.runs import ArmRuns

_RELATIVE = 1e-12


def degenerate_reason(arm: ArmRuns, baseline: ArmRuns) -> str | None:
    """Why `arm` is degenerate against `baseline`, in words; None: it is not.

    The metric and final_train_loss must both agree to 1e-12 relative; equal scores alone may be a ceiling. Where the
    table knows no losses the metric decides, from two values on.
    """
    shared = arm.shared_with(baseline)
    if len(shared) >= (1 if arm.losses is not None else 2) and all(_same_run(arm, baseline, seed) for seed in shared):
        return (
            f"equal to the baseline in all {len(shared)} shared seeds: the levels resolve to the same effective "
            "setting, or the override never reached the run"
        )
    return seedless_reason(arm)


def seedless_reason(arm: ArmRuns) -> str | None:
    """Why the seeds of `arm` changed nothing, in words; None: they did, or there is only one."""
    seeds = list(arm.values)
    if len(seeds) < 2 or not _all_equal([arm.values[seed] for seed in seeds]):
        return None
    if arm.losses is not None and not _all_equal([arm.losses[seed] for seed in seeds]):
        return None
    return f"all {len(seeds)} seeds equal: the seed never reached the run"


def _same_run(arm: ArmRuns, baseline: ArmRuns, seed: Hashable) -> bool:
    if not _equal(arm.values[seed], baseline.values[seed]):
        return False
    if arm.losses is None or baseline.losses is None:
        return True
    return _equal(arm.losses[seed], baseline.losses[seed])


def _all_equal(numbers: Sequence[float]) -> bool:
    return all(_equal(number, numbers[0]) for number in numbers)


def _equal(a: float, b: float) -> bool:
    """Equal to 1e-12 relative; an unknown number (NaN) equals nothing."""
    return abs(a - b) <= _RELATIVE * max(abs(a), abs(b))
