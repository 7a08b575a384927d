"""The run log: add one line about a run to a lab book, from a script of your own or from a shell.

    python -m ftx.runlog --demo
    python -m ftx.runlog --record < fields.json
    from ftx.runlog import record, file_sha256

Needs no torch. See `ftx.record.labbook` for the file and `ftx.record.run_record` for the names inside.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ftx.errors import FtxError, RecordError
from ftx.record.git_state import git_state
from ftx.record.labbook import append_entry, lock_path, type_problem, unknown_field
from ftx.record.provenance import STACK, file_sha256, machine, package_versions
from ftx.record.run_record import new_run_id, utc_date
from ftx.record.strict_json import JsonError, dumps, loads

__all__ = ["file_sha256", "main", "record"]

REQUIRED = ("model", "dataset", "hyperparameters", "seed", "losses", "scores", "notes")
GIVEN = (*REQUIRED, "lab")
FILLED_IN = ("run_id", "date", "config_commit", "hardware", "versions")
LABBOOK = "labbook.md"
_NVIDIA_SMI_SECONDS = 10.0

_DEMO: dict[str, Any] = {
    "lab": "demo",
    "model": "demo-model",
    "dataset": {"path": None, "sha256": None, "train_examples": 156, "validation_examples": 31},
    "hyperparameters": {"lora.rank": 16, "optim.lr": 2e-4, "optim.epochs": 3.0, "optim.batch_size": 8},
    "seed": 0,
    "losses": {
        "first_train_loss": 2.0,
        "final_train_loss": 1.0,
        "best_eval_loss": 1.25,
        "best_epoch": 3.0,
        "best_step": 60,
        "final_eval_loss": 1.25,
        "seconds": 0.0,
    },
    "scores": {"exact_match": 0.5},
    "notes": "DEMO, not a run: written by python -m ftx.runlog --demo. Losses and scores are made up; "
    "date, commit, hardware and versions are those of this machine.",
}


def record(
    *,
    model: str,
    dataset: Mapping[str, Any],
    hyperparameters: Mapping[str, Any],
    seed: int,
    losses: Mapping[str, Any],
    scores: Mapping[str, Any],
    notes: str,
    lab: str = "single",
    config_path: Path | str | None = None,
    labbook: Path | str = LABBOOK,
) -> dict[str, Any]:
    """Append one entry to the lab book and return it as written.

    `config_path` is a file or folder: the state of the repository that holds it becomes `config_commit`;
    None: the working directory. What is not known is None; a float may be NaN and is written as "NaN".
    RecordError on a wrong type or a lab book that cannot be written.
    """
    now = datetime.now(UTC)
    book = Path(labbook)
    git = git_state(Path(config_path or "."), ignore=[book, lock_path(book)], with_patch=False)
    entry = {
        "run_id": new_run_id(now, os.urandom(3)),
        "lab": lab,
        "date": utc_date(now),
        "config_commit": git.short,
        "model": model,
        "dataset": dataset,
        "hyperparameters": hyperparameters,
        "seed": seed,
        "hardware": {**machine(), **_accelerator()},
        "versions": package_versions(STACK),
        "losses": losses,
        "scores": scores,
        "notes": notes,
    }
    return append_entry(book, entry)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0 (written), 2 (refused, said on stderr) or 130 (interrupted)."""
    options = _parser().parse_args(arguments)
    try:
        fields = _DEMO if options.demo else parse_fields(sys.stdin.buffer.read())
        entry = record(**fields, labbook=options.labbook)
    except FtxError as error:
        for line in str(error).splitlines():
            print(f"ftx.runlog: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # while stdin is typed by hand
        return 130
    if options.json:
        print(dumps(entry))
    else:
        commit = entry["config_commit"] or "unknown"
        print(f"{options.labbook}: appended {entry['run_id']} (lab {entry['lab']}, commit {commit})")
    return 0


def parse_fields(data: bytes) -> dict[str, Any]:
    """Parse what --record reads: a JSON object of the fields in GIVEN. RecordError names every problem."""
    fields = _parse_json(data)
    if not isinstance(fields, dict):
        raise RecordError(f"stdin: expected a JSON object, got {type(fields).__name__}")
    problems = [_refusal(field) for field in fields if field not in GIVEN]
    problems += [f"{field}: missing; --record needs it" for field in REQUIRED if field not in fields]
    problems += [problem for field in GIVEN if field in fields for problem in type_problem(field, fields[field])]
    if problems:
        raise RecordError("\n".join(problems))
    return fields


def _parse_json(data: bytes) -> Any:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecordError(f"stdin: byte {error.start} is not UTF-8 text") from None
    if not text.strip():
        raise RecordError("stdin: empty, expected a JSON object")
    try:
        return loads(text)
    except JsonError as error:
        raise RecordError(f"stdin, line {error.line}, column {error.column}: not valid JSON: {error}") from None


def _refusal(field: str) -> str:
    if field in FILLED_IN:
        return f"{field}: filled in by ftx; leave it out"
    return unknown_field(field, GIVEN)


def _accelerator() -> dict[str, str | None]:
    """Name the first NVIDIA GPU, if its driver's own tool does; without torch nothing else is known."""
    name = None
    executable = shutil.which("nvidia-smi")
    if executable:
        command = [executable, "--query-gpu=name", "--format=csv,noheader"]
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(command, capture_output=True, text=True, timeout=_NVIDIA_SMI_SECONDS, check=True)
            name = next(iter(done.stdout.splitlines()), "").strip() or None
    return {"accelerator": "cuda" if name else None, "device_name": name}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ftx.runlog",
        description="Append one line about a run to a lab book.",
        allow_abbrev=False,
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--demo", action="store_true", help="append a line of made-up results, labelled as demo")
    action.add_argument(
        "--record",
        action="store_true",
        help=f"read a JSON object from stdin: {', '.join(REQUIRED)} and optionally lab",
    )
    parser.add_argument("--labbook", default=LABBOOK, metavar="FILE", help="the file to append to (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the entry, as JSON, and nothing else")
    return parser


if __name__ == "__main__":
    sys.exit(main())
