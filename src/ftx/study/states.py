"""What has become of each trial, out of the run directories alone, whoever made them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ftx.config.fingerprint import NEITHER
from ftx.config.keys import flat
from ftx.record.ledger import FoundRun
from ftx.record.run_record import RunRecord, moved_surroundings
from ftx.record.surroundings import Surroundings

STATE_OF_STATUS = {
    "finished": "done",
    "running": "running",
    "failed": "failed",
    "diverged": "failed",
    "out_of_memory": "failed",
    "interrupted": "missing",
    "killed": "missing",
}
"""A setting that fails is a result; an interrupted or killed run only has not happened yet."""


@dataclass(frozen=True)
class Wanted:
    """What identifies a trial's run."""

    fingerprint: Mapping[str, str]
    unhashed: Mapping[str, Any]
    """Keys that arms change outside the fingerprint, with this trial's values: a run must agree in them."""


@dataclass(frozen=True)
class State:
    """A trial's state (STATES of the study record), and the run it comes from.

    `missing` with the status `finished`: there is such a run, and `reason` says why it does not count.
    """

    state: str
    status: str | None = None
    reason: str | None = None
    found: FoundRun | None = None


def watched_keys(changed: Sequence[str]) -> list[str]:
    """Of the keys that the arms of a study change, those that no fingerprint holds."""
    return sorted({key for key in changed if key in NEITHER})


def state_of(
    wanted: Wanted, candidates: Sequence[FoundRun], here: Surroundings, *, reuse: str, study: str, now: float
) -> State:
    """The state of a trial.

    Args:
        wanted: fingerprints and other keys of the trial.
        candidates: runs of the same `train` fingerprint, newest first.
        here: what a run would be trained with now.
        reuse: same, any or never (study.reuse).
        study: whose own finished runs count under `never` too.
        now: seconds since 1970, to tell whether a silent run on another host is alive.
    """
    fitting = [found for found in candidates if _agrees(found.record, wanted.unhashed)]
    finished = [found for found in fitting if found.record.status == "finished"]
    usable = [found for found in finished if not unusable(found.record, wanted, here, reuse=reuse, study=study)]
    own = [found for found in usable if (found.record.made_by or {}).get("study") == study]
    for found in (*own, *usable):
        return State("done", "finished", found.record.stop_reason, found)
    others = {id(found): _unfinished(found, now) for found in fitting if found.record.status != "finished"}
    for state in others.values():
        if state.state == "running":
            return state
    if not fitting:
        return State("missing")
    newest = fitting[0]
    if id(newest) in others:
        return others[id(newest)]
    why = unusable(newest.record, wanted, here, reuse=reuse, study=study)
    return State("missing", "finished", f"finished in {newest.run.path}, {why}")


def _unfinished(found: FoundRun, now: float) -> State:
    status, reason = found.status(now)
    return State(STATE_OF_STATUS[status], status, reason, found)


def unusable(record: RunRecord, wanted: Wanted, here: Surroundings, *, reuse: str, study: str) -> str | None:
    """Why a finished run of the same `train` fingerprint does not stand for the trial; None: it does."""
    if record.fingerprint["evaluation"] != wanted.fingerprint["evaluation"]:
        return "but evaluated on other rows or by other scores"
    if reuse == "any":
        return None
    if reuse == "never" and (record.made_by or {}).get("study") != study:
        return "but study.reuse=never"
    if differences := here.differences(Surroundings.of(record)):
        return f"with other {', '.join(differences)}"
    moved = moved_surroundings(record)
    return f"but continued with other {', '.join(moved)}" if moved else None


def _agrees(record: RunRecord, unhashed: Mapping[str, Any]) -> bool:
    config = flat(record.config, whole=("custom",))
    return all(config.get(key) == value for key, value in unhashed.items())
