"""Real runs of a few steps: seeds, adapters, optimisers, endings."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from ftx.record.history import read_history
from ftx.record.layout import RunDir
from ftx.record.run_record import RunRecord
from losses_again import eval_loss_of
from processes import Finished, run_entry

pytestmark = pytest.mark.train

Train = Callable[..., Finished]
TINY = str(resources.files("ftx") / "bundled" / "tiny")
SMOKE = ("debug=smoke", "score=none", "hardware.threads=1")
ADAPTERS = ("standard", "rslora", "dora", "pissa", "none")


def by_setting(finished: Finished, group: str, name: str) -> dict[object, RunDir]:
    """The run directories of a sweep by one setting's value."""
    assert finished.status == 0, finished.out + finished.err
    runs = finished.run_dirs()
    return {json.loads(run.record.read_text())["config"][group][name]: run for run in runs}


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[object, RunDir]:
    folder = tmp_path_factory.mktemp("adapters")
    done = run_entry("ftx.train", "-m", f"lora={','.join(ADAPTERS)}", "optim.lr=2e-3", *SMOKE, folder=folder)
    return by_setting(done, "lora", "variant")


@pytest.mark.parametrize("variant", ADAPTERS)
def test_what_is_saved_gives_the_recorded_loss_on_the_original_base(
    adapters: dict[object, RunDir], variant: str
) -> None:
    run = adapters[variant]
    record = RunRecord.read(run.record)
    if variant == "none":
        model = AutoModelForCausalLM.from_pretrained(str(run.model), dtype=torch.float32)
    else:
        base = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
        model = PeftModel.from_pretrained(base, str(run.adapter))
    tokenizer = AutoTokenizer.from_pretrained(str(run.model if variant == "none" else run.adapter))
    untrained = read_history(run.history)[0][0].metrics["loss"]
    assert abs(record.result["validation_value"] - untrained) > 0.01
    assert eval_loss_of(model, tokenizer) == pytest.approx(record.result["validation_value"], rel=2e-4)


def test_each_job_of_a_sweep_leaves_hydras_files_and_a_run_of_its_own(adapters: dict[object, RunDir]) -> None:
    assert set(adapters) == set(ADAPTERS)
    for variant, run in adapters.items():
        overrides = (run.hydra / "overrides.yaml").read_text()
        assert "- hardware.threads=1" in overrides
        assert (f"- lora={variant}" in overrides) == (variant != "standard")  # which is the baseline


def test_optimisers_with_their_own_reason(tmp_path: Path) -> None:
    done = run_entry("ftx.train", "-m", "optim=adamw,adafactor,loraplus", *SMOKE, folder=tmp_path)
    runs = by_setting(done, "optim", "name")
    weights = {name: load_file(run.adapter / "adapter_model.safetensors") for name, run in runs.items()}
    norms = {
        name: sum(float(w.norm()) for key, w in found.items() if "lora_B" in key) for name, found in weights.items()
    }
    assert norms["loraplus"] > 3 * norms["adamw"]  # B learns 16 times faster
    assert len(set(norms.values())) == 3


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[int, RunDir]:
    done = run_entry("ftx.train", "-m", "seed=0,1", *SMOKE, folder=tmp_path_factory.mktemp("seeds"))
    assert done.status == 0, done.out + done.err
    return {json.loads(run.record.read_text())["seed"]: run for run in done.run_dirs()}


def weights_of(run: RunDir) -> dict[str, torch.Tensor]:
    return load_file(run.adapter / "adapter_model.safetensors")


def test_one_seed_is_bit_equal_alone_and_as_the_second_job_of_a_sweep(train: Train, seeds: dict[int, RunDir]) -> None:
    alone = train("seed=1", *SMOKE)
    (run,) = alone.run_dirs()
    one, other = weights_of(run), weights_of(seeds[1])
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    first, second = (read_history(path.history)[0] for path in (run, seeds[1]))
    assert [event.metrics["loss"] for event in first] == [event.metrics["loss"] for event in second]
    assert alone.record()["fingerprint"] == RunRecord.read(seeds[1].record).fingerprint


def test_another_seed_is_another_run_on_the_same_split(seeds: dict[int, RunDir]) -> None:
    one, other = weights_of(seeds[0]), weights_of(seeds[1])
    assert not any(torch.equal(one[name], other[name]) for name in one)
    records = [RunRecord.read(run.record) for run in seeds.values()]
    assert records[0].dataset["content"] == records[1].dataset["content"]
    assert records[0].fingerprint["train"] != records[1].fingerprint["train"]


def test_json_on_stdout_and_nothing_else(train: Train) -> None:
    done = train("--json", *SMOKE)
    assert json.loads(done.out) == done.record()
    assert "Run directory" in done.err


def test_a_task_score_as_primary_metric(train: Train) -> None:
    done = train("debug=smoke", "metric.name=exact_match", "hardware.threads=1")
    record = done.record()
    assert record["result"]["metric"] == "exact_match"
    assert record["result"]["direction"] == "max"
    assert record["result"]["value"] == record["scores"]["test"]["exact_match"]
    assert record["scores"]["test"]["n"] == 8


def test_a_fraction_of_ones_own_rows_validates_and_the_result_says_so(train: Train, tmp_path: Path) -> None:
    source = resources.files("ftx") / "bundled" / "orders" / "train.jsonl"
    rows = tmp_path / "mine.jsonl"
    rows.write_text(Path(str(source)).read_text())
    done = train("data=file", f"data.path={rows}", "data.eval_fraction=0.2", *SMOKE)
    record = done.record()
    assert record["dataset"]["split"] == {"fraction": 0.2, "seed": 0, "group_by": None}
    assert record["result"]["same_rows"] is True
    assert record["result"]["split"] == "validation"
    assert "selected and measured on the same rows" in done.out
    assert "bundled tiny model knows nothing but sentences about orders" in done.out


def test_early_stopping_says_why_and_keeps_the_best(train: Train) -> None:
    done = train(
        "optim.lr=2e-2", "data.max_examples=16", "optim.epochs=12", "early_stop.patience=2", "score=none",
        "hardware.threads=1",
    )  # fmt: skip
    record = done.record()
    assert record["status"] == "finished"
    assert record["stop_reason"].startswith("eval_loss did not improve in 2 evaluations")
    assert record["cost"]["steps"] < 24
    assert record["result"]["checkpoint"]["step"] == record["losses"]["best_step"] < record["cost"]["steps"]


def test_a_run_that_diverges(train: Train) -> None:
    done = train("optim.lr=1e20", "optim.warmup_ratio=0", *SMOKE)
    assert done.status == 1
    record = done.record()
    assert record["status"] == "diverged"
    assert "at step" in record["error"]
    assert record["result"]["value"] is None
    assert "Traceback" not in done.out + done.err
    assert "Traceback" in done.run_dirs()[0].log.read_text()
    assert (done.folder / "labbook.md").read_text().count("\n") == 1


def test_adapter_targets_that_do_not_exist_are_refused_before_a_run_exists(train: Train, tmp_path: Path) -> None:
    done = train("lora.target_modules=[q_proj,FAKE]", *SMOKE)
    assert done.status == 2
    assert "no linear layer but the output head is called FAKE; this model has down_proj, gate_proj" in done.err
    assert list(tmp_path.iterdir()) == []


def test_the_overfitting_study_has_a_level_whose_last_epoch_is_not_the_best(tmp_path: Path) -> None:
    words = ["-m", "study=overfitting", "seed=0", "optim.epochs=15", "hardware.threads=1"]
    done = run_entry("ftx.train", *words, folder=tmp_path)
    record = done.record()
    assert record["losses"]["best_epoch"] < 10
    assert record["losses"]["final_eval_loss"] > 1.1 * record["losses"]["best_eval_loss"]


def wait_for_training(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Return once a run in `folder` has logged something."""
    deadline = time.monotonic() + 120
    while not list(folder.glob("outputs/*/history.jsonl")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "name", "status"), [(signal.SIGINT, "SIGINT", 130), (signal.SIGTERM, "SIGTERM", 143)]
)
def test_an_interrupted_run_is_recorded(tmp_path: Path, number: int, name: str, status: int) -> None:
    words = ["optim.epochs=500", "score=none", "hardware.threads=1"]
    command = [sys.executable, "-m", "ftx.train", *words]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        wait_for_training(process, tmp_path)
        process.send_signal(number)
        assert process.wait(60) == status
    (path,) = tmp_path.glob("outputs/*")
    record = RunRecord.read(RunDir(path).record)
    assert (record.status, record.stop_reason, record.error) == ("interrupted", name, None)
    (checkpoint,) = path.glob("checkpoints/checkpoint-*")
    events, _ = read_history(path / "history.jsonl")
    assert checkpoint.name == f"checkpoint-{max(event.step for event in events)}"
    assert (checkpoint / "optimizer.pt").is_file()
    assert record.run_id in (tmp_path / "labbook.md").read_text()


def test_an_interrupted_sweep_starts_no_further_job(tmp_path: Path) -> None:
    hydras = ["hydra/sweeper=basic", "hydra/launcher=basic"]
    words = ["-m", *hydras, "seed=0,1,2", "optim.epochs=500", "score=none", "hardware.threads=1"]
    command = [sys.executable, "-m", "ftx.train", *words]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        wait_for_training(process, tmp_path)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    (path,) = tmp_path.glob("outputs/*")
    assert RunRecord.read(RunDir(path).record).status == "interrupted"


def test_the_final_checkpoint_can_be_the_one_that_counts(train: Train) -> None:
    words = ["metric.at=final", "optim.max_steps=6", "checkpoint.every_epochs=0.1", "score=none", "hardware.threads=1"]
    done = train(*words, "checkpoint.keep=true")
    record = done.record()
    (run,) = done.run_dirs()
    assert record["result"]["checkpoint"]["step"] == 6
    events, _ = read_history(run.history)
    assert [event.step for event in events if event.split == "validation"] == [0, 2, 4, 6]
    assert sorted(path.name for path in run.checkpoints.glob("checkpoint-*")) == ["checkpoint-4", "checkpoint-6"]


def test_a_dirty_repository_can_be_rebuilt_from_the_run(train: Train, tmp_path: Path) -> None:
    def git(*words: str, folder: Path = tmp_path) -> str:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words]
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout

    (tmp_path / "conf" / "optim").mkdir(parents=True)
    mine = tmp_path / "conf" / "optim" / "mine.yaml"
    mine.write_text("lr: 1e-3\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    mine.write_text("lr: 2e-3\n")
    (tmp_path / "conf" / "optim" / "new.yaml").write_text("lr: 3e-3\n")
    done = train("optim=mine", *SMOKE)
    (run,) = done.run_dirs()
    record = done.record()
    assert record["config_commit"] == git("rev-parse", "--short", "HEAD").strip() + "-dirty"
    assert record["code"]["config"]["untracked"] == ["conf/optim/new.yaml"]
    clone = tmp_path.parent / f"{tmp_path.name}-clone"
    git("clone", "-q", str(tmp_path), str(clone))
    git("apply", str(run.patch.resolve()), folder=clone)
    assert (clone / "conf" / "optim" / "mine.yaml").read_text() == "lr: 2e-3\n"
    assert (clone / "conf" / "optim" / "new.yaml").read_text() == "lr: 3e-3\n"


def test_the_reproduce_script_repeats_the_run_from_anywhere(train: Train) -> None:
    first = train(*SMOKE, "notes=it's a test")
    (run,) = first.run_dirs()
    done = subprocess.run([str(run.reproduce.resolve())], cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = first.run_dirs()
    assert len(runs) == 2
    one, other = weights_of(runs[0]), weights_of(runs[1])
    assert all(torch.equal(one[name], other[name]) for name in one)
