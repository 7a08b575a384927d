"""The few kinds of error that a person can mend.

Every message names the field, the value, what was expected and the remedy. Entry points print the
message without a traceback; anything that is not an FtxError is a fault of ftx or of its surroundings
and keeps its traceback (in the run's job.log).
"""

from collections.abc import Sequence


class FtxError(Exception):
    """A problem that the person who started ftx can mend."""


class ConfigError(FtxError):
    """The composed configuration is not one that ftx can run; holds every problem found, not the first."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__(self.problems)  # as given, so that it can be pickled

    def __str__(self) -> str:
        return "\n".join(self.problems)


class DataError(FtxError):
    """Rows that cannot be trained on; the message says which file, line and field."""


class ModelError(FtxError):
    """A base model, tokenizer or adapter that cannot be had or does not fit the settings."""


class RecordError(FtxError):
    """A run record, history or lab-book entry that does not have the declared form."""


class RunFailed(FtxError):
    """A run that did not finish; `status` is its record's, or `missing` where it was never started."""

    def __init__(self, status: str, reason: str) -> None:
        self.status, self.reason = status, reason
        super().__init__(status, reason)

    def __str__(self) -> str:
        return f"{self.status}: {self.reason}"


class StudyRunning(FtxError):
    """Another process runs this study."""


class RunHeld(FtxError):
    """Another process trains in this run directory."""
