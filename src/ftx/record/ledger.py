"""All run directories under a folder, and what is wrong with those that cannot be read."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ftx.errors import FtxError
from ftx.record.layout import RunDir
from ftx.record.provenance import process_alive
from ftx.record.run_record import RunRecord

SILENT_SECONDS = 3600.0  # a run on another host that has written nothing for this long is taken for dead


@dataclass(frozen=True)
class FoundRun:
    """One run directory with a readable record."""

    run: RunDir
    record: RunRecord

    def status(self, now: float) -> tuple[str, str | None]:
        """The record's status and reason, but `killed` for a run whose process is gone; `now` in seconds since 1970.

        A process of another host cannot be asked; its last write tells.
        """
        record = self.record
        if record.status != "running":
            return record.status, record.error or record.stop_reason
        alive = process_alive(record.process) if record.process else False
        if alive is None:
            silent = now - self._last_write()
            alive = silent < SILENT_SECONDS
            host = (record.process or {}).get("host")
            return ("running", None) if alive else ("killed", f"nothing written for {silent:.0f} s on {host}")
        return ("running", None) if alive else ("killed", "its process is gone")

    def _last_write(self) -> float:
        files = [self.run.record, self.run.history, self.run.log]
        return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


@dataclass
class Ledger:
    """Runs, newest first, and problems in words."""

    runs: list[FoundRun] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @classmethod
    def scan(cls, root: Path) -> Self:
        """Read every run.json one level below `root`; a folder without one is no run and no problem."""
        ledger = cls()
        for folder in sorted(root.iterdir()) if root.is_dir() else []:
            run = RunDir(folder)
            if not run.record.is_file():
                continue
            try:
                ledger.runs.append(_settled(FoundRun(run, RunRecord.read(run.record))))
            except FtxError as error:
                ledger.problems += str(error).splitlines()
        ledger.runs.sort(key=lambda found: found.record.date, reverse=True)
        return ledger

    def by_fingerprint(self) -> dict[Any, list[FoundRun]]:
        """Runs by their `train` fingerprint, newest first."""
        found: dict[Any, list[FoundRun]] = {}
        for each in self.runs:
            found.setdefault(each.record.fingerprint["train"], []).append(each)
        return found

    def __iter__(self) -> Iterator[FoundRun]:
        return iter(self.runs)


def _settled(found: FoundRun) -> FoundRun:
    """Read a record again whose process has ended since: what a process has left when it is gone is its last word."""
    record = found.record
    if record.status == "running" and record.process is not None and process_alive(record.process) is False:
        return FoundRun(found.run, RunRecord.read(found.run.record))
    return found
