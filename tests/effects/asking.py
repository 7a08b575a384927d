"""`ftx.aggregate` asked in this process, in the current folder."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ftx.aggregate import start


@dataclass(frozen=True)
class Answer:
    """What it printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> dict[str, Any]:
        """The JSON object; only for an answer that succeeded."""
        assert self.status == 0, self.err
        return json.loads(self.out)

    def rows(self) -> dict[Any, dict[str, Any]]:
        """Rows of the table by level; of several factors by (factor, level)."""
        rows = self.data["effects"]
        several = len({row["factor"] for row in rows}) > 1
        return {(row["factor"], row["level"]) if several else row["level"]: row for row in rows}

    def problems(self, kind: str) -> list[str]:
        """Words of all problems of a kind."""
        return [problem["detail"] for problem in self.data["problems"] if problem["kind"] == kind]


class Aggregate:
    """`aggregate(...)` is the command line; `table(...)` writes a table first and names its usual columns."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> Answer:
        self._capsys.readouterr()
        try:
            status: Any = start(list(words))
        except SystemExit as ended:  # argparse
            status = ended.code
        out, err = self._capsys.readouterr()
        return Answer(status, out, err)

    def table(self, text: str, *words: str, factors: str = "arm", metric: str = "y", name: str = "r.csv") -> Answer:
        """A table with the columns `factors`, seed and y, more is better; JSON unless `words` say otherwise."""
        Path(name).write_text(text)
        chosen = [word for factor in factors.split() for word in ("--factor", factor)]
        usual = ["--replicate", "seed", "--metric", metric, "--direction", "max"]
        formats = [] if "--format" in words else ["--format", "json"]
        return self("--table", name, *chosen, *usual, *formats, *words)


def without_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without plots and page, which take longer than all the rest."""
    monkeypatch.setattr("ftx.report.plots.files.figures", lambda *_, **__: {})
    monkeypatch.setattr("ftx.report.plots.files.write_plots", lambda *_, **__: [])
    monkeypatch.setattr("ftx.report.html.html_report", lambda *_, **__: "")


def lines(header: str, *rows: tuple[object, ...]) -> str:
    """A CSV."""
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


def arms(**values: tuple[object, ...]) -> str:
    """A CSV of arm, seed, y with these values by arm, seeds 0, 1, ..."""
    return lines("arm,seed,y", *((arm, seed, y) for arm, ys in values.items() for seed, y in enumerate(ys)))
