"""Run directories and a study.json as a real study leaves them, without training anything."""

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ftx.config.keys import flat
from ftx.record.atomic import write_json
from ftx.record.layout import RunDir, StudyDir
from ftx.record.run_record import RunRecord
from ftx.record.study_record import StudyRecord, TrialRecord

CONFIG: dict[str, Any] = {
    "seed": 0,
    "data_seed": 0,
    "name": None,
    "notes": "",
    "metric": {"name": "eval_loss", "direction": "min", "at": "best", "secondary": []},
    "model": {"name": "tiny", "dtype": "fp32", "attn_implementation": "auto"},
    "lora": {"variant": "standard", "rank": 16, "alpha": 32.0, "target_modules": ["all-linear"]},
    "optim": {"name": "adamw", "lr": 0.0002, "epochs": 3.0, "batch_size": 8},
    "data": {"source": "bundled", "name": "orders", "max_seq_len": 1024},
    "hardware": {
        "device": "cpu",
        "precision": "fp32",
        "micro_batch_size": 8,
        "threads": 1,
        "gradient_checkpointing": False,
    },
    "score": {"metrics": ["exact_match"]},
    "tracking": {"backends": []},
    "custom": {},
}
DEAD = {"host": "elsewhere", "boot_id": "b", "pid": 1, "started": 1.0}
NOISE = (0.002, -0.001, 0.001, -0.0015, 0.0005)
"""Of each seed within an arm; the arms' own part is shifted by their name, so that no two arms move in step."""


def text_hash(*parts: Any) -> str:
    """A hash that differs as soon as a part does."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def set_key(config: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of a configuration with one dotted key set."""
    changed = copy.deepcopy(dict(config))
    *groups, name = key.split(".")
    place = changed
    for group in groups:
        place = place.setdefault(group, {})
    place[name] = value
    return changed


def run_record(number: int, levels: Mapping[str, Any], seed: int, value: float | None, **changes: Any) -> RunRecord:
    """A finished run; `levels` are the keys in which it differs from CONFIG."""
    config = set_key(CONFIG, "seed", seed)
    for key, level in levels.items():
        config = set_key(config, key, level)
    record = RunRecord(
        run_id=f"20260131T{number // 3600 % 24:02d}{number // 60 % 60:02d}{number % 60:02d}Z-{number:06x}",
        date=f"2026-01-31T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z",
        model="tiny",
        seed=seed,
        status="finished",
        config=config,
        hyperparameters=flat({"lora": config["lora"], "optim": config["optim"]})
        | {"model.attn_implementation": "sdpa"},
        versions={"ftx": "0.1.0", "torch": "2.13.0", "transformers": "5.24.0"},
        code={"config": {"commit": "c" * 40, "dirty": False, "untracked": []}, "ftx": {"sources": "f" * 64}},
        fingerprint={"train": text_hash(dict(levels), seed), "evaluation": "e" * 64},
        scores={"validation": {"exact_match": 0.5}, "test": {"exact_match": 0.5 + number % 7 / 100}},
    )
    record.dataset |= {
        "sha256": "d" * 64,
        "train_examples": 156,
        "validation_examples": 31,
        "template_sha256": "t" * 64,
        "content": {split: {"any_order": f"rows of {split}"} for split in ("train", "validation", "test")},
    }
    record.hardware |= {"accelerator": "cpu", "device_name": "a processor"}
    record.losses |= {"final_train_loss": None if value is None else value / 2 + number / 1e5}
    record.result |= {"metric": "eval_loss", "direction": "min", "split": "test", "value": value}
    record.cost |= {
        "seconds": 20.0,
        "tokens_per_second": 2000.0,
        "peak_memory_bytes": 2**29,
        "trainable_parameters": 195584,
        "steps": 60,
        "tokens": 34869,
        "trained_tokens": 16893,
        "effective_batch": 8,
    }
    for name, change in changes.items():
        known = getattr(record, name)
        record = replace(record, **{name: known | change if isinstance(change, dict) and known is not None else change})
    return record


class Folder:
    """A working directory with outputs/ and one study: two factors, five arms, some seeds."""

    factors: Mapping[str, tuple[Any, ...]] = {"lora.rank": (8, 16, 32), "optim.lr": (1e-4, 2e-4, 5e-4)}
    baseline: Mapping[str, Any] = {"lora.rank": 16, "optim.lr": 2e-4}
    shift: Mapping[str, float] = {"lora.rank=8": 0.03, "optim.lr=0.0005": -0.05, "optim.lr=0.0001": 0.0004}

    def __init__(self, path: Path, seeds: int = 3, **factors: tuple[Any, ...]) -> None:
        self.path = path
        self.seeds = seeds
        if factors:
            self.factors = {name.replace("__", "."): levels for name, levels in factors.items()}
            self.baseline = {name: levels[0] for name, levels in self.factors.items()}
        self.records: dict[str, RunRecord] = {}
        self.trials: list[TrialRecord] = []
        (path / "outputs").mkdir(parents=True)
        arms: list[dict[str, Any]] = [{}]
        arms += [
            {name: level}
            for name, levels in self.factors.items()
            for level in levels
            if level != self.baseline[name] or type(level) is not type(self.baseline[name])
        ]
        for seed in range(seeds):
            for place, levels in enumerate(arms):
                self._add(levels, place, seed)

    def _add(self, levels: dict[str, Any], place: int, seed: int) -> None:
        arm = " ".join(f"{name}={level}" for name, level in levels.items()) or "baseline"
        value = 0.13 + self.shift.get(arm, 0.0) + NOISE[seed % 5] + NOISE[(seed * (place + 2) + place) % 5] / 3
        record = run_record(len(self.records), {**self.baseline, **levels}, seed, value)
        name = f"{arm}-s{seed}"
        self.records[name] = replace(record, lab="mine", made_by={"study": "mine", "arm": arm})
        self.trials.append(
            TrialRecord(
                arm=arm,
                factor=next(iter(levels), None),
                level=next(iter(levels.values()), None),
                levels=levels,
                is_baseline=not levels,
                replicate=seed,
                replicates={"seed": seed},
                overrides=[f"seed={seed}"],
                fingerprint=dict(record.fingerprint),
                state="done",
                status="finished",
                run=f"outputs/{name}",
            )
        )

    def change(self, arm: str, seed: int | None = None, **changes: Any) -> None:
        """Change the records of an arm, of one seed or of all; a dict is taken into what is there."""
        for name, record in list(self.records.items()):
            if name == f"{arm}-s{seed}" or (seed is None and name.rpartition("-s")[0] == arm):
                for field, value in changes.items():
                    known = getattr(record, field)
                    record = replace(record, **{field: known | value if isinstance(value, dict) and known else value})
                self.records[name] = record

    def write(self, **changes: Any) -> "Folder":
        """Write all of it; `changes` are fields of the study's record."""
        for name, record in self.records.items():
            self.write_run(name, record)
        study = StudyRecord(
            study="mine",
            design="ofat",
            factors=[
                {
                    "name": name,
                    "keys": [name],
                    "levels": [
                        {"level": level, "label": str(level), "is_baseline": level == self.baseline[name]}
                        for level in levels
                    ],
                    "baseline": self.baseline[name],
                    "baseline_level": str(self.baseline[name]),
                }
                for name, levels in self.factors.items()
            ],
            baseline={"overrides": [], "fingerprint": "b", "config": CONFIG},
            replicates={"seed": list(range(self.seeds))},
            metric={"name": "eval_loss", "direction": "min", "at": "best"},
            launches=[self.launch(range(self.seeds))],
            trials=self.trials,
        )
        study = replace(study, **changes)
        folder = self.path / "multirun" / study.study
        folder.mkdir(parents=True, exist_ok=True)
        study.write(StudyDir(folder))
        return self

    def launch(self, seeds: Iterable[int]) -> dict[str, Any]:
        """A start of the study with these seeds."""
        words = [f"{name}={','.join(map(str, levels))}" for name, levels in self.factors.items()]
        seeds = list(seeds)
        return {
            "date": "2026-01-31T00:00:00Z",
            "command": ["python", "-m", "ftx.train", "-m", *words, f"seed={','.join(map(str, seeds))}"],
            "process": DEAD,
            "replicates": [f"seed={seed}" for seed in seeds],
            "replicate_top": None,
            "to_run": [trial.name for trial in self.trials if trial.replicate in seeds],
            "jobs": [],
            "failures": [],
            "ended": "2026-01-31T01:00:00Z",
            "ended_by": None,
        }

    def write_run(self, name: str, record: RunRecord) -> Path:
        """Write one run directory, also with a record that ftx itself would refuse to write."""
        run = RunDir(self.path / "outputs" / name)
        run.path.mkdir(exist_ok=True)
        write_json(run.record, asdict(record))
        return run.path
