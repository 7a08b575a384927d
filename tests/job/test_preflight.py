"""What is said of a run before it starts: facts where all is well, notes, and problems that name their remedy."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ftx.config.command_line import parse_command_line
from ftx.config.compose import compose_run
from ftx.config.schema import RunConfig
from ftx.data.findings import Finding
from ftx.job import preflight
from ftx.job.finetune import build_model
from ftx.job.hardware import resolve_hardware
from ftx.job.preflight import Planned, checkpoint_bytes, run_bytes, run_findings, trainable_parameters
from ftx.model.adapter import parameter_counts
from ftx.record.layout import RunDir
from processes import run_entry

pytestmark = pytest.mark.train

SMOKE_ROWS = 32


class Disk(NamedTuple):
    total: int
    used: int
    free: int


def settings(*words: str) -> RunConfig:
    return resolve_hardware(compose_run(parse_command_line(["hardware=cpu", *words])))


def looked_at(config: RunConfig, **known: Any) -> list[Finding]:
    return run_findings(config, **({"train_rows": 156, "validation_rows": 31, "has_reference": True} | known))


def of(topic: str, *words: str, **known: Any) -> list[tuple[str, str]]:
    return [(found.grade, found.detail) for found in looked_at(settings(*words), **known) if found.topic == topic]


def test_where_all_is_well_the_facts_are_said(tmp_path: Path) -> None:
    found = looked_at(settings(f"output_root={tmp_path}"))
    assert {finding.grade for finding in found} == {"ok"}
    said = {finding.topic: finding.detail for finding in found}
    assert said["metric"] == "eval_loss decides, lower is better, on 31 validation rows"
    assert said["checkpoints"] == "60 steps, 3 evaluations and checkpoints after steps 20, 40, 60"
    assert said["warmup"] == "2 of 60 steps rise to optim.lr=0.0002, then cosine"
    assert said["batch"] == "156 training rows in steps of 8: 20 an epoch, the last of 4"
    assert said["lora"].endswith("4 up_proj, 4 v_proj: 195,584 weights train")
    assert list(said) == ["batch", "warmup", "checkpoints", "metric", "hardware", "lora", "output", "disk", "hub"]


def test_a_task_score_must_have_answers_to_compare_with() -> None:
    plain = of("metric", has_reference=False)
    assert [grade for grade, _ in plain] == ["ok", "problem"]
    assert plain[1][1].startswith("score.metrics=[exact_match]: rows of plain text")
    assert plain[1][1].endswith("use score=none")
    assert of("metric", "score=none", has_reference=False)[0][0] == "ok"
    decides = of("metric", "metric.name=exact_match", has_reference=False)
    assert decides[1][1].endswith("use score=none and metric.name=eval_loss")
    assert "higher is better" in of("metric", "metric.name=exact_match")[0][1]


def test_patience_that_can_never_stop_a_run_is_refused() -> None:
    assert of("checkpoints", "early_stop.patience=2")[0][0] == "ok"
    grade, detail = of("checkpoints", "early_stop.patience=3")[0]
    assert grade == "problem"
    assert detail.startswith("early_stop.patience=3 can never stop a run of 3 evaluations: lower it")


def test_one_evaluation_leaves_nothing_to_choose() -> None:
    assert [grade for grade, _ in of("checkpoints", "optim.max_steps=7")] == ["note"]
    final = of("checkpoints", "optim.max_steps=7", "metric.at=final")
    assert final == [("ok", "7 steps, one evaluation and checkpoint after step 7")]


def test_many_steps_are_not_listed_one_by_one() -> None:
    (said,) = of("checkpoints", "checkpoint.every_epochs=0.1")
    assert said == ("ok", "60 steps, 30 evaluations and checkpoints after steps 2, 4, 6 ... 60")


@pytest.mark.parametrize(
    ("words", "grade"),
    [
        (["optim.max_steps=9"], "note"),
        (["optim.max_steps=10"], "ok"),
        (["optim.max_steps=9", "optim.scheduler=constant", "optim.warmup_ratio=0"], "ok"),
        (["optim.warmup_ratio=0.5"], "ok"),
        (["optim.warmup_ratio=0.51"], "note"),
    ],
)
def test_a_schedule_has_steps_to_be_one(words: list[str], grade: str) -> None:
    assert [found for found, _ in of("warmup", *words)] == [grade]


def test_a_step_may_hold_fewer_rows_than_asked_for() -> None:
    assert of("batch", train_rows=8) == [("ok", "8 training rows in steps of 8: 1 an epoch")]
    assert of("batch", train_rows=7)[0][0] == "note"


def test_where_no_rows_are_left_nothing_is_said_of_steps() -> None:
    assert [found.topic for found in looked_at(settings(), train_rows=0)] == [
        *("metric", "hardware", "lora", "output", "disk", "hub"),
    ]


def test_a_target_that_no_layer_has_is_refused() -> None:
    assert of("lora", "lora.target_modules=[q_proj,v_proj]")[0][1].startswith("rank 16 on 4 q_proj, 4 v_proj: ")
    grade, detail = of("lora", "lora.target_modules=[q_proj,FAKE]")[0]
    assert grade == "problem"
    assert "is called FAKE; this model has down_proj" in detail


@pytest.mark.parametrize(
    "words",
    [
        ["lora=standard"],
        ["lora=dora", "lora.rank=4"],
        ["lora=pissa"],
        ["lora=none"],
        ["lora=dora", "lora.target_modules=[down_proj,v_proj]"],
    ],
    ids=" ".join,
)
def test_trainable_parameters_are_those_of_the_model_that_is_built(words: list[str]) -> None:
    config = settings(*words)
    assert trainable_parameters(config) == parameter_counts(build_model(config))["trainable"]


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for root in (file, file / "below"):
        grade, detail = of("output", f"output_root={root}")[0]
        assert grade == "problem"
        assert f"{file} is not a folder" in detail
        assert "set output_root=FOLDER" in detail


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that even root cannot write")
def test_whoever_may_write_by_the_modes_tries_it() -> None:
    assert of("output", "output_root=/proc/runs")[0][0] == "problem"


def test_looking_leaves_nothing_behind(tmp_path: Path) -> None:
    assert of("output", f"output_root={tmp_path}/not/yet")[0][0] == "ok"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("share", "grade"), [(0.99, "problem"), (1.01, "note"), (1.99, "note"), (2.01, "ok")])
def test_the_disk_has_room_for_the_run(monkeypatch: pytest.MonkeyPatch, share: float, grade: str) -> None:
    needed = run_bytes(Planned(settings(), 156, 31, True))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(2**50, 0, int(needed * share)))
    assert [found for found, _ in of("disk")] == [grade]


def test_what_a_run_needs_grows_with_what_it_keeps() -> None:
    def needed(*words: str) -> int:
        return run_bytes(Planned(settings(*words), 156, 31, True))

    one = checkpoint_bytes(Planned(settings(), 156, 31, True))
    many = ("checkpoint.every_epochs=0.1",)
    assert needed(*many, "checkpoint.save_total_limit=5") - needed(*many, "checkpoint.save_total_limit=3") == 2 * one
    # Three evaluations make no more than three checkpoints.
    assert needed("checkpoint.save_total_limit=5") == needed("checkpoint.save_total_limit=2")
    assert needed("lora=pissa") - needed() == 2 * 4 * 195_584  # start values, and a result twice as wide


@pytest.mark.parametrize(
    "words",
    [
        ["lora=standard"],
        pytest.param(["lora=none"], marks=pytest.mark.slow),
        pytest.param(["optim=adafactor"], marks=pytest.mark.slow),
    ],
    ids=["standard", "none", "adafactor"],
)
def test_the_estimate_is_at_least_the_real_size_and_not_half_as_much_again(tmp_path: Path, words: list[str]) -> None:
    smoke = ["debug=smoke", "score=none", "checkpoint.every_epochs=0.5", "hardware.threads=1", *words]
    smoke.append("checkpoint.keep=true")
    done = run_entry("ftx.train", *smoke, folder=tmp_path)
    assert done.status == 0, done.err
    (run,) = done.run_dirs()
    planned = Planned(settings(*smoke), SMOKE_ROWS, 31, True)
    checkpoints = sorted(run.checkpoints.glob("checkpoint-*"))
    assert len(checkpoints) == 2
    for folder in checkpoints:
        assert 1.0 <= checkpoint_bytes(planned) / size(folder) <= 1.5
    assert 1.0 <= run_bytes(planned) / size(run.path) <= 1.5


def size(folder: Path) -> int:
    """Of all files but the uncommitted diff, which is as large as it is."""
    files = [file for file in folder.rglob("*") if file.is_file() and file != RunDir(folder).patch]
    return sum(file.stat().st_size for file in files)


def test_a_folder_needs_no_network_and_a_hub_model_only_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of("hub") == [("ok", "model.name=tiny is a folder: no network is needed at any time")]
    monkeypatch.setattr(preflight, "location", lambda _: "someone/tiny")
    assert "comes from the Hub before the first step" in of("hub")[0][1]
