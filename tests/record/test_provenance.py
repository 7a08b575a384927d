import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from ftx.record import provenance
from ftx.record.git_state import GitState
from ftx.record.provenance import (
    STACK,
    environment_text,
    file_sha256,
    ftx_state,
    machine,
    package_versions,
    process_alive,
    process_identity,
    reproduce_script,
    sources_sha256,
)


def run_script(tmp_path: Path, command: list[str], cwd: Path, git: GitState) -> str:
    script = tmp_path / "run dir" / "reproduce.sh"
    script.parent.mkdir()
    script.write_text(reproduce_script(command, cwd, git))
    subprocess.run(["sh", "-n", script], check=True)
    return subprocess.run(["sh", script], cwd="/", check=True, capture_output=True, text=True).stdout


def test_the_script_repeats_the_command_from_anywhere(tmp_path: Path) -> None:
    arguments = ['notes=it\'s "quoted" $HOME `id`\nnext line', "lora.target_modules=[q_proj, v_proj]", "*"]
    command = [sys.executable, "-c", "import os, sys; print([os.getcwd(), *sys.argv[1:]])", *arguments]
    cwd = tmp_path / "my project"
    cwd.mkdir()
    git = GitState(repository="a\nexit 1", commit="c" * 40, dirty=True, patch="", left_out=["big\nexit 1"])
    assert run_script(tmp_path, command, cwd, git) == f"{[str(cwd), *arguments]}\n"


@pytest.mark.parametrize(
    ("git", "words"),
    [
        (GitState(reason="git is not installed"), ["unknown (git is not installed)"]),
        (GitState("/r", "c" * 40, "c", False), ["c" * 40 + " in /r", "no uncommitted changes"]),
        (GitState("/r", "c" * 40, reason="too slow"), ["uncommitted changes is unknown (too slow)"]),
        (GitState("/r", "c" * 40, "c-dirty", True, reason="too slow"), ["could not be kept (too slow)"]),
        (
            GitState("/r r", "c" * 40, "c-dirty", True, patch="p", left_out=["big.bin (9 bytes)"]),
            ["git clone -- '/r r'", "git apply", "code.patch", "Not in the patch: big.bin (9 bytes)"],
        ),
    ],
    ids=["unknown", "clean", "dirty-unknown", "no-patch", "dirty"],
)
def test_the_script_says_which_code_it_was(git: GitState, words: list[str]) -> None:
    comments = [line for line in reproduce_script(["true"], Path("/"), git).splitlines() if line[:1] == "#"]
    for word in words:
        assert word in "\n".join(comments)


def test_file_sha256_is_that_of_the_bytes(tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    (tmp_path / "a").write_bytes(content)
    assert file_sha256(tmp_path / "a") == hashlib.sha256(content).hexdigest()
    assert file_sha256(str(tmp_path / "a")) == hashlib.sha256(content).hexdigest()


def test_the_hash_of_sources_moves_with_names_and_contents_only(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    first = sources_sha256(tmp_path)
    (tmp_path / "notes.txt").write_text("not a source")
    assert sources_sha256(tmp_path) == first
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    second = sources_sha256(tmp_path)
    (tmp_path / "b.py").write_text("y")
    assert len({first, second, sources_sha256(tmp_path)}) == 3


def test_the_state_of_ftx_itself() -> None:
    state = ftx_state()
    assert list(state) == ["version", "commit", "dirty", "reason", "sources"]
    assert (state["commit"] is None) == (state["reason"] is not None)
    assert len(state["sources"]) == 64


def test_an_ftx_installed_inside_a_persons_repository_is_not_part_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def theirs(folder: Path, *, with_patch: bool) -> GitState:
        return GitState(repository="/theirs", commit="c" * 40, short="c", dirty=False)

    monkeypatch.setattr(provenance, "git_state", theirs)
    monkeypatch.setattr(provenance, "is_tracked", lambda path: False)
    state = ftx_state()
    assert (state["commit"], state["dirty"]) == (None, None)
    assert "not tracked" in state["reason"]


def test_versions_are_those_installed_and_none_for_the_others() -> None:
    versions = package_versions([*STACK, "no-such-package"])
    assert list(versions) == [*STACK, "no-such-package"]
    assert versions["no-such-package"] is None
    assert versions["hydra-core"]


def test_the_environment_lists_every_distribution_once_and_sorted() -> None:
    comments, names = [], []
    for line in environment_text().splitlines():
        comments.append(line) if line.startswith("#") else names.append(line.partition("==")[0].lower())
    assert comments[0].startswith(f"# python {sys.version.split()[0]}")
    assert names == sorted(set(names))
    assert {"ftx", "psutil", "hydra-core"} <= set(names)


def test_the_machine_is_described_in_words() -> None:
    assert list(machine()) == ["os", "machine", "python"]
    assert all(machine().values())


def test_a_process_is_known_to_live_to_be_dead_or_to_be_elsewhere() -> None:
    me = process_identity()
    assert process_alive(me) is True
    assert process_alive(me | {"started": me["started"] - 60}) is False  # the number was used again
    assert process_alive(me | {"boot_id": "earlier"}) is False
    assert process_alive(me | {"host": "elsewhere"}) is None
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    theirs = me | {"pid": child.pid, "started": provenance.psutil.Process(child.pid).create_time()}
    assert process_alive(theirs) is True
    child.kill()
    child.wait()
    assert process_alive(theirs) is False
    assert child.stdin is not None
    child.stdin.close()
