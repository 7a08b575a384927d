"""The names of all files of a run directory, and how a new directory gets a name of its own."""

import re
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from ftx.errors import FtxError

JOB_OUTPUT = "console.log"  # in the folder of a study's job: what it printed
MULTIRUN = Path("multirun")  # where studies are, below the folder that ftx is started in
SNAPSHOTS = ".data"  # below output_root: copies of the files that runs read, named by their content
MAX_NAME = 100  # characters of a run directory's name, collision suffix included


@dataclass(frozen=True)
class RunDir:
    """One run directory; every path below it is a property here and spelled nowhere else."""

    path: Path

    @property
    def record(self) -> Path:
        """The RunRecord."""
        return self.path / "run.json"

    @property
    def history(self) -> Path:
        """One line per logged event."""
        return self.path / "history.jsonl"

    @property
    def superseded(self) -> Path:
        """Lines of the history that a resumed run has trained again."""
        return self.path / "superseded.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Folder of what is needed to continue."""
        return self.path / "checkpoints"

    @property
    def lock(self) -> Path:
        """Held by the process that trains in this directory."""
        return self.path / "run.lock"

    @property
    def heartbeat(self) -> Path:
        """Touched while the run's process lives, for readers on other hosts."""
        return self.path / "heartbeat"

    @property
    def reserve(self) -> Path:
        """Room set aside, so that a run on a full disk can still say why it ended."""
        return self.path / ".reserve"

    @property
    def adapter(self) -> Path:
        """Folder with the chosen checkpoint's adapter, its tokenizer and chat template."""
        return self.path / "adapter"

    @property
    def model(self) -> Path:
        """Folder with the chosen checkpoint's full weights, for lora=none."""
        return self.path / "model"

    @property
    def predictions(self) -> Path:
        """Per-example results of the task scores."""
        return self.path / "predictions.jsonl"

    @property
    def log(self) -> Path:
        """This run's log and, if it failed, the traceback."""
        return self.path / "job.log"

    @property
    def environment(self) -> Path:
        """Every installed version."""
        return self.path / "environment.txt"

    @property
    def patch(self) -> Path:
        """The uncommitted changes, for git apply."""
        return self.path / "code.patch"

    @property
    def reproduce(self) -> Path:
        """Shell script that repeats the run."""
        return self.path / "reproduce.sh"

    @property
    def hydra(self) -> Path:
        """Folder with Hydra's own files of the first start."""
        return self.path / ".hydra"

    def patch_of_resume(self, number: int) -> Path:
        """The uncommitted changes at the `number`th resume, counted from 1."""
        return self.path / f"code_resume_{number}.patch"

    def hydra_resume(self, number: int) -> Path:
        """Folder with the configuration and the overrides of the `number`th resume, counted from 1."""
        return self.path / f".hydra_resume_{number}"


@dataclass(frozen=True)
class StudyDir:
    """One study's directory; every path below it is a property here and spelled nowhere else."""

    path: Path

    @property
    def record(self) -> Path:
        """Design, factors, levels, baseline, replicates, launches and trials."""
        return self.path / "study.json"

    @property
    def log(self) -> Path:
        """What happened, a dated line each."""
        return self.path / "study.log"

    @property
    def lock(self) -> Path:
        """Held while the study runs."""
        return self.path / "study.lock"

    @property
    def report(self) -> Path:
        """Folder of tables, plots and the HTML report."""
        return self.path / "report"

    def link(self, trial: str, fingerprint: str) -> Path:
        """The link to a trial's run directory: what the trial is called, and the start of its fingerprint."""
        return self.path / "runs" / self._unique(trial, fingerprint)

    def job(self, trial: str, fingerprint: str) -> Path:
        """Folder of what a trial's job printed, and of Hydra's files."""
        return self.path / "jobs" / self._unique(trial, fingerprint)

    def _unique(self, trial: str, fingerprint: str) -> str:
        return f"{safe_name(trial)[: MAX_NAME - 9]}-{fingerprint[:8]}"


def create_run_dir(root: Path, name: str) -> RunDir:
    """Create and return a new directory `root/name`, or `name-2`, `name-3` ... where that is taken.

    Two processes never get the same one. Characters outside A-Z a-z 0-9 . _ - become "-".
    FtxError if `root` cannot be written.
    """
    wanted = safe_name(name)
    try:
        root.mkdir(parents=True, exist_ok=True)
        for attempt in count(1):
            suffix = "" if attempt == 1 else f"-{attempt}"
            path = root / (wanted[: MAX_NAME - len(suffix)] + suffix)
            if _created(path):
                return RunDir(path)
    except OSError as error:
        raise FtxError(
            f"output_root: cannot create a run directory in {root} ({error.strerror}); "
            "expected a folder that you can write to: set output_root=FOLDER"
        ) from None
    raise AssertionError("unreachable")


def safe_name(name: str) -> str:
    """`name` as a folder can be called everywhere."""
    # A leading dot hides the directory, a leading dash looks like an option to every shell command.
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:MAX_NAME] or "run"


def _created(path: Path) -> bool:
    """Create the directory; False if something of that name exists. The check and the act are one call."""
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True
