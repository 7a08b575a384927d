"""One factor at a time: from planned runs to one row per arm, with interval, verdict and what the study could find."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ftx.analysis.degenerate import degenerate_reason, seedless_reason
from ftx.analysis.distributions import Array
from ftx.analysis.effect_table import ArmRow, EffectTable, SeedsNeeded, seeds_needed
from ftx.analysis.effects import Effect, Inference
from ftx.analysis.equivalence import check_margin, equivalence_test
from ftx.analysis.error import AnalysisError
from ftx.analysis.findings import findings
from ftx.analysis.looks import alpha_per_look
from ftx.analysis.pool import Pool, arm_effects, pool_arms, welch_arms
from ftx.analysis.power import detectable_noncentrality
from ftx.analysis.proportions import wilson_interval
from ftx.analysis.runs import ArmRuns, runs_by_arm
from ftx.analysis.seed_correlation import mean_seed_correlation
from ftx.analysis.verdicts import DEGENERATE, NOT_ENOUGH_SEEDS, UNSTABLE, Evidence, verdict

_EXACT = "the model leaves no residual: nothing is known about noise (were runs copied, or scores computed?)"


@dataclass(frozen=True)
class _Draft:
    """A row that is not yet judged."""

    row: ArmRow
    effect: Effect | None
    degenerate: str | None


def compare_arms(
    arms: Sequence[Hashable],
    replicates: Sequence[Hashable],
    values: Sequence[float | None] | Array,
    *,
    baseline: Hashable,
    higher_is_better: bool,
    statuses: Sequence[str | None] | None = None,
    final_train_losses: Sequence[float | None] | Array | None = None,
    margin: float | None = None,
    alpha: float = 0.05,
    looks: int = 1,
    families: Mapping[Hashable, Hashable] | None = None,
    crossed: bool = True,
) -> EffectTable:
    """Compare every arm with the baseline; one entry in each sequence per planned run (see `runs_by_arm`).

    The pool is fitted without degenerate arms, which would count the same run twice. Rows that are degenerate, unstable
    or short of shared seeds keep their effect and lose interval, p and power. `families`: see `simultaneous_effects`.
    AnalysisError: no runs, a baseline that is not among the arms, a run twice, a margin or alpha out of range.
    """
    level = alpha_per_look(alpha, looks)
    if margin is not None:
        check_margin(margin)
    runs = runs_by_arm(
        arms, replicates, values, statuses=statuses, final_train_losses=final_train_losses, crossed=crossed
    )
    if baseline not in runs:
        raise AnalysisError(f"baseline {baseline!r} is not among the arms: {', '.join(str(arm) for arm in runs)}")
    degenerate = _degenerate(runs, baseline)
    pool = pool_arms(runs, baseline, degenerate)
    effects = arm_effects(runs, baseline, degenerate, pool, level, families)
    correlation = mean_seed_correlation(_seed_table(runs))
    exact = pool is not None and pool.fit.exact
    rows = [
        _row(runs[arm], runs[baseline], effects.get(arm), degenerate.get(arm) or (_EXACT if exact else None))
        for arm in runs
    ]
    judged = [_judged(row, runs[baseline], pool, higher_is_better, margin, level) for row in rows]
    return EffectTable(
        rows=tuple(judged),
        s=None if pool is None else pool.fit.s,
        df=None if pool is None else pool.fit.df,
        alpha=level,
        seed_correlation=correlation,
        sd_ratio=_sd_ratio(rows),
        guard=None if pool is None else pool.guard,
        welch_arms=() if pool is None else welch_arms(runs, pool, degenerate),
        seeds_for_margin=None if pool is None or margin is None else _seeds_for(margin, pool, len(runs), level),
        findings=tuple(findings(judged, pool, correlation)),
    )


def _sd_ratio(drafts: Sequence[_Draft]) -> float | None:
    known = [draft.row.sd for draft in drafts if draft.row.sd is not None]
    return max(known) / min(known) if len(known) > 1 and min(known) > 0 else None


def _degenerate(runs: Mapping[Hashable, ArmRuns], baseline: Hashable) -> dict[Hashable, str]:
    """Reasons by arm. A baseline whose seeds changed nothing, its losses included, is a measure for no arm."""
    base = runs[baseline]
    seedless = seedless_reason(base) if base.losses is not None else None
    found: dict[Hashable, str] = {}
    for arm in runs:
        reason = None if arm == baseline else degenerate_reason(runs[arm], base)
        if arm != baseline and (reason or seedless):
            found[arm] = reason or f"baseline: {seedless}"
    return found


def _row(runs: ArmRuns, baseline: ArmRuns, effect: Effect | None, degenerate: str | None) -> _Draft:
    """Counts, values and the effect; not yet judged."""
    values, tried = runs.array, runs.count("ok") + runs.count("failed")
    low, high = wilson_interval(runs.count("failed"), tried) if tried else (None, None)
    is_baseline = runs.arm == baseline.arm
    row = ArmRow(
        arm=runs.arm,
        is_baseline=is_baseline,
        n_planned=len(runs.outcomes),
        n_ok=values.size,
        n_failed=runs.count("failed"),
        n_missing=runs.count("missing"),
        replicates=tuple(runs.values),
        values=tuple(runs.values.values()),
        mean=float(values.mean()) if values.size else None,
        sd=float(values.std(ddof=1)) if values.size > 1 else None,
        failure_low=low,
        failure_high=high,
        shared_seeds=len(runs.shared_with(baseline)),
    )
    return _Draft(row, effect, None if is_baseline else degenerate)


def _judged(
    draft: _Draft, baseline: ArmRuns, pool: Pool | None, higher_is_better: bool, margin: float | None, alpha: float
) -> ArmRow:
    """The row with its verdict, and with whatever that verdict lets stand."""
    row, effect = draft.row, draft.effect
    if row.is_baseline:
        return row
    inference = None if effect is None else effect.inference
    evidence = Evidence(
        degenerate=draft.degenerate is not None and row.n_ok > 0,
        n_planned=row.n_planned,
        n_failed=row.n_failed,
        baseline_planned=len(baseline.outcomes),
        baseline_failed=baseline.count("failed"),
        shared_seeds=row.shared_seeds,
        ci_low=None if inference is None else inference.ci_low,
        ci_high=None if inference is None else inference.ci_high,
        margin=margin,
        equivalence_p=_equivalence_p(effect, margin, alpha),
    )
    word = verdict(evidence, higher_is_better=higher_is_better, alpha=alpha)
    row = replace(row, verdict=word, effect=None if effect is None else effect.effect)
    if word == DEGENERATE:
        return replace(row, reason=draft.degenerate)
    if effect is None or pool is None:
        return replace(row, reason=_no_effect(row, pool))
    if word == NOT_ENOUGH_SEEDS or word.startswith(UNSTABLE) or inference is None:
        return row
    return _with_inference(row, inference, pool, baseline, alpha)


def _with_inference(row: ArmRow, inference: Inference, pool: Pool, baseline: ArmRuns, alpha: float) -> ArmRow:
    pooled = pool.shares_variance(row.arm)
    needed = _seeds_pooled if pooled else _seeds_welch
    return replace(
        row,
        se=inference.se,
        df=inference.df,
        ci_low=inference.ci_low,
        ci_high=inference.ci_high,
        p_adjusted=inference.p_adjusted,
        smallest_detectable_effect=detectable_noncentrality(inference.critical_value, inference.df) * inference.se,
        seeds_needed=needed(row, inference, pool, baseline, alpha),
        method="additive" if pooled else "welch",
    )


def _seeds_pooled(row: ArmRow, inference: Inference, pool: Pool, baseline: ArmRuns, alpha: float) -> SeedsNeeded:
    if row.effect is None or pool.fit.s is None:
        return None
    return seeds_needed(row.effect, pool.fit.s, arms=inference.family_size + 1, alpha=alpha)


def _seeds_welch(row: ArmRow, inference: Inference, pool: Pool, baseline: ArmRuns, alpha: float) -> SeedsNeeded:
    """As if both arms had the mean of their two variances and equally many seeds."""
    if row.effect is None:
        return None
    s = inference.se / float(np.sqrt(1.0 / row.n_ok + 1.0 / len(baseline.values)))
    return seeds_needed(row.effect, s, arms=2, alpha=alpha / inference.family_size, blocked=False)


def _seeds_for(margin: float, pool: Pool, arms: int, alpha: float) -> SeedsNeeded:
    if pool.fit.s is None or arms < 2:
        return None
    return seeds_needed(margin, pool.fit.s, arms=arms, alpha=alpha)


def _equivalence_p(effect: Effect | None, margin: float | None, alpha: float) -> float | None:
    if margin is None or effect is None or effect.inference is None:
        return None
    noise = effect.inference
    return equivalence_test(effect.effect, noise.se, noise.df, margin=margin, alpha=alpha).p


def _no_effect(row: ArmRow, pool: Pool | None) -> str:
    if row.n_ok == 0:
        return "no finished run"
    if pool is None:
        return "the baseline has no finished run"
    return dict(pool.fit.inestimable).get(row.arm, "no seed in common with the baseline")


def _seed_table(runs: Mapping[Hashable, ArmRuns]) -> Array:
    """(arms, seeds) with NaN where no run finished."""
    seeds = list(dict.fromkeys(seed for arm in runs.values() for seed in arm.values))
    return np.array([[arm.values.get(seed, np.nan) for seed in seeds] for arm in runs.values()], dtype=np.float64)
