"""What the run that `make train` does leaves behind, read back by those who would read it."""

import json
import math
from importlib import resources
from typing import Any

import pytest
import torch
from peft import PeftModel
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from transformers import AutoModelForCausalLM, AutoTokenizer

from ftx.config.schema import DataConfig, ModelConfig
from ftx.data.prepare import prepare
from ftx.model.base import load_tokenizer
from ftx.record.history import read_history
from ftx.record.labbook import FIELDS
from ftx.record.run_record import RunRecord
from losses_again import eval_loss_of
from processes import Finished

pytestmark = pytest.mark.train

TINY = str(resources.files("ftx") / "bundled" / "tiny")


def test_the_record_is_complete(default_run: Finished) -> None:
    (run,) = default_run.run_dirs()
    record = RunRecord.read(run.record)
    assert record.status == "finished"
    assert record.seed == 0
    assert record.model == "tiny"
    assert record.dataset["train_examples"] == 156
    assert record.hyperparameters["lora.scaling"] == 2.0
    assert record.hyperparameters["lora.adapted_modules"]["q_proj"] == 4
    assert record.hyperparameters["model.attn_implementation"] == "sdpa"
    assert all(value is not None for value in record.losses.values())
    assert all(value is not None for value in record.cost.values())
    assert all(value is not None for value in record.versions.values())
    assert record.hardware["accelerator"] == "cpu"
    assert record.cost["steps"] * 8 >= 156 * 3
    assert record.cost["effective_batch"] == 8
    assert record.result["split"] == "test"
    assert record.result["same_rows"] is False
    assert record.config["lora"]["alpha"] == 32
    assert len(record.fingerprint["train"]) == 64
    assert record.result["validation_value"] == record.losses["best_eval_loss"]


def test_every_file_is_there(default_run: Finished) -> None:
    (run,) = default_run.run_dirs()
    files = (run.record, run.history, run.predictions, run.log, run.environment, run.reproduce)
    assert all(file.stat().st_size > 0 for file in files)
    assert {file.name for file in run.hydra.iterdir()} == {"config.yaml", "hydra.yaml", "overrides.yaml"}
    assert f"torch=={torch.__version__}" in run.environment.read_text()
    assert "-m ftx.train hardware.threads=1" in run.reproduce.read_text()
    assert {file.name for file in run.path.iterdir() if file.is_dir()} == {".hydra", "adapter"}  # no checkpoints


def test_history_has_every_step_and_every_evaluation(default_run: Finished) -> None:
    (run,) = default_run.run_dirs()
    events, problems = read_history(run.history)
    assert problems == []
    steps = default_run.record()["cost"]["steps"]
    assert [event.step for event in events if event.split == "train"] == list(range(1, steps + 1))
    assert [event.step for event in events if event.split == "validation"] == [0, steps // 3, 2 * steps // 3, steps]
    assert all(math.isfinite(value) for event in events for value in event.metrics.values())
    train = [event.metrics for event in events if event.split == "train"]
    tokens = [
        after["tokens"] - before for after, before in zip(train, [0, *(m["tokens"] for m in train)], strict=False)
    ]
    seconds = sum(count / metrics["tokens_per_second"] for count, metrics in zip(tokens, train, strict=True))
    assert sum(tokens) == default_run.record()["cost"]["tokens"]
    assert 0 < seconds < default_run.record()["cost"]["seconds"]  # evaluations lie between the steps


def test_tensorboard_shows_what_the_history_holds(default_run: Finished) -> None:
    (run,) = default_run.run_dirs()
    board = EventAccumulator(str(run.path), size_guidance={"scalars": 0})
    board.Reload()
    events, _ = read_history(run.history)
    for split in ("train", "validation", "test"):
        logged = [event for event in events if event.split == split]
        for metric in logged[-1].metrics:
            expected = [(event.step, event.metrics[metric]) for event in logged if metric in event.metrics]
            found = [(scalar.step, scalar.value) for scalar in board.Scalars(f"{split}/{metric}")]
            assert [step for step, _ in found] == [step for step, _ in expected]
            assert [value for _, value in found] == pytest.approx([value for _, value in expected], rel=1e-6)
    names = {"train/loss", "train/learning_rate", "train/grad_norm", "train/tokens", "train/tokens_per_second"}
    assert names <= set(board.Tags()["scalars"])
    assert board.Scalars("result/value")[0].value == pytest.approx(default_run.record()["result"]["value"], rel=1e-6)
    shown = hparams_of(board)
    assert shown["start"].hparams["lora.rank"].number_value == 16
    assert shown["start"].hparams["optim.lr"].number_value == 2e-4
    assert {info.name.tag for info in shown["experiment"].metric_infos} >= {"result/value", "score/test_exact_match"}
    assert shown["end"].status == api_pb2.STATUS_SUCCESS
    for info in shown["experiment"].metric_infos:
        assert board.Scalars(info.name.tag)


def hparams_of(board: EventAccumulator) -> dict[str, Any]:
    """What the HParams tab reads: the experiment, and how the run started and ended."""
    parse = plugin_data_pb2.HParamsPluginData.FromString
    found = {tag: parse(data) for tag, data in board.PluginTagToContent("hparams").items()}
    return {
        "experiment": found[metadata.EXPERIMENT_TAG].experiment,
        "start": found[metadata.SESSION_START_INFO_TAG].session_start_info,
        "end": found[metadata.SESSION_END_INFO_TAG].session_end_info,
    }


def test_the_adapter_read_back_by_peft_gives_the_recorded_loss(default_run: Finished) -> None:
    (run,) = default_run.run_dirs()
    base = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, str(run.adapter))
    tokenizer = AutoTokenizer.from_pretrained(str(run.adapter))
    assert tokenizer.chat_template
    recorded = default_run.record()["result"]["validation_value"]
    assert eval_loss_of(model, tokenizer) == pytest.approx(recorded, rel=1e-4)


def test_predictions_are_what_the_scores_count(default_run: Finished) -> None:
    (run,) = default_run.run_dirs()
    lines = [json.loads(line) for line in run.predictions.read_text().splitlines()]
    for split, count in (("validation", 31), ("test", 64)):
        right = [line["metrics"]["exact_match"] for line in lines if line["split"] == split]
        assert len(right) == count
        assert sum(right) / count == default_run.record()["scores"][split]["exact_match"]
    assert all((line["output"].strip() == line["reference"]) == bool(line["metrics"]["exact_match"]) for line in lines)


def test_the_task_means_something(default_run: Finished) -> None:
    record = default_run.record()
    assert 0.5 < record["scores"]["test"]["exact_match"] < 0.97
    assert record["losses"]["best_eval_loss"] < 0.5


def test_the_untrained_model_does_not_know_the_answer() -> None:
    from ftx.scores.exact_match import summarise
    from ftx.scores.generation import generate

    tokenizer = load_tokenizer(ModelConfig(name="tiny", bundled=True))
    data = prepare(DataConfig(source="bundled", name="orders"), tokenizer, 512)
    assert data.test is not None
    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    items = generate(model, tokenizer, data.test[:], batch_size=64, max_new_tokens=120)
    assert summarise(items)["exact_match"] < 0.05


def test_the_lab_book_has_the_runs_line(default_run: Finished) -> None:
    (line,) = (default_run.folder / "labbook.md").read_text().splitlines()
    entry = json.loads(line)
    assert tuple(entry) == FIELDS
    record = default_run.record()
    assert entry == {name: record[name] for name in FIELDS}


def test_the_table_at_the_end(default_run: Finished) -> None:
    for words in ("train_loss", "eval_loss", "token accuracy", "<- best", "exact match on test", "tokens/s"):
        assert words in default_run.out
    assert "trainable parameters" in default_run.out
    assert "tensorboard --logdir outputs" in default_run.out
    assert "No accelerator found: training on the CPU in fp32." in default_run.out
    assert default_run.err == ""
