"""Simultaneous inference for effects that share one residual variance."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ftx.analysis.additive import AdditiveFit
from ftx.analysis.distributions import Array, t_two_sided
from ftx.analysis.dunnett import adjusted_p_values, critical_value
from ftx.analysis.error import AnalysisError


@dataclass(frozen=True, kw_only=True)
class Inference:
    """What the noise says about an effect."""

    se: float
    df: float
    t: float
    p: float
    """Of this comparison alone."""
    p_adjusted: float
    """Over the family of comparisons."""
    critical_value: float
    ci_low: float
    ci_high: float
    """The interval, effect +- critical_value * se, of which all in a family hold together with 1 - alpha."""
    family_size: int
    """Number of comparisons in the family."""


@dataclass(frozen=True)
class Effect:
    """One difference from the baseline, in the metric's unit."""

    effect: float
    inference: Inference | None = None
    """None: the noise is unknown."""


def simultaneous_effects(
    fit: AdditiveFit, *, alpha: float = 0.05, families: Mapping[Hashable, Hashable] | None = None
) -> dict[Hashable, Effect]:
    """The effect of every estimable arm of `fit`, also of arms with one or two seeds.

    `families` maps each arm to the family that it is adjusted in (its factor, say); None: all arms are one family.
    """
    return adjusted_effects(
        fit.arms, fit.effects, fit.unscaled_covariance, s=fit.s, df=fit.df, alpha=alpha, families=families
    )


def adjusted_effects(
    names: Sequence[Hashable],
    effects: Array,
    unscaled_covariance: Array,
    *,
    s: float | None,
    df: int,
    alpha: float = 0.05,
    families: Mapping[Hashable, Hashable] | None = None,
) -> dict[Hashable, Effect]:
    """Dunnett's adjustment within each family, of `effects` (m,) with covariance s^2 times the given (m, m)."""
    if s is None:
        return {name: Effect(float(effect)) for name, effect in zip(names, effects, strict=True)}
    found: dict[Hashable, Effect] = {}
    for members in _members(names, families):
        part = unscaled_covariance[np.ix_(members, members)]
        adjusted = _family(effects[members], part, s, df, alpha)
        found.update(zip((names[place] for place in members), adjusted, strict=True))
    return {name: found[name] for name in names}


def _members(names: Sequence[Hashable], families: Mapping[Hashable, Hashable] | None) -> list[list[int]]:
    """The places of each family's members."""
    if families is None:
        return [list(range(len(names)))] if names else []
    lacking = [name for name in names if name not in families]
    if lacking:
        raise AnalysisError(f"families has no entry for {lacking[0]!r}; name the family of every arm but the baseline")
    groups: dict[Hashable, list[int]] = {}
    for place, name in enumerate(names):
        groups.setdefault(families[name], []).append(place)
    return list(groups.values())


def _family(effects: Array, unscaled_covariance: Array, s: float, df: int, alpha: float) -> list[Effect]:
    scale = np.sqrt(np.diag(unscaled_covariance))
    correlation = unscaled_covariance / np.outer(scale, scale)
    errors = s * scale
    t = effects / errors
    c = critical_value(correlation, df, alpha)
    adjusted = adjusted_p_values(t, correlation, df)
    return [
        Effect(
            float(effects[place]),
            Inference(
                se=float(errors[place]),
                df=df,
                t=float(t[place]),
                p=t_two_sided(float(t[place]), df),
                p_adjusted=float(adjusted[place]),
                critical_value=c,
                ci_low=float(effects[place] - c * errors[place]),
                ci_high=float(effects[place] + c * errors[place]),
                family_size=effects.size,
            ),
        )
        for place in range(effects.size)
    ]
