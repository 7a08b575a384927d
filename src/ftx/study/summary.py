"""A plan as plain data: the arms with what they change and take, the trials with their state, findings and cost."""

from dataclasses import asdict
from typing import Any

from ftx.design.plan import Arm, Change
from ftx.study.forecast import detectable, estimate, identical_arms, room, work_of
from ftx.study.outlook import Outlook

FEWEST_SEEDS = 3  # below this many shared seeds there is no verdict


def summary(outlook: Outlook) -> dict[str, Any]:
    """What `ftx.plan --json` prints."""
    plan, record = outlook.plan, outlook.record
    planned = {trial.name for trial in plan.trials}
    trials = [trial for trial in record.trials if trial.name in planned]
    to_run = [trial.name for trial in outlook.to_run]
    return {
        "study": plan.name,
        "design": plan.design.kind,
        "metric": record.metric,
        "factors": record.factors,
        "replicates": {key: list(dict.fromkeys(t.replicates[key] for t in trials)) for key in plan.study.replicates},
        "baseline": record.baseline,
        "arms": [_arm(outlook, arm) for arm in plan.design.arms],
        "trials": [asdict(trial) for trial in trials],
        "to_run": to_run,
        "counts": {state: sum(trial.state == state for trial in trials) for state in _STATES},
        "budget": record.budget,
        "slots": plan.slots,
        "notes": list(plan.notes),
        "findings": _findings(outlook),
        "estimate": None if (found := estimate(outlook)) is None else asdict(found),
        "detectable_effect": None if (noise := detectable(outlook)) is None else asdict(noise),
        "problems": outlook.ledger.problems,
    }


_STATES = ("done", "running", "failed", "missing")


def _arm(outlook: Outlook, arm: Arm) -> dict[str, Any]:
    trial = next(each for each in outlook.plan.trials if each.arm is arm)
    return {
        "arm": arm.label,
        "is_baseline": arm.is_baseline,
        "changes": [_change(change) for change in arm.changes],
        "derived": [_change(change) for change in arm.derived],
        "train_rows": len(trial.inputs.data.train),
        **asdict(work_of(trial)),
    }


def _change(change: Change) -> dict[str, Any]:
    return {"key": change.key, "baseline": change.baseline, "value": change.value}


def _findings(outlook: Outlook) -> list[dict[str, Any]]:
    """What a person should know before paying: kind, detail, arms."""
    plan = outlook.plan
    found: list[dict[str, Any]] = [
        {"kind": "identical", "detail": f"identical here: {' and '.join(arms)}", "arms": arms}
        for arms in identical_arms(plan.trials)
    ]
    rows = {arm.label: _arm(outlook, arm)["train_rows"] for arm in plan.design.arms}
    fewer = [label for label, count in rows.items() if count != rows["baseline"]]
    found += [
        {
            "kind": "rows",
            "detail": f"{label} trains on {rows[label]} rows, the baseline on {rows['baseline']}",
            "arms": [label],
        }
        for label in fewer
    ]
    found += [
        {"kind": "disk", "detail": finding.detail, "arms": []} for finding in room(outlook) if finding.grade != "ok"
    ]
    seeds = len(plan.design.replicates)
    if len(plan.design.arms) > 1 and seeds < FEWEST_SEEDS:
        detail = f"{seeds} of at least {FEWEST_SEEDS} replicates: differences will have no verdict (5 are better)"
        found.append({"kind": "replicates", "detail": detail, "arms": []})
    return found
