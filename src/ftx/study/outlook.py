"""A plan beside what has become of it: the study as it stands before anything is started."""

import time
from dataclasses import dataclass
from pathlib import Path

from ftx.record.layout import StudyDir
from ftx.record.ledger import Ledger
from ftx.record.provenance import process_alive
from ftx.record.study_record import StudyRecord
from ftx.study.book import Reader, opened, states_of, study_dir
from ftx.study.planning import StudyPlan, Trial
from ftx.study.selection import finished_runs, narrowed
from ftx.study.states import State


@dataclass(frozen=True)
class Outlook:
    """A study's plan, the state of its trials by outputs/, and its record with both in it."""

    plan: StudyPlan
    folder: StudyDir
    ledger: Ledger
    states: list[State]
    record: StudyRecord

    @property
    def to_run(self) -> list[Trial]:
        """Failed and missing trials, as many as the budget allows, whole replicates first."""
        pairs = zip(self.plan.trials, self.states, strict=True)
        return [trial for trial, state in pairs if state.state in ("failed", "missing")][: self.plan.study.max_runs]

    @property
    def orphans(self) -> list[str]:
        """This study's runs that go on on this machine although the launch that started them has died."""
        return [
            str(state.found.run.path)
            for state in self.states
            if state.state == "running"
            and state.found is not None
            and (state.found.record.made_by or {}).get("study") == self.plan.name
            and process_alive(state.found.record.process or {"host": None}) is True
        ]


def look(plan: StudyPlan) -> Outlook:
    """Read outputs/ and the study's folder; nothing is written.

    Raises:
        ConfigError: the folder holds a study with another baseline, or replicate_top has nothing to rank.
    """
    folder = study_dir(plan.name)
    ledger = Ledger.scan(Path(plan.baseline.output_root))
    earlier = StudyRecord.read(folder.record) if folder.record.is_file() else None
    reader = Reader(plan, ledger, time.time())
    for trial in earlier.trials if earlier is not None else []:
        reader.refresh(trial)
    plan = narrowed(plan, earlier, finished_runs(ledger))
    states = states_of(plan, reader)
    return Outlook(plan, folder, ledger, states, opened(plan, states, earlier))
