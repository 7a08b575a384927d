"""All run directories under a folder, and what is wrong with those that cannot be read."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ftx.errors import FtxError
from ftx.record.layout import SNAPSHOTS, RunDir
from ftx.record.provenance import process_alive
from ftx.record.run_record import RunRecord, forced_resumes

SILENT_SECONDS = 600.0  # a run on another host whose heart has not beaten for this long is taken for dead


@dataclass(frozen=True)
class FoundRun:
    """One run directory with a readable record."""

    run: RunDir
    record: RunRecord

    def status(self, now: float) -> tuple[str, str | None]:
        """The record's status and reason, but `killed` for a run whose process is gone; `now` in seconds since 1970.

        A process of another host cannot be asked; its heartbeat tells, or its last write.
        """
        record = self.record
        if record.status != "running":
            return record.status, record.error or record.stop_reason
        alive = process_alive(record.process) if record.process else False
        if alive is None:
            silent = now - self._last_sign()
            alive = silent < SILENT_SECONDS
            host = (record.process or {}).get("host")
            return ("running", None) if alive else ("killed", f"no sign of life for {silent:.0f} s on {host}")
        return ("running", None) if alive else ("killed", "its process is gone")

    def _last_sign(self) -> float:
        files = [self.run.heartbeat, self.run.record, self.run.history, self.run.log]
        return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


@dataclass(frozen=True)
class LeftOut:
    """A folder that is no run to be used, and why: damaged, foreign or copied."""

    path: Path
    kind: str
    reason: str


@dataclass
class Ledger:
    """Runs, newest first, and every folder beside them that is not used."""

    runs: list[FoundRun] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    @classmethod
    def scan(cls, root: Path | str, pattern: str = "*") -> Self:
        """Read every run.json one level below `root`, of folders whose name fits `pattern`.

        A folder without one is foreign; of folders with the same run id, the one that finished, else the one that was
        made first, is the run and the others are copies.
        """
        ledger = cls()
        root = Path(root)
        with _collector_paused():
            for folder in sorted(root.glob(pattern)) if root.is_dir() else []:
                if folder.is_dir() and folder.name != SNAPSHOTS:
                    ledger._take(folder)
        ledger._set_copies_apart()
        return ledger

    def _take(self, folder: Path) -> None:
        run = RunDir(folder)
        if not run.record.is_file():
            self.left_out.append(LeftOut(folder, "foreign", "no run.json in it"))
            return
        try:
            self.runs.append(_settled(FoundRun(run, RunRecord.read(run.record))))
        except FtxError as error:
            self.left_out.append(LeftOut(folder, "damaged", str(error).splitlines()[0]))

    def add(self, other: "Ledger") -> None:
        """Take in what was found in another folder."""
        self.runs += other.runs
        self.left_out += other.left_out
        self._set_copies_apart()

    @property
    def problems(self) -> list[str]:
        """Folders that should have been runs, in words."""
        return [f"{each.path}: {each.reason}" for each in self.left_out if each.kind != "foreign"]

    def by_fingerprint(self) -> dict[Any, list[FoundRun]]:
        """Runs by their `train` fingerprint, newest first."""
        found: dict[Any, list[FoundRun]] = {}
        for each in self.runs:
            found.setdefault(each.record.fingerprint["train"], []).append(each)
        return found

    def to_frame(self) -> Any:
        """A pandas frame, one row a run: path, status, result, losses, scores, cost, and every setting by its name."""
        import pandas as pd

        return pd.DataFrame([_as_row(found) for found in self.runs])

    def __iter__(self) -> Iterator[FoundRun]:
        return iter(self.runs)

    def _set_copies_apart(self) -> None:
        originals: dict[str, FoundRun] = {}
        for found in sorted(self.runs, key=_age):
            original = originals.setdefault(found.record.run_id, found)
            if original is not found:
                further = original.record.status == "finished" != found.record.status
                what = "the same run, which finished in" if further else "a copy of"
                self.left_out.append(LeftOut(found.run.path, "copied", f"{what} {original.run.path}"))
        self.runs = sorted(originals.values(), key=lambda found: found.record.date, reverse=True)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Records hold no cycles, and looking for them among millions of values takes a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _age(found: FoundRun) -> tuple[bool, float, int, str]:
    # Of a run that was copied and resumed in one place, that one. Otherwise the directory that was there first: not by
    # the time of the content, which a copy may keep, and by a file that is never written again.
    first = found.run.environment if found.run.environment.exists() else found.run.record
    return found.record.status != "finished", first.stat().st_ctime, len(found.run.path.name), str(found.run.path)


def _as_row(found: FoundRun) -> dict[str, Any]:
    record = found.record
    settings = _flat(record.config)
    scores = {
        f"scores.{split}.{name}": value for split, values in record.scores.items() for name, value in values.items()
    }
    return {
        "run_id": record.run_id,
        "path": str(found.run.path),
        "study": record.lab,
        "date": record.date,
        "status": record.status,
        "resumes": len(record.resumes),
        "forced": "; ".join(forced_resumes(record)) or None,
        "model": record.model,
        "metric": record.result["metric"],
        "value": record.result["value"],
        "validation_value": record.result["validation_value"],
        **{f"losses.{name}": value for name, value in record.losses.items()},
        **scores,
        **{f"cost.{name}": value for name, value in record.cost.items()},
        **settings,
    }


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def _settled(found: FoundRun) -> FoundRun:
    """Read a record again whose process has ended since: what a process has left when it is gone is its last word."""
    record = found.record
    if record.status == "running" and record.process is not None and process_alive(record.process) is False:
        return FoundRun(found.run, RunRecord.read(found.run.record))
    return found
