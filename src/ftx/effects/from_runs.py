"""Observations of runs that no study claims: their factors are the keys in which their configurations differ."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ftx.config.keys import flat
from ftx.effects.comparability import comparability
from ftx.effects.from_study import observation_of
from ftx.effects.observations import FactorLevels, Metric, Observation, Observations, Problem, frozen
from ftx.errors import FtxError
from ftx.record.ledger import FoundRun

REPLICATES = ("seed", "data_seed")
NOT_SETTINGS = (
    *("name", "notes", "hypothesis", "output_root", "labbook", "tracking.backends"),
    *("preflight", "data.cache_gb", "data.snapshot"),
)


def observations_of_runs(runs: Sequence[FoundRun], root: Path, now: float) -> Observations:
    """One row a run; the baseline has each key's commonest value.

    Keys that always move together (rank and alpha, say) are one factor, named by the first.

    Raises:
        FtxError: runs of different metrics, or fewer than two.
    """
    without = tuple(str(found.run.path) for found in runs if "metric" not in found.record.config)
    runs = [found for found in runs if "metric" in found.record.config]
    if len(runs) < 2:
        raise FtxError(f"{root}: {len(runs)} runs that no study claims, and a comparison needs two")
    metrics = Counter(
        (found.record.config["metric"]["name"], found.record.config["metric"]["direction"]) for found in runs
    )
    (name, direction), _ = metrics.most_common(1)[0]
    mine = [found for found in runs if found.record.config["metric"]["name"] == name]
    metric = Metric(name, direction)
    settings = [_settings(found) for found in mine]
    keys_of_all = dict.fromkeys(key for each in settings for key in each)
    varying = [key for key in keys_of_all if len({str(each.get(key)) for each in settings}) > 1]
    if not varying:
        raise FtxError(
            f"{root}: its {len(mine)} runs differ in no setting but the seed, so there is nothing to compare"
        )
    factors, keys = _factors(varying, settings)
    problems, elsewhere = comparability([("run", found.record) for found in mine], keys)
    chosen: dict[tuple[Any, ...], Observation] = {}
    twins = []
    # Of runs with the same settings the one that can be compared counts: measured on the usual rows, and finished.
    order = sorted(
        zip(mine, settings, strict=True),
        key=lambda pair: (pair[0].record.run_id in elsewhere, pair[0].record.status != "finished"),
    )
    for found, each in order:
        levels = {factor.name: frozen(each.get(factor.name)) for factor in factors}
        replicate = _replicate(found)
        identity = (*levels.values(), replicate)
        if identity in chosen:
            twins.append(str(found.run.path))
            continue
        row = observation_of(found, levels, replicate, metric, now)
        measured = found.record.run_id not in elsewhere
        chosen[identity] = row if measured else replace(row, status="missing", value=None)
    rows = list(chosen.values())
    if without:
        problems.append(Problem("damaged", f"{len(without)} runs have no configuration in their record", without))
    if twins:
        problems.append(
            Problem("repeated", f"{len(twins)} runs repeat another of the same settings and seed", tuple(twins))
        )
    if len(metrics) > 1:
        others = tuple(str(found.run.path) for found in runs if found.record.config["metric"]["name"] != name)
        problems.append(Problem("other_metric", f"{len(others)} runs have another metric than {name}", others))
    several = sum(len({str(row.levels[f.name]) for row in rows}) > 1 for f in factors) > 1
    crossed = any(sum(row.levels[f.name] != f.baseline for f in factors) > 1 for row in rows)
    return Observations(
        name=str(root),
        design="factorial" if several and crossed else "ofat",
        metric=metric,
        factors=factors,
        rows=tuple(rows),
        problems=tuple(problems),
        crossed=False,
    )


def _replicate(found: FoundRun) -> Hashable:
    """The seed, and the seed of the rows' order where it does not follow."""
    seed, order = found.record.seed, found.record.config.get("data_seed")
    return seed if order in (None, seed) else f"{seed}/{order}"


def _settings(found: FoundRun) -> dict[str, Any]:
    settings = flat(found.record.config)
    ignored = (*REPLICATES, *NOT_SETTINGS)
    return {key: value for key, value in settings.items() if key not in ignored}


def _factors(
    varying: Sequence[str], settings: Sequence[dict[str, Any]]
) -> tuple[tuple[FactorLevels, ...], dict[str, list[str]]]:
    groups: dict[tuple[int, ...], list[str]] = {}
    for key in varying:
        values = [str(each.get(key)) for each in settings]
        first = {value: position for position, value in reversed(list(enumerate(values)))}
        groups.setdefault(tuple(first[value] for value in values), []).append(key)
    factors, keys = [], {}
    for members in groups.values():
        levels: list[Hashable] = [frozen(each.get(members[0])) for each in settings]
        baseline = Counter(levels).most_common(1)[0][0]
        factors.append(FactorLevels(members[0], tuple(dict.fromkeys(levels)), baseline))
        keys[members[0]] = members
    return tuple(factors), keys
