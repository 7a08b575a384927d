"""python scripts/aggregate.py: every run directory, or a table from elsewhere, as a table of main effects.

    python scripts/aggregate.py                                   the newest study in multirun/
    python scripts/aggregate.py --study rank-lr-62e92317          a study by name; several: --study A B
    python scripts/aggregate.py --runs outputs                    runs that no study claims
    python scripts/aggregate.py --table r.csv --factor arm --baseline base --replicate seed --metric y --direction max

Exit status: 0 a table, 1 nothing could be computed, 2 wrong use.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ftx.analysis.error import AnalysisError
from ftx.effects.from_runs import observations_of_runs
from ftx.effects.from_study import observations_of_study
from ftx.effects.from_table import Columns, observations_of_table
from ftx.effects.observations import Observations
from ftx.effects.table import Options, StudyEffects, effects_of
from ftx.errors import ConfigError, FtxError, RecordError
from ftx.record.layout import MULTIRUN, StudyDir
from ftx.record.ledger import Ledger
from ftx.record.study_record import StudyRecord
from ftx.report.effects import FORMATS, print_effects, write_effects

NOTHING, WRONG_USE = 1, 2
PIPED_WIDTH = 140


class _WrongUse(FtxError):
    """A command line that makes no sense."""


def start(arguments: Sequence[str]) -> int:
    """Aggregate and print; returns the exit status."""
    options = _parser().parse_args(list(arguments))
    try:
        _check(options)
        asked = _observations(options)
    except (_WrongUse, ConfigError) as error:
        return _complain(error, WRONG_USE)
    except (FtxError, OSError) as error:
        return _complain(error, NOTHING)
    judge = Options(options.margin, options.alpha, options.family, options.looks)
    found: list[StudyEffects] = []
    status = 0
    for observations, study in asked:
        try:
            effects = effects_of(observations, judge)
        except AnalysisError as error:
            for problem in observations.problems:
                print(f"ftx: {problem.detail}", file=sys.stderr)
            status = _complain(FtxError(f"{observations.name}: {error}"), NOTHING)
            continue
        found.append(effects)
        folder = _report_folder(options.out, observations, study, several=len(asked) > 1)
        if folder is not None:
            _write(effects, study, folder)
    if found:
        print_effects(found, options.format, _console())
        for effects in found:
            if not any(row.n_ok for row in effects.rows):
                status = _complain(FtxError(f"{effects.observations.name}: no run finished"), NOTHING)
    return status


def _console() -> Console:
    """As wide as the terminal; a file or a pipe gets room for a whole row."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=PIPED_WIDTH)


def _report_folder(
    out: str | None, observations: Observations, study: StudyRecord | None, *, several: bool
) -> Path | None:
    """Where the report goes: --out, else the study's report/; nowhere for a table that is only looked at."""
    if out is not None:
        return Path(out) / observations.name if several else Path(out)
    return None if study is None else StudyDir(MULTIRUN / study.study).report


def _write(effects: StudyEffects, study: StudyRecord | None, folder: Path) -> None:
    """Tables, plots and the report. A folder that cannot be written is said; the table is still printed."""
    from ftx.report.html import html_report  # these draw with matplotlib, which takes its time to import
    from ftx.report.plots.files import figures, write_plots

    try:
        write_effects(effects, folder)
        drawn = figures(effects)
        write_plots(effects, folder, drawn=drawn)
        (folder / "report.html").write_text(html_report(effects, study, drawn=drawn), encoding="utf-8")
        print(f"Report: {folder / 'report.html'}", file=sys.stderr)
    except OSError as error:
        _complain(FtxError(f"{folder}: the report could not be written ({error.strerror}); --out DIR names another"), 0)


def _observations(options: argparse.Namespace) -> list[tuple[Observations, StudyRecord | None]]:
    """What to make tables of, each with its study if it has one."""
    if options.table is not None:
        columns = Columns(tuple(options.factor), options.replicate, options.metric, options.status)
        table = observations_of_table(
            Path(options.table),
            columns,
            direction=options.direction,
            baselines=options.baseline,
            design=options.design,
        )
        return [(table, None)]
    now = time.time()
    roots = [Path(root) for root in (options.runs or options.root)]
    ledger = Ledger()
    for root in roots:
        if not root.is_dir():
            raise FtxError(f"{root}: no such folder; start this where outputs/ is, or name it with --root")
        ledger.add(Ledger.scan(root))
    if options.runs:
        named = (trial.run for study in _studies(MULTIRUN) for trial in study.trials if trial.run)
        claimed = {Path(run).resolve() for run in named}
        runs = [found for found in ledger.runs if found.run.path.resolve() not in claimed]
        return [(observations_of_runs(runs, roots[0], now), None)]
    studies = [_named(name) for name in options.study] if options.study else [_newest()]
    return [(observations_of_study(study, ledger, now), study) for study in studies]


def _named(name: str) -> StudyRecord:
    known = sorted(path.parent.name for path in MULTIRUN.glob("*/study.json"))
    matching = [study for study in known if study == name] or [study for study in known if study.startswith(name)]
    if len(matching) != 1:
        which = (
            f"several: {', '.join(matching)}" if matching else f"no such study; there are {', '.join(known) or 'none'}"
        )
        raise _WrongUse(f"--study {name}: {which}")
    return StudyRecord.read(MULTIRUN / matching[0] / "study.json")


def _newest() -> StudyRecord:
    paths = list(MULTIRUN.glob("*/study.json"))
    if not paths:
        raise FtxError(
            "multirun/ holds no study: run one (python -m ftx.train -m ...), or compare loose runs with --runs outputs"
        )
    studies = _studies(MULTIRUN)
    if not studies:
        raise FtxError("multirun/ holds no study that can be read")
    return max(studies, key=_last_started)


def _last_started(study: StudyRecord) -> tuple[str, float]:
    date = study.launches[-1].get("date", "") if study.launches else ""
    record = StudyDir(MULTIRUN / study.study).record
    return date, record.stat().st_mtime if record.is_file() else 0.0


def _studies(root: Path) -> list[StudyRecord]:
    found = []
    for path in root.glob("*/study.json"):
        try:
            found.append(StudyRecord.read(path))
        except RecordError as error:
            print(f"ftx: {error}", file=sys.stderr)
    return found


def _check(options: argparse.Namespace) -> None:
    if not 0 < options.alpha < 1:
        raise _WrongUse(f"--alpha {options.alpha:g}: expected a number between 0 and 1, such as 0.05")
    if options.looks < 1:
        raise _WrongUse(f"--looks {options.looks}: expected at least 1")
    if options.margin is not None and not options.margin > 0:
        raise _WrongUse(f"--margin {options.margin:g}: expected a number above 0")
    if options.study and options.runs:
        raise _WrongUse("--study and --runs ask for two different tables: give one of them")
    if options.table is None:
        used = [
            f"--{name}"
            for name in ("factor", "baseline", "replicate", "metric", "direction", "status")
            if getattr(options, name)
        ]
        if used:
            raise _WrongUse(f"{used[0]} describes a table: it needs --table FILE")
        return
    if options.study or options.runs:
        raise _WrongUse("--table stands alone: --study and --runs read run directories")
    needed = {"--factor": options.factor, "--metric": options.metric, "--direction": options.direction}
    absent = [name for name, given in needed.items() if not given]
    if absent:
        raise _WrongUse(f"--table needs {' and '.join(absent)} too, such as --factor arm --metric y --direction max")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aggregate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    runs = parser.add_argument_group("run directories")
    runs.add_argument("--study", nargs="+", metavar="NAME", help="studies by name, side by side (default: the newest)")
    runs.add_argument("--root", nargs="+", default=["outputs"], metavar="DIR", help="where runs are (default: outputs)")
    runs.add_argument("--runs", nargs="+", metavar="DIR", help="compare runs there that no study claims")
    table = parser.add_argument_group("a table from elsewhere")
    table.add_argument("--table", metavar="FILE", help="tidy .csv, .json, .jsonl or .parquet, one row a run")
    table.add_argument("--factor", action="append", default=[], metavar="COLUMN", help="may be given several times")
    table.add_argument("--baseline", action="append", default=[], metavar="LEVEL", help="LEVEL or FACTOR=LEVEL")
    table.add_argument("--replicate", metavar="COLUMN", help="column of the seed")
    table.add_argument("--metric", metavar="COLUMN", help="column of the value")
    table.add_argument("--direction", choices=("min", "max"), help="whether smaller or larger is better")
    table.add_argument("--status", metavar="COLUMN", help="column that marks failed rows")
    table.add_argument("--design", choices=("ofat", "factorial", "auto"), default="auto")
    judge = parser.add_argument_group("judging")
    judge.add_argument(
        "--margin", type=float, metavar="M", help="differences below M do not matter: allows 'equivalent'"
    )
    judge.add_argument("--alpha", type=float, default=0.05)
    judge.add_argument("--family", choices=("study", "factor"), default="study", help="comparisons adjusted together")
    judge.add_argument(
        "--looks", type=int, default=1, metavar="L", help="times the table was looked at: test at alpha/L"
    )
    out = parser.add_argument_group("output")
    out.add_argument("--format", choices=FORMATS, default="terminal")
    out.add_argument(
        "--out", metavar="DIR", help="write tables, plots and the report there (default: the study's report/)"
    )
    return parser


def _complain(error: Exception, status: int) -> int:
    for line in str(error).splitlines():
        print(f"ftx: {line}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
