import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ftx.record.labbook import FIELDS, read_entries
from ftx.runlog import file_sha256, record

GIVEN: dict[str, Any] = {
    "model": "tiny",
    "dataset": {"path": "orders", "sha256": None},
    "hyperparameters": {"lora.rank": 16},
    "seed": 3,
    "losses": {"final_eval_loss": 1.5},
    "scores": {"exact_match": 0.5},
    "notes": "ünusual",
}


def runlog(cwd: Path, *arguments: str, stdin: Any = "") -> subprocess.CompletedProcess[str]:
    text = stdin if isinstance(stdin, str) else json.dumps(stdin)
    return subprocess.run(
        [sys.executable, "-m", "ftx.runlog", *arguments],
        cwd=cwd,
        input=text,
        capture_output=True,
        text=True,
        env=os.environ | {"GIT_CEILING_DIRECTORIES": str(cwd.parent)},
        check=False,
    )


def test_demo_appends_a_complete_and_labelled_line(tmp_path: Path) -> None:
    done = runlog(tmp_path, "--demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"labbook\.md: appended \d{8}T\d{6}Z-[0-9a-f]{6} \(lab demo, commit unknown\)\n", done.stdout)
    ((entry,), problems) = read_entries(tmp_path / "labbook.md")
    assert problems == []
    assert entry["lab"] == "demo"
    assert "DEMO" in entry["notes"]
    assert entry["versions"]["ftx"]
    assert entry["hardware"]["python"] == sys.version.split()[0]


def test_record_fills_in_the_rest_and_prints_json_only(tmp_path: Path) -> None:
    done = runlog(tmp_path, "--record", "--json", "--labbook", "my book.md", stdin=GIVEN)
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    assert tuple(printed) == FIELDS
    assert printed | GIVEN == printed
    assert printed["lab"] == "single"
    assert set(printed["hardware"]) == {"os", "machine", "python", "accelerator", "device_name"}
    assert read_entries(tmp_path / "my book.md") == ([printed], [])


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        (GIVEN | {"sed": 1}, "sed: no such field; did you mean seed?"),
        (GIVEN | {"run_id": "x"}, "run_id: filled in by ftx; leave it out"),
        ({key: GIVEN[key] for key in GIVEN if key != "losses"}, "losses: missing"),
        (GIVEN | {"seed": "3"}, "seed: expected an integer, got '3'"),
        (GIVEN | {"scores": [1]}, "scores: expected an object, got [1]"),
        (GIVEN | {"lab": None}, "lab: expected a text, got None"),
        ('{"model": "tiny",\n "scores": {"x": NaN}}', "line 2, column 18: not valid JSON: NaN"),
        ('{"model": "tiny"', "line 1, column 17: not valid JSON"),
        ("[]", "expected a JSON object, got list"),
        ("", "empty, expected a JSON object"),
    ],
    ids=["unknown", "filled-in", "missing", "seed", "scores", "lab", "nan", "truncated", "list", "empty"],
)
def test_mistakes_are_refused_by_name(tmp_path: Path, stdin: Any, message: str) -> None:
    done = runlog(tmp_path, "--record", stdin=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one of the arguments --demo --record is required"),
        (["--demo", "--record"], "not allowed with"),
        (["--demo", "--labbook", "."], "is a folder"),
        (["--demo", "--labbook", "file/labbook.md"], "cannot be written"),
    ],
    ids=["nothing", "both", "folder", "below-a-file"],
)
def test_a_wrong_command_line_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "file").write_text("")
    done = runlog(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_help(tmp_path: Path) -> None:
    done = runlog(tmp_path, "--help")
    assert done.returncode == 0
    for word in ("--demo", "--record", "--labbook", "--json"):
        assert word in done.stdout


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    script = (
        "import sys; from ftx.runlog import main; main(['--demo']); "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True)
    heavy = {"torch", "transformers", "hydra", "omegaconf", "pandas", "numpy", "datasets", "trl", "peft"}
    assert not heavy & set(done.stdout.split())
    assert "ftx.config" not in done.stdout


def git(cwd: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_commit_is_that_of_the_configurations_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    config = project / "conf" / "train.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("seed: 0\n")
    git(project, "init", "--quiet")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "a commit")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    short = git(project, "rev-parse", "--short", "HEAD")
    book = project / "book.md"
    assert record(**GIVEN, config_path=config, labbook=book)["config_commit"] == short
    assert record(**GIVEN, config_path=str(config), labbook=str(book))["config_commit"] == short
    assert record(**GIVEN, labbook=book)["config_commit"] is None
    config.write_text("seed: 1\n")
    entry = record(**GIVEN | {"scores": {"f1": float("nan")}}, config_path=config.parent, labbook=book)
    assert entry["config_commit"] == f"{short}-dirty"
    assert entry["scores"] == {"f1": "NaN"}
    assert [entry["seed"] for entry in read_entries(book)[0]] == [3] * 4


def test_file_sha256_is_offered_here(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert file_sha256(tmp_path / "empty").startswith("e3b0c44298fc1c14")
