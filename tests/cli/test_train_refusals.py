"""A refusal costs about a second, shows no traceback, imports nothing heavy and leaves nothing on disk."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from processes import Finished, run_module

Train = Callable[..., Finished]


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """A fresh process, as a person starts it: here it counts what a refusal costs."""

    def call(*arguments: str, **environment: str) -> Finished:
        return run_module("ftx.train", *arguments, folder=tmp_path, **environment)

    return call


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["optim.lrr=1e-3"], "ftx: optim.lrr: no such key. Did you mean optim.lr?"),
        (["+optim.lrr=1e-3"], "ftx: optim.lrr: no such key. Did you mean optim.lr?"),
        (["lora.rank=-1"], "ftx: lora.rank must be at least 1 and at most 4096, got -1"),
        (["data=file", "data.path=nowhere.jsonl"], "ftx: data.path=nowhere.jsonl: no such file"),
        (["data.path=[nowhere.jsonl]"], "ftx: data.path=nowhere.jsonl: no such file"),
        (["data.template=plian"], "ftx: data.template=plian: no such file; expected one of model, training, plain"),
        (["--fast"], "ftx: --fast: no such flag"),
    ],
)
def test_a_refusal(train: Train, tmp_path: Path, words: list[str], expected: str) -> None:
    started = time.monotonic()
    done = train(*words)
    assert time.monotonic() - started < 5  # about a second on an idle machine; a busy one must not fail the test
    assert done.status == 2
    assert done.err.startswith(expected)
    assert "Traceback" not in done.err + done.out
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


def test_all_problems_are_on_stderr_one_a_line(train: Train) -> None:
    done = train("optim.lrr=1", "lora.rank=0", "data.path=x")
    assert len(done.err.splitlines()) == 2  # contradictions between keys are looked for once each key is right
    assert done.status == 2


def test_a_refusal_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from ftx.train import start; status = start(['optim.lrr=1']);"
        "heavy = {'torch', 'transformers', 'trl', 'peft', 'datasets', 'pandas'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy or status != 2 else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0


@pytest.mark.train
def test_an_accelerator_that_is_not_there(train: Train, tmp_path: Path) -> None:
    done = train("hardware=cuda")
    assert done.status == 2
    assert done.err.startswith("ftx: hardware.device=cuda: this machine has none")
    assert "hardware=auto" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.train
def test_bad_rows_are_refused_before_a_run_directory_exists(train: Train, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "a", "completion": 7}\n')
    done = train("data=file", f"data.path={rows}")
    assert done.status == 2
    assert f"ftx: {rows}:2: completion is a number (7), expected text" in done.err
    assert list(tmp_path.iterdir()) == [rows]


@pytest.mark.train
def test_an_output_folder_that_cannot_be_written(train: Train, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    done = train("output_root=taken")
    assert done.status == 2
    assert "output_root" in done.err
    assert "Traceback" not in done.err


@pytest.mark.train
@pytest.mark.parametrize("labbook", ["a_folder", "a_file/labbook.md"])
def test_a_lab_book_that_cannot_be_written_is_refused_at_the_start(train: Train, tmp_path: Path, labbook: str) -> None:
    (tmp_path / "a_folder").mkdir()
    (tmp_path / "a_file").write_text("x")
    done = train(f"labbook={labbook}")
    assert done.status == 2
    assert f"ftx: labbook={labbook}: cannot be written" in done.err
    assert not (tmp_path / "outputs").exists()


def test_torchrun_is_refused_in_one_line(train: Train) -> None:
    done = train(WORLD_SIZE="2")
    assert done.status == 2
    assert done.err == "ftx: WORLD_SIZE=2: a run is one process so far; start it without torchrun\n"


@pytest.mark.train
def test_a_hub_model_that_cannot_be_had_is_refused_at_the_start(train: Train, tmp_path: Path) -> None:
    done = train("model=hub", "model.name=nobody/nothing")
    assert done.status == 2
    assert "ftx: model.name=nobody/nothing cannot be had from the Hugging Face Hub" in done.err
    assert list(tmp_path.iterdir()) == []


def test_help_lists_every_option_and_key_without_composing(train: Train) -> None:
    from ftx.config.keys import schema_keys

    done = train("--help", "optim.lrr=1")
    assert done.status == 0
    for name in schema_keys():
        assert f"  {name}=" in done.out
    assert "lora=      dora, none, pissa, rslora, standard" in done.out


def test_hydras_own_view_of_the_configuration(train: Train, tmp_path: Path) -> None:
    done = train("--cfg", "job", "lora.rank=8")
    assert done.status == 0
    assert "rank: 8" in done.out
    assert list(tmp_path.iterdir()) == []


def test_a_job_whose_rows_are_not_those_that_its_study_planned_is_refused(train: Callable[..., Finished]) -> None:
    done = train("score=none", FTX_STUDY="study", FTX_ARM="baseline", FTX_PLANNED="0" * 64)
    assert done.status == 2
    assert "have changed since the study was planned" in done.err
    assert done.run_dirs() == []
