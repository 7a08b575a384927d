"""Real studies of the bundled model: killed, continued, interrupted, with runs that fail in every way."""

import contextlib
import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

import ftx.plan
from ftx.record.layout import RunDir
from ftx.record.run_record import RunRecord
from ftx.record.study_record import StudyRecord
from processes import Finished, environment, run_entry

pytestmark = pytest.mark.train

SMALL = ("debug=smoke", "score=none", "optim.max_steps=3", "lora.dropout=0")


def study(folder: Path, *words: str) -> Finished:
    return run_entry("ftx.train", "-m", *words, folder=folder)


def plan(folder: Path, *words: str) -> str:
    """What `python -m ftx.plan -m` prints there; in this process, which has the imports done."""
    out = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out):
        assert ftx.plan.start(["-m", *words]) == 0
    return out.getvalue()


def study_record(folder: Path) -> StudyRecord:
    (path,) = folder.glob("multirun/*/study.json")
    return StudyRecord.read(path)


def records(folder: Path) -> list[RunRecord]:
    return [RunRecord.read(path) for path in sorted(folder.glob("outputs/*/run.json"))]


def states(record: StudyRecord) -> dict[str, str]:
    return {trial.name: trial.state for trial in record.trials}


class Started:
    """A study that was started and may be disturbed."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self.log = folder / "terminal.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ftx.train", "-m", *words],
                cwd=folder,
                env=environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_until(self, happened: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 120
        while not (found := happened()):
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)
        return found

    def training(self) -> list[RunRecord]:
        """Runs that have made a step and go on."""
        found = []
        for path in self.folder.glob("outputs/*/history.jsonl"):
            record = RunRecord.read(path.parent / "run.json")
            if '"train"' in path.read_text() and record.status == "running":
                found.append(record)
        return found

    def finished(self) -> list[RunRecord]:
        return [record for record in records(self.folder) if record.status == "finished"]


def wait_for_end(pids: list[int]) -> None:
    deadline = time.monotonic() + 60
    while any(psutil.pid_exists(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_study_killed_in_the_middle_goes_on_where_it_was(tmp_path: Path) -> None:
    words = ("lora.rank=8,16,32", "seed=0,1", *SMALL, "optim.max_steps=15", "checkpoint.every_epochs=100")
    started = Started(tmp_path, *words)
    started.wait_until(started.finished)
    started.wait_until(started.training)
    # Of all its jobs, not only of those that have trained: one may just be starting beside them.
    pids = [each.pid for each in psutil.Process(started.process.pid).children(recursive=True)]
    started.process.kill()
    started.process.wait()
    wait_for_end(pids)  # at their next step
    before = {record.run_id for record in records(tmp_path) if record.status == "finished"}
    left = [record for record in records(tmp_path) if record.status != "finished"]
    assert before
    assert {record.status for record in left} <= {"interrupted"}
    assert {record.stop_reason for record in left} <= {"the process that started this run is gone"}

    done = study(tmp_path, *words)
    assert done.status == 0, done.out + done.err
    found = study_record(tmp_path)
    assert states(found) == {
        f"{arm} seed={seed}": "done" for seed in (0, 1) for arm in ("baseline", "lora.rank=8", "lora.rank=32")
    }
    assert len(found.launches) == 2
    assert len(found.launches[1]["to_run"]) == 6 - len(before)
    used = {json.loads((tmp_path / str(trial.run) / "run.json").read_text())["run_id"] for trial in found.trials}
    assert before < used
    assert len(used) == 6
    links = {link.name: link.resolve() for link in (tmp_path / "multirun" / found.study / "runs").iterdir()}
    trial = found.trials[4]
    name = f"lora.rank-8-seed-1-{trial.fingerprint['train'][:8]}"
    assert links[name] == (tmp_path / str(trial.run)).resolve()
    entries = [line for line in (tmp_path / "labbook.md").read_text().splitlines() if line.startswith("{")]
    assert len(entries) == len(records(tmp_path))

    assert "6 runs: 6 finished, 0 running elsewhere, 0 to run now" in plan(tmp_path, *words)


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Started, int]:
    """A study with an arm that diverges, one that fails and one that is killed."""
    folder = tmp_path_factory.mktemp("disturbed")
    started = Started(
        folder,
        "optim.lr=2e-4,1e5",
        "model.attn_implementation=auto,flash_attention_2",
        "lora.rank=16,8",
        "study.name=disturbed",
        *SMALL,
        "optim.max_steps=20",
    )

    def victim() -> RunRecord | None:
        return next((r for r in started.training() if r.config["lora"]["rank"] == 8), None)

    os.kill(started.wait_until(victim).process["pid"], signal.SIGKILL)
    return started, started.process.wait(120)


def test_a_failing_a_diverging_and_a_killed_run_harm_no_other(disturbed: tuple[Started, int]) -> None:
    started, status = disturbed
    assert status == 1
    found = study_record(started.folder)
    seen = {trial.arm: (trial.state, trial.status, trial.reason) for trial in found.trials}
    assert seen["baseline"] == ("done", "finished", None)
    assert seen["lora.rank=8"] == ("missing", "killed", "killed by SIGKILL")
    state, word, reason = seen["optim.lr=100000"]
    assert (state, word) == ("failed", "diverged")
    assert "grad_norm became" in str(reason)
    state, word, reason = seen["model.attn_implementation=flash_attention_2"]
    assert (state, word) == ("failed", "failed")
    assert "FlashAttention2" in str(reason)


def test_every_unsuccessful_run_is_recorded_with_its_traceback_and_in_the_lab_book(
    disturbed: tuple[Started, int],
) -> None:
    started, _ = disturbed
    by_status = {record.status: record for record in records(started.folder)}
    assert set(by_status) == {"finished", "failed", "diverged", "killed"}
    for path in started.folder.glob("outputs/*"):
        record = RunRecord.read(RunDir(path).record)
        if record.status in ("failed", "diverged"):
            assert "Traceback" in RunDir(path).log.read_text()
        assert record.run_id in (started.folder / "labbook.md").read_text()
    assert by_status["killed"].error == "killed by SIGKILL"


def test_the_closing_summary_names_failures_and_how_to_go_on(disturbed: tuple[Started, int]) -> None:
    started, _ = disturbed
    said = started.log.read_text()
    assert "1 of 4 runs finished, 2 failed, 1 missing" in said
    assert "Unsuccessful runs" in said
    assert "To go on, the same command: python -m ftx.train -m optim.lr=2e-4,1e5" in said
    assert "Traceback" not in said


def test_a_trial_beside_failing_ones_equals_the_same_command_alone(disturbed: tuple[Started, int]) -> None:
    started, _ = disturbed
    trial = study_record(started.folder).trials[0]
    alone = run_entry("ftx.train", *trial.overrides, "output_root=alone", folder=started.folder)
    assert alone.status == 0, alone.err
    (path,) = (started.folder / "alone").iterdir()
    one, other = (
        load_file(folder / "adapter" / "adapter_model.safetensors")
        for folder in (path, started.folder / str(trial.run))
    )
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert RunRecord.read(path / "run.json").fingerprint == trial.fingerprint


def test_a_second_start_is_told_and_ctrl_c_ends_runs_with_a_checkpoint(tmp_path: Path) -> None:
    words = ("lora.rank=8,16,32", *SMALL, "optim.max_steps=500", "optim.epochs=500", "checkpoint.every_epochs=500")
    started = Started(tmp_path, *words)
    started.wait_until(lambda: len(started.training()) == 2)
    second = study(tmp_path, *words)
    assert second.status == 3
    assert "this study is already running (process" in second.err
    started.process.send_signal(signal.SIGINT)
    assert started.process.wait(60) == 130
    found = records(tmp_path)
    assert [(record.status, record.stop_reason) for record in found] == [("interrupted", "SIGINT")] * 2
    assert len(list(tmp_path.glob("outputs/*/checkpoints/checkpoint-*/optimizer.pt"))) == 2
    said = started.log.read_text()
    assert "2 running jobs end first (Ctrl-C again: at once)" in said
    assert "To go on, the same command" in said
    assert "0 of 3 runs finished, 0 failed, 3 missing" in said


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with one seed, then two more seeds for the baseline and the best arm, then another study beside it."""
    folder = tmp_path_factory.mktemp("grown")
    base = ("lora.rank=8,16,32", "optim.lr=2e-4,1e-3", *SMALL)
    for more in (["study.max_runs=3"], [], ["study.replicate_top=1", "seed=1,2"]):
        done = study(folder, *base, *more)
        assert done.status == 0, done.out + done.err
    return folder


def test_what_a_budget_leaves_is_missing_and_comes_next_time(grown: Path) -> None:
    first, second, _ = study_record(grown).launches
    assert first["to_run"] == ["baseline seed=0", "lora.rank=8 seed=0", "lora.rank=32 seed=0"]
    assert second["to_run"] == ["optim.lr=1e-3 seed=0"]


def test_more_seeds_for_the_best_arm_only(grown: Path) -> None:
    record = study_record(grown)
    assert record.launches[2]["to_run"] == [
        f"{arm} seed={seed}" for seed in (1, 2) for arm in ("baseline", "optim.lr=1e-3")
    ]
    assert record.replicates == {"seed": [0, 1, 2]}
    assert len(record.trials) == 8
    assert set(states(record).values()) == {"done"}


def test_another_study_uses_finished_runs_again_and_names_them(grown: Path) -> None:
    said = plan(grown, "optim.lr=2e-4,1e-3,1e-2", "seed=0,1", *SMALL)
    assert "4 finished runs are used again:" in said
    assert "baseline seed=1: outputs/smoke-max_steps3-dropout0-s1-" in said
    assert "6 runs: 4 finished, 0 running elsewhere, 2 to run now" in said


def test_a_plan_knows_noise_time_and_memory_from_finished_runs(grown: Path) -> None:
    found = json.loads(plan(grown, "lora.rank=8,16", "seed=0,1,2", *SMALL, "--json"))
    values = [record.result["value"] for record in records(grown) if record.fingerprint["train"]]
    assert len(values) == 8
    assert found["detectable_effect"]["noise_df"] == 2  # three seeds of the baseline; rank 8 has one
    assert found["detectable_effect"]["effect"] > found["detectable_effect"]["noise_sd"]
    assert found["estimate"]["seconds"] > 0
    assert found["estimate"]["peak_memory_bytes"] > 2**20
    assert set(found["estimate"]["sources"]) <= {path.name for path in grown.glob("outputs/*")}
    assert len(found["to_run"]) == 2


def test_a_job_array_by_hand_counts(tmp_path: Path) -> None:
    words = ("lora.rank=8,16", *SMALL)
    commands = plan(tmp_path, *words, "--commands").splitlines()
    assert len(commands) == 2
    assert commands[1].startswith("python -m ftx.train debug=smoke ")
    alone = run_entry("ftx.train", *commands[1].split()[3:], folder=tmp_path)
    assert alone.status == 0, alone.err
    found = json.loads(plan(tmp_path, *words, "--json"))
    assert [(trial["arm"], trial["state"]) for trial in found["trials"]] == [
        ("baseline", "missing"),
        ("lora.rank=8", "done"),
    ]
    assert not (tmp_path / "multirun").exists()


def test_hydras_own_sweeper_and_launcher_take_the_same_study_file(tmp_path: Path) -> None:
    words = ("study=overfitting", "hydra/sweeper=basic", "hydra/launcher=basic", "seed=0", "optim.max_steps=2")
    done = study(tmp_path, *words, "optim.epochs=1,2", "score=none")
    assert done.status == 0, done.out + done.err
    found = records(tmp_path)
    assert sorted(record.config["optim"]["epochs"] for record in found) == [1.0, 2.0]
    assert {record.config["lora"]["variant"] for record in found} == {"none"}


def _start_together(folder: str, gate: Any, word: str) -> None:
    os.chdir(folder)
    from ftx.train import start

    gate.wait()
    sys.exit(start([*SMALL, "optim.max_steps=1", "hardware.threads=1", word]))


@pytest.mark.parametrize("pairs", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_pairs_started_in_the_same_second_never_share_a_directory(tmp_path: Path, pairs: int) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ftx.job.finetune", "ftx.job.session"])
    for number in range(pairs):
        gate = context.Barrier(2)
        both = [context.Process(target=_start_together, args=(str(tmp_path), gate, f"seed={number}")) for _ in range(2)]
        for process in both:
            process.start()
        for process in both:
            process.join()
            assert process.exitcode == 0
    found = list(tmp_path.glob("outputs/*"))
    assert len(found) == 2 * pairs
    by_seed: dict[int, list[Path]] = {}
    for path in found:
        by_seed.setdefault(RunRecord.read(path / "run.json").seed, []).append(path)
        steps = [json.loads(line)["step"] for line in (path / "history.jsonl").read_text().splitlines()]
        assert steps == sorted(steps)
        assert steps.count(0) == 1  # one run's history, not two mixed
    assert {len(paths) for paths in by_seed.values()} == {2}
