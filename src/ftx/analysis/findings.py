"""What a table of effects must say beside its rows."""

from collections.abc import Sequence

from ftx.analysis.effect_table import ArmRow, Finding
from ftx.analysis.pool import Pool
from ftx.analysis.verdicts import DEGENERATE

_GUARD_WEAK_ABOVE = 0.5


def findings(rows: Sequence[ArmRow], pool: Pool | None, correlation: float | None) -> list[Finding]:
    """All findings about the rows of one table; `pool` None: the baseline has no finished run."""
    base = next(row for row in rows if row.is_baseline)
    found: list[Finding] = []
    if len(rows) == 1:
        found.append(Finding("one_arm", f"only the baseline {base.arm} is there: nothing to compare", (base.arm,)))
    if pool is None:
        found.append(Finding("baseline_without_runs", f"no run of the baseline {base.arm} finished", (base.arm,)))
    if base.n_failed:
        detail = f"{base.n_failed} of {base.n_planned} runs of the baseline {base.arm} failed: no row can be trusted"
        found.append(Finding("baseline_failed", detail, (base.arm,)))
    found += [
        Finding("degenerate", f"{row.arm}: {row.reason}", (row.arm,)) for row in rows if row.verdict == DEGENERATE
    ]
    return found + (_guard_findings(pool, correlation) if pool is not None else [])


def _guard_findings(pool: Pool, correlation: float | None) -> list[Finding]:
    found: list[Finding] = []
    if pool.baseline_noisy:
        detail = (
            f"{pool.fit.baseline} (baseline) is much noisier than the rest: every arm is compared by Welch's t, Holm"
        )
        found.append(Finding("variance_guard", detail, pool.noisy))
    elif pool.noisy:
        names = ", ".join(str(arm) for arm in pool.noisy)
        detail = f"{names}: much noisier than the rest, out of the pool and compared by Welch's t, Holm"
        found.append(Finding("variance_guard", detail, pool.noisy))
    if pool.guard is not None and correlation is not None and correlation > _GUARD_WEAK_ABOVE:
        detail = f"seeds correlate by {correlation:.2f}: the variance guard has little power"
        found.append(Finding("guard_weak", detail))
    return found
