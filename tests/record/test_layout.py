import subprocess
import sys
from pathlib import Path

import pytest

from ftx.errors import FtxError
from ftx.record.layout import RunDir, create_run_dir


@pytest.mark.parametrize(
    ("name", "directory"),
    [
        ("lora.rank=32 seed 1", "lora.rank-32-seed-1"),
        ("../../etc", "etc"),
        ("--help", "help"),
        ("äöü", "run"),
        ("", "run"),
        ("x" * 300, "x" * 100),
    ],
    ids=["overrides", "traversal", "option", "no-ascii", "empty", "long"],
)
def test_names_are_safe_and_short(tmp_path: Path, name: str, directory: str) -> None:
    run_dir = create_run_dir(tmp_path / "outputs", name)
    assert run_dir == RunDir(tmp_path / "outputs" / directory)
    assert run_dir.path.is_dir()


def test_a_taken_name_gets_a_number_within_the_limit(tmp_path: Path) -> None:
    names = [create_run_dir(tmp_path, "y" * 100).path.name for _ in range(3)]
    assert names == ["y" * 100, "y" * 98 + "-2", "y" * 98 + "-3"]


def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    assert create_run_dir(tmp_path, "a").path.name == "a-2"


def test_twenty_starts_at_once_get_twenty_directories(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from ftx.record.layout import create_run_dir\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "print(create_run_dir(Path(sys.argv[1]), 'same').path.name)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "outputs")]
    pipe = subprocess.PIPE
    started = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(20)]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    names = {process.communicate()[0].strip() for process in started}
    assert names == {"same", *(f"same-{number}" for number in range(2, 21))}
    assert {path.name for path in (tmp_path / "outputs").iterdir()} == names


@pytest.mark.parametrize("root", ["file", "file/below"], ids=["a-file", "below-a-file"])
def test_a_root_that_cannot_be_written_is_refused(tmp_path: Path, root: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FtxError, match="output_root") as caught:
        create_run_dir(tmp_path / root, "a")
    assert "set output_root=FOLDER" in str(caught.value)


def test_a_read_only_root_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:  # chmod does not stop root
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(FtxError, match=r"output_root: .*Permission denied.*set output_root=FOLDER"):
        create_run_dir(tmp_path, "a")


def test_every_file_lies_in_the_run_directory_under_its_documented_name() -> None:
    run_dir = RunDir(Path("r"))
    assert {
        path.name: path.parent
        for path in (
            *(
                run_dir.record,
                run_dir.history,
                run_dir.checkpoints,
                run_dir.adapter,
                run_dir.model,
                run_dir.hydra,
            ),
            *(run_dir.predictions, run_dir.log, run_dir.environment, run_dir.patch, run_dir.reproduce),
        )
    } == dict.fromkeys(
        [
            *("run.json", "history.jsonl", "checkpoints", "adapter", "model", ".hydra", "predictions.jsonl"),
            *("job.log", "environment.txt", "code.patch", "reproduce.sh"),
        ],
        Path("r"),
    )
