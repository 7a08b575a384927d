"""What runs would be: their inputs, read once each, their fingerprints, and whether they could run at all."""

import copy
import json
from dataclasses import replace

from ftx.config.schema import RunConfig
from ftx.data.findings import notes, refuse_problems
from ftx.errors import ConfigError, FtxError
from ftx.job.cadence import evaluation_steps, total_steps, warmup_steps
from ftx.job.preparation import Inputs, findings_of, fingerprints_of, inputs_key, read_inputs


class Identities:
    """Inputs and fingerprints of many configurations; problems are collected, so that all are said at once."""

    def __init__(self) -> None:
        self._inputs: dict[str, Inputs | FtxError] = {}
        self._problems: dict[str, list[str]] = {}
        self._notes: dict[str, list[str]] = {}
        self._looked_at = 0

    def of(self, config: RunConfig, whose: str) -> tuple[Inputs, dict[str, str]] | None:
        """Inputs and fingerprints of a resolved configuration; None if it cannot run, see `raise_problems`."""
        try:
            inputs = self._read(config)
            findings = findings_of(config, inputs)
            refuse_problems(findings)
        except FtxError as error:
            self._problems.setdefault(str(error), []).append(whose)
            return None
        self._looked_at += 1
        for note in notes(findings):
            self._notes.setdefault(note, []).append(whose)
        return inputs, fingerprints_of(config, inputs)

    def notes(self) -> list[str]:
        """What was noted of any configuration, once each; with the first that it is about, unless it is all."""
        return [note if len(whose) == self._looked_at else f"{whose[0]}: {note}" for note, whose in self._notes.items()]

    def raise_problems(self) -> None:
        """Raise ConfigError with every problem and the first trial that has it."""
        if self._problems:
            raise ConfigError([f"{whose[0]}: {problem}" for problem, whose in self._problems.items()])

    def _read(self, config: RunConfig) -> Inputs:
        key = inputs_key(config)
        if key not in self._inputs:
            try:
                self._inputs[key] = read_inputs(config)
            except FtxError as error:
                self._inputs[key] = error
        found = self._inputs[key]
        if isinstance(found, FtxError):
            raise found
        return found


def effective(config: RunConfig, inputs: Inputs) -> str:
    """What the settings come to: two runs of equal text make the same steps on the same tokens.

    Warmup and length of training count in steps, the sequence length only where a row reaches it.
    """
    rows = len(inputs.data.train)
    steps = (warmup_steps(config, rows), total_steps(config, rows), evaluation_steps(config, rows))
    counts = inputs.data.record["lengths"]["train"]
    limit = counts["limit"] if counts["too_long"] else None
    same = copy.deepcopy(config)
    same.optim = replace(config.optim, warmup_ratio=0.0, epochs=1.0, max_steps=None)
    same.data = replace(config.data, max_seq_len=2)
    same.checkpoint = replace(config.checkpoint, every_epochs=1.0)
    return json.dumps([fingerprints_of(same, inputs)["train"], steps, limit])
