import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from ftx.record import git_state as module
from ftx.record.atomic import write_text
from ftx.record.git_state import git_state, is_tracked

# Settings of a person that change what git prints, and how patches are read.
PERSONAL_SETTINGS = """
[user]
    name = A Person
    email = a.person@example.org
[init]
    defaultBranch = main
[color]
    ui = always
    diff = always
    status = always
[core]
    pager = false
    quotePath = true
[diff]
    noprefix = true
    mnemonicPrefix = true
    external = false
    renames = copies
    relative = true
    context = 0
    interHunkContext = 9
    suppressBlankEmpty = true
    submodule = log
[diff "shout"]
    textconv = tr a-z A-Z
[status]
    showUntrackedFiles = no
    short = true
    branch = true
    renames = copies
"""


class Repository:
    """A real git repository with one commit."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def write(self, name: str, content: bytes = b"new\n") -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def commit(self) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a commit")
        return self.git("rev-parse", "HEAD")


@pytest.fixture(autouse=True)
def own_git_settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give git a home of its own, so that no test depends on who runs it."""
    home = tmp_path_factory.mktemp("home")
    (home / ".gitconfig").write_text("[user]\n  name = A Person\n  email = a.person@example.org\n")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return home / ".gitconfig"


@pytest.fixture
def personal_settings(own_git_settings: Path) -> None:
    """Settings that would spoil a patch made without care."""
    own_git_settings.write_text(PERSONAL_SETTINGS)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """One commit of a text file, a .gitignore and a conf folder."""
    repository = Repository(tmp_path / "my project")
    repository.path.mkdir()
    repository.git("init", "--quiet")
    repository.write("train.py", b"one\ntwo\n\nthree\nfour\nfive\nsix\nseven\n")
    repository.write("conf/train.yaml", b"seed: 0\n")
    repository.write(".gitignore", b"ignored/\n")
    repository.commit()
    return repository


def tree(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Every file below `folder` outside .git: kind and content (of a link: its target)."""
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if name.split("/")[0] == ".git" or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink():
            found[name] = ("link", os.fsencode(path.readlink()))
        else:
            found[name] = ("executable" if path.stat().st_mode & 0o100 else "file", path.read_bytes())
    return found


def rebuild(repository: Repository, patch: str, commit: str) -> Path:
    """Apply the patch in a clean clone of the commit, as reproduce.sh says."""
    clone = repository.path.parent / "rebuilt"
    subprocess.run(["git", "clone", "--quiet", repository.path, clone], check=True)
    subprocess.run(["git", "checkout", "--quiet", commit], cwd=clone, check=True)
    write_text(repository.path.parent / "code.patch", patch)
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", repository.path.parent / "code.patch"], cwd=clone, check=True
    )
    return clone


def test_a_clean_repository(repository: Repository) -> None:
    repository.write("ignored/model.bin")
    repository.write("labbook.md")
    repository.write("notes/labbook.md.lock")
    state = git_state(repository.path / "conf" / "train.yaml")
    assert state.repository == str(repository.path)
    assert state.commit == repository.git("rev-parse", "HEAD")
    assert state.short == repository.git("rev-parse", "--short", "HEAD")
    assert (state.dirty, state.untracked, state.reason, state.patch) == (False, [], None, None)


def test_a_tracked_lab_book_does_not_count_either(repository: Repository) -> None:
    repository.write("labbook.md", b"before\n")
    repository.commit()
    repository.write("labbook.md", b"before\nafter\n")
    assert git_state(repository.path).dirty is False
    repository.write("new.py")
    state = git_state(repository.path)
    assert (state.dirty, state.untracked) == (True, ["new.py"])
    assert "labbook" not in (state.patch or "")


@pytest.mark.parametrize("change", ["edit", "delete", "stage", "untracked", "mode"])
@pytest.mark.usefixtures("personal_settings")
def test_every_kind_of_change_is_dirty(repository: Repository, change: str) -> None:
    train = repository.path / "train.py"
    if change == "edit":
        train.write_text("two\n")
    elif change == "delete":
        train.unlink()
    elif change == "stage":
        repository.git("rm", "--quiet", "train.py")
    elif change == "untracked":
        repository.write("new file.py")
    else:
        train.chmod(0o755)
    state = git_state(repository.path / "conf")
    assert state.dirty is True
    assert state.short == repository.git("rev-parse", "--short", "HEAD") + "-dirty"
    assert state.untracked == (["new file.py"] if change == "untracked" else [])
    assert state.patch
    assert git_state(repository.path, with_patch=False).patch is None


def change_everything(repository: Repository) -> None:
    """Every kind of change that a patch has to carry."""
    rng = random.Random(0)
    repository.write("edited.bin", rng.randbytes(3000))
    repository.write("deleted.txt", b"deleted\n")
    repository.write("old name.txt", b"".join(b"line %d\n" % number for number in range(50)))
    repository.write("becomes a folder", b"file\n")
    repository.write("latin1.txt", b"caf\xe9\n")
    repository.write("loud.txt", b"quiet\n")
    repository.write("labbook.md", b"book\n")
    repository.write(".gitattributes", b"loud.txt diff=shout\n")
    repository.commit()
    (repository.path / "edited.bin").write_bytes(rng.randbytes(3000))
    (repository.path / "deleted.txt").unlink()
    repository.git("mv", "old name.txt", "a new name.txt")
    (repository.path / "becomes a folder").unlink()
    repository.write("becomes a folder/inside.txt")
    repository.write("latin1.txt", b"caf\xe9 \xe0 la cr\xe8me \r\n")
    repository.write("loud.txt", b"still quiet\n")
    repository.write("train.py", b"one\nTWO\n\nthree\nfour\nfive\nsix\nseven, no newline")
    repository.write("staged.py", b"staged\n")
    repository.git("add", "staged.py")
    repository.write("staged.py", b"staged, then edited\n")
    repository.write("a folder/\u00fcn tracked & $HOME.bin", rng.randbytes(2000))
    repository.write("-option", b"")
    repository.write(":(top)magic*.txt", b"magic\r\n")
    repository.write('"quoted\ttab".txt')
    repository.write("script.sh", b"#!/bin/sh\n").chmod(0o755)
    (repository.path / "link").symlink_to("train.py")


@pytest.mark.parametrize("settings", ["default", "personal"])
def test_the_patch_rebuilds_the_tree_in_a_clean_clone(
    repository: Repository, settings: str, request: pytest.FixtureRequest
) -> None:
    if settings == "personal":
        request.getfixturevalue("personal_settings")
    change_everything(repository)
    repository.write("labbook.md", b"book\nmy line\n")
    index_before = (repository.path / ".git" / "index").read_bytes()

    state = git_state(repository.path / "conf")

    assert state.reason is None
    assert state.patch
    assert state.commit
    assert state.left_out == []
    rebuilt = tree(rebuild(repository, state.patch, state.commit))
    assert rebuilt.pop("labbook.md") == ("file", b"book\n")
    expected = tree(repository.path)
    del expected["labbook.md"]
    assert rebuilt == expected
    assert (repository.path / ".git" / "index").read_bytes() == index_before


def test_large_untracked_files_are_named_and_left_out(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNTRACKED_TOTAL_BYTES", 1500)
    repository.write("a small.bin", bytes(1000))
    repository.write("b small.bin", bytes(1000))
    repository.write("large.bin", bytes(1_000_001))
    inner = Repository(repository.path / "inner")
    inner.write("file")
    inner.git("init", "--quiet")
    inner.commit()
    state = git_state(repository.path)
    assert state.untracked == ["a small.bin", "b small.bin", "inner/", "large.bin"]
    assert state.left_out == [
        "b small.bin (1000 bytes; all untracked files together are too large)",
        "inner/ (a repository of its own)",
        "large.bin (1000001 bytes)",
    ]
    assert state.patch is not None
    assert state.patch.count("diff --git") == 1


def test_what_ftx_itself_writes_can_be_ignored(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.write("outputs/a/run.json")
    repository.write("book.md", b"book\n")
    repository.git("add", "book.md")
    (repository.path / "linked").symlink_to(repository.path.parent)
    monkeypatch.chdir(repository.path)
    own = [Path("outputs"), repository.path / "book.md", Path("linked"), Path("/elsewhere")]
    assert git_state(Path(), ignore=own).dirty is False
    repository.write("outputs2/new.py")
    state = git_state(Path(), ignore=own)
    assert state.untracked == ["outputs2/new.py"]
    assert state.patch is not None
    assert state.patch.count("diff --git") == 1


def test_a_changed_submodule_is_named(repository: Repository) -> None:
    other = Repository(repository.path.parent / "other")
    other.write("lib.py")
    other.git("init", "--quiet")
    other.commit()
    repository.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.path), "sub")
    repository.commit()
    assert git_state(repository.path).dirty is False
    repository.write("sub/lib.py", b"changed\n")
    state = git_state(repository.path)
    assert state.dirty is True
    assert state.left_out == ["sub (submodule with changes of its own)"]


def test_a_hooks_environment_does_not_mislead(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Repository(tmp_path / "other")
    other.path.mkdir()
    other.git("init", "--quiet")
    for name, value in [("GIT_DIR", other.path / ".git"), ("GIT_INDEX_FILE", "no/index")]:
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    state = git_state(repository.path)
    assert (state.repository, state.dirty) == (str(repository.path), False)


def nothing_known_but(reason: str, folder: Path, repository: str | None = None) -> None:
    state = git_state(folder)
    assert (state.repository, state.commit, state.short, state.dirty, state.patch) == (
        repository,
        *[None] * 4,
    )
    assert reason in (state.reason or "")


def test_no_repository(tmp_path: Path) -> None:
    nothing_known_but("is not in a git repository", tmp_path)
    nothing_known_but("is not in a git repository", tmp_path / "does" / "not" / "exist")


def test_no_commit_yet(tmp_path: Path) -> None:
    Repository(tmp_path).git("init", "--quiet")
    nothing_known_but("has no commit yet", tmp_path, str(tmp_path))


def test_no_git(repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    nothing_known_but("git is not installed", repository.path)


def test_dubious_ownership(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    nothing_known_but("dubious ownership", repository.path)


def test_a_bare_repository(repository: Repository) -> None:
    nothing_known_but("without a working tree", repository.path / ".git")


def test_a_git_that_hangs_or_breaks(repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    git = shutil.which("git")
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\ncase "$*" in *status*) exec sleep 20;; *) exec {git} "$@";; esac\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(module, "GIT_SECONDS", 0.5)
    state = git_state(repository.path)
    assert state.commit == repository.git("rev-parse", "HEAD")
    assert (state.dirty, state.short) == (None, None)
    assert "git status took longer than" in (state.reason or "")

    fake.write_text("#!/bin/sh\necho out of memory >&2; exit 128\n")
    nothing_known_but("git rev-parse failed: out of memory", repository.path)
    fake.write_text("not a program")
    nothing_known_but("git could not be run", repository.path)


def test_only_files_in_the_index_are_tracked(repository: Repository) -> None:
    repository.write("new.py")
    assert is_tracked(repository.path / "train.py")
    assert not is_tracked(repository.path / "new.py")
    assert not is_tracked(repository.path.parent / "train.py")


def test_a_change_of_the_same_size_just_after_the_commit_is_in_the_patch(repository: Repository) -> None:
    repository.write("conf/train.yaml", b"seed: 1\n")
    repository.write("new.yaml")
    time.sleep(1.1)  # git compares times by the second
    patch = git_state(repository.path).patch
    assert patch is not None
    assert "+seed: 1" in patch
    assert "new.yaml" in patch
