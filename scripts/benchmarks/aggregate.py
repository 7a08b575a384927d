"""Reading many run directories: time and memory of one `python scripts/aggregate.py --format json`.

Writes N run directories that nobody trained, each with a run.json of the size that a real run has (9 kB) and a
history.jsonl of 65 events (16 kB), and measures over them in processes of their own: wall time from start to end, the
report with its plots included, and peak memory as the system counts it.

--shape studies (the default) is a laboratory's outputs/ after a year: studies of 20 arms with 5 seeds each, one of
which is shown while all directories are read. --shape one is a single study as square as it can be, 100 arms with 100
seeds of 10,000 runs: every directory is in the table, which nobody needs, but nothing may break there either.
The files were written just before, so the system has them in memory; a first read from a disk takes longer.
"""

import argparse
import copy
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from ftx.config.keys import flat
from ftx.config.schema import Composition
from ftx.record.layout import RunDir, StudyDir
from ftx.record.run_record import RunRecord
from ftx.record.study_record import StudyRecord, TrialRecord

AGGREGATE = Path(__file__).parents[1] / "aggregate.py"
SECONDS, MEGABYTES = 10.0, 500.0  # the target for 10,000 runs on two cores
ARMS, SEEDS = 20, 5
EVENTS = 65
CONFIG = {name: value for name, value in asdict(Composition()).items() if name != "study"}
DATE = "2026-01-31T{:02d}:{:02d}:{:02d}Z"


@dataclass(frozen=True)
class Measured:
    """What one reading of all runs cost; medians over the repeats, memory the largest."""

    runs: int
    studies: int
    arms: int
    seeds: int
    megabytes_read: float
    cores: int
    repeats: int
    seconds: float
    seconds_of_each: tuple[float, ...]
    runs_per_second: float
    peak_megabytes: float
    rows: int
    within_target: bool


def layout(runs: int, shape: str) -> tuple[int, int, int]:
    """How many studies of how many arms with how many seeds."""
    if shape == "one":
        seeds = max(1, math.isqrt(runs))
        return 1, max(1, runs // seeds), seeds
    seeds = min(SEEDS, runs)
    arms = max(1, min(ARMS, runs // seeds))
    return max(1, runs // (arms * seeds)), arms, seeds


def write_all(folder: Path, studies: int, arms: int, seeds: int) -> int:
    """Write run directories and studies; returns the number of bytes in run.json files."""
    noise = random.Random(0)
    histories = ["".join(events(noise)) for _ in range(50)]
    size = 0
    for number in range(studies):
        study = f"lr-{number:05d}"
        trials = []
        for arm in range(arms):
            for seed in range(seeds):
                place = (number * arms + arm) * seeds + seed
                level = round(1e-4 * (1 + arm) + 1e-9 * number, 12)
                record = one_run(study, place, level, seed, 0.13 + 0.002 * (arm % 3) + noise.gauss(0, 0.003))
                run = RunDir(folder / "outputs" / f"lr{level}-s{seed}-{place:06d}")
                run.path.mkdir(parents=True)
                text = json.dumps(vars(record), indent=2) + "\n"
                run.record.write_text(text, encoding="utf-8")
                run.history.write_text(histories[place % len(histories)], encoding="utf-8")
                size += len(text)
                trials.append(one_trial(record, arm, level, run.path.relative_to(folder)))
        write_study(folder, study, trials, seeds)
    return size


def one_run(study: str, place: int, level: float, seed: int, value: float) -> RunRecord:
    """A finished run as big as a real one."""
    config = copy.deepcopy(CONFIG)
    config["seed"] = seed
    config["optim"]["lr"] = level
    config["metric"] |= {"name": "eval_loss", "direction": "min"}
    moment = (place // 3600 % 24, place // 60 % 60, place % 60)
    record = RunRecord(
        run_id=f"20260131T{moment[0]:02d}{moment[1]:02d}{moment[2]:02d}Z-{place:06x}",
        lab=study,
        date=DATE.format(*moment),
        status="finished",
        config_commit="8c4f972",
        model="tiny",
        seed=seed,
        hyperparameters=flat({"lora": config["lora"], "optim": config["optim"], "data": config["data"]})
        | {"model.attn_implementation": "sdpa", "lora.adapted_modules": {f"{part}_proj": 4 for part in "qkvogud"}},
        versions=dict.fromkeys(("ftx", "torch", "transformers", "trl", "peft", "accelerate", "numpy"), "1.0.0"),
        code={
            "config": {"repository": "/somewhere", "commit": "c" * 40, "dirty": False, "untracked": [], "reason": None},
            "ftx": {"version": "0.1.0", "commit": "c" * 40, "dirty": False, "reason": None, "sources": "f" * 64},
        },
        fingerprint={"train": f"{place:064x}", "evaluation": "e" * 64},
        scores={split: {"exact_match": 0.7, "n": 64, "ran_into_limit": 0.0} for split in ("validation", "test")},
        made_by={"study": study, "arm": f"optim.lr={level}"},
        command=["python", "-m", "ftx.train", f"optim.lr={level}", f"seed={seed}"],
        process={"host": "elsewhere", "boot_id": "b" * 36, "pid": 1, "started": 1.0},
        config=config,
    )
    record.dataset |= dataset()
    record.hardware |= {"os": "Linux", "machine": "x86_64", "python": "3.11", "accelerator": "cpu", "device_name": "x"}
    record.losses |= {"first_train_loss": 0.36, "final_train_loss": value * 0.9, "best_eval_loss": value}
    record.losses |= {"best_epoch": 3.0, "best_step": 60, "final_eval_loss": value, "seconds": 20.0}
    record.result |= {"metric": "eval_loss", "direction": "min", "split": "test", "value": value}
    record.result |= {"checkpoint": {"at": "best", "step": 60, "epoch": 3.0}, "validation_value": value}
    record.cost |= {"seconds": 20.0, "tokens_per_second": 2264.0, "peak_memory_bytes": 2**29, "tokens": 34869}
    record.cost |= {"trainable_parameters": 195584, "steps": 60, "trained_tokens": 16893, "effective_batch": 8}
    return record


def dataset() -> dict[str, Any]:
    """What a run says about its rows: most of a record's size."""
    splits = {"train": 156, "validation": 31, "test": 64}
    return {
        "path": "orders/train.jsonl",
        "sha256": "d" * 64,
        "train_examples": 156,
        "validation_examples": 31,
        "template_sha256": "t" * 64,
        "files": [{"split": name, "path": name, "sha256": "d" * 64, "rows": rows} for name, rows in splits.items()],
        "content": {name: {"ordered": "a" * 64, "any_order": "b" * 64} for name in splits},
        "lengths": {
            name: dict.fromkeys(
                ("rows", "too_long", "dropped", "truncated", "limit", "kept", "tokens", "longest"), rows
            )
            for name, rows in splits.items()
        },
    }


def events(noise: random.Random) -> Iterator[str]:
    """A history: an evaluation at the start and after each third, and all steps."""
    for step in range(EVENTS):
        training = step % 20
        metrics = {"loss": 0.13 + 0.2 / (1 + step) + noise.gauss(0, 0.003), "grad_norm": 0.9, "learning_rate": 2e-4}
        metrics |= {"tokens": 587, "target_tokens": 289, "tokens_per_second": 2048.5} if training else {}
        event = {"step": step, "epoch": step / 20, "split": "train" if training else "validation", "metrics": metrics}
        yield json.dumps(event | {"time": 1796132265.0 + step}) + "\n"


def one_trial(record: RunRecord, arm: int, level: float, run: Path) -> TrialRecord:
    """Its place in the study; the first arm is the baseline."""
    return TrialRecord(
        arm=f"optim.lr={level}" if arm else "baseline",
        factor="optim.lr" if arm else None,
        level=level if arm else None,
        levels={"optim.lr": level} if arm else {},
        is_baseline=not arm,
        replicate=record.seed,
        replicates={"seed": record.seed},
        overrides=[f"optim.lr={level}", f"seed={record.seed}"],
        fingerprint=dict(record.fingerprint),
        state="done",
        status="finished",
        run=str(run),
    )


def write_study(folder: Path, study: str, trials: list[TrialRecord], seeds: int) -> None:
    """The study.json over these trials."""
    baseline = json.loads(trials[0].overrides[0].partition("=")[2])
    levels = list(dict.fromkeys([baseline, *(trial.level for trial in trials if trial.level is not None)]))
    where = StudyDir(folder / "multirun" / study)
    where.path.mkdir(parents=True)
    StudyRecord(
        study=study,
        design="ofat",
        factors=[
            {
                "name": "optim.lr",
                "keys": ["optim.lr"],
                "levels": [{"level": value, "label": f"{value}", "is_baseline": value == baseline} for value in levels],
                "baseline": baseline,
                "baseline_level": f"{baseline}",
            }
        ],
        baseline={"overrides": [], "fingerprint": "b" * 64, "config": CONFIG},
        replicates={"seed": list(range(seeds))},
        metric={"name": "eval_loss", "direction": "min", "at": "best"},
        launches=[{"date": DATE.format(0, 0, 0), "command": ["python", "-m", "ftx.train", "-m", "optim.lr=1e-4"]}],
        trials=trials,
    ).write(where)


def read_once(folder: Path) -> tuple[float, float, int]:
    """Seconds, peak megabytes and rows of one aggregate in a process of its own."""
    out, err = folder / "aggregate.out", folder / "aggregate.err"
    command = [sys.executable, str(AGGREGATE), "--format", "json"]
    began = time.perf_counter()
    with out.open("w") as to, err.open("w") as errors:
        process = subprocess.Popen(command, cwd=folder, stdout=to, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{AGGREGATE.name} ended with {process.returncode}: {err.read_text()}")
    unit = 1 if sys.platform == "darwin" else 1024
    return seconds, usage.ru_maxrss * unit / 1e6, len(json.loads(out.read_text())["effects"])


def measure_aggregate(runs: int, shape: str, repeats: int, folder: Path) -> Measured:
    """Write the directories into `folder`, then read them `repeats` times."""
    studies, arms, seeds = layout(runs, shape)
    size = write_all(folder, studies, arms, seeds)
    found = [read_once(folder) for _ in range(repeats)]
    seconds = statistics.median(each[0] for each in found)
    peak = max(each[1] for each in found)
    total = studies * arms * seeds
    return Measured(
        runs=total,
        studies=studies,
        arms=arms,
        seeds=seeds,
        megabytes_read=size / 1e6,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        repeats=repeats,
        seconds=seconds,
        seconds_of_each=tuple(each[0] for each in found),
        runs_per_second=total / seconds,
        peak_megabytes=peak,
        rows=found[0][2],
        within_target=seconds < SECONDS and peak < MEGABYTES,
    )


def in_words(found: Measured) -> Table:
    """A row for what was measured."""
    table = Table(
        title=f"aggregate --format json, {found.cores} cores, median of {found.repeats}", title_justify="left"
    )
    for heading in ("runs", "studies", "arms x seeds", "MB of run.json", "seconds", "runs/s", "peak MB", "target"):
        table.add_column(heading, justify="right")
    table.add_row(
        f"{found.runs:,}",
        f"{found.studies}",
        f"{found.arms} x {found.seeds}",
        f"{found.megabytes_read:,.0f}",
        f"{found.seconds:.2f}",
        f"{found.runs_per_second:,.0f}",
        f"{found.peak_megabytes:,.0f}",
        "kept" if found.within_target else f"missed ({SECONDS:g} s, {MEGABYTES:g} MB)",
    )
    return table


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this subcommand."""
    parser.add_argument("--runs", type=int, default=10000, help="how many run directories (default: 10000)")
    parser.add_argument("--shape", choices=("studies", "one"), default="studies", help="many studies, or a single one")
    parser.add_argument("--repeats", type=int, default=3, help="how often to read them (default: 3)")


def measure(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], Table]:
    """What was measured, as data and as a table."""
    if options.runs < 1 or options.repeats < 1:
        raise ValueError("--runs and --repeats must be at least 1")
    found = measure_aggregate(options.runs, options.shape, options.repeats, folder)
    return asdict(found), in_words(found)
