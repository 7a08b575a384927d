"""The state of the git repository that holds a folder, and a patch that rebuilds it.

Whatever goes wrong (no git, no repository, no commit, an owner git does not trust, a slow disk) becomes
nulls with a reason: a training run never ends because of its provenance.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

GIT_SECONDS = 20.0  # per git command
MAX_UNTRACKED_BYTES = 1_000_000  # of one untracked file in the patch
MAX_UNTRACKED_TOTAL_BYTES = 20_000_000  # of all untracked files in the patch
LABBOOK_NAMES = ("labbook.md", "labbook.md.lock")

# Settings of the person that would change what the commands below print.
_NEUTRAL = (
    *("-c", "core.quotePath=false", "-c", "core.fsmonitor=false", "-c", "core.splitIndex=false"),
    *("-c", "core.untrackedCache=false", "-c", "color.ui=false", "-c", "diff.suppressBlankEmpty=false"),
)
_DIFF = (
    *("diff", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"),
    *("--no-relative", "--src-prefix=a/", "--dst-prefix=b/", "--unified=3", "--inter-hunk-context=0"),
    *("--submodule=short", "--ignore-submodules=dirty", "HEAD", "--", ":(top)"),
)
# Set inside git hooks and aliases; they would point git at another repository or read paths differently.
_MISLEADING = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY"),
    *("GIT_NAMESPACE", "GIT_DIFF_OPTS", "GIT_EXTERNAL_DIFF", "GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS"),
    *("GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"),
)


@dataclass
class GitState:
    """State of one repository; None is unknown, and `reason` says why."""

    repository: str | None = None
    """Top folder of the working tree."""
    commit: str | None = None
    """Full hash of HEAD."""
    short: str | None = None
    """Short hash, "-dirty" appended if the tree is not the commit; None if either is unknown."""
    dirty: bool | None = None
    """Whether tracked files are changed or untracked ones not ignored exist."""
    untracked: list[str] = field(default_factory=list)
    """Untracked files that are not ignored, relative to the repository."""
    reason: str | None = None
    patch: str | None = None
    """For `git apply` in a clean clone of the commit; bytes that are not UTF-8 are surrogate escapes."""
    left_out: list[str] = field(default_factory=list)
    """What is dirty and not in the patch."""


class _GitError(Exception):
    """A git command did not succeed; the message is the reason in words."""


@dataclass
class _Status:
    changed: bool = False
    untracked: list[str] = field(default_factory=list)
    dirty_submodules: list[str] = field(default_factory=list)


def git_state(folder: Path, *, ignore: Iterable[Path] = (), with_patch: bool = True) -> GitState:
    """Return the state of the repository that holds `folder` (or the file of that name); never raises.

    labbook.md and its lock file, anywhere, and the files and folders in `ignore` (what ftx itself writes)
    neither count as dirty nor enter the patch.
    """
    state = GitState()
    try:
        top = Path(_line(_existing_folder(folder), "rev-parse", "--show-toplevel"))
        state.repository = str(top)
        state.commit = _line(top, "rev-parse", "--verify", "HEAD")
        _describe(state, top, _relative_to(top, ignore), with_patch)
    except _GitError as error:
        state.reason = str(error)
    except OSError as error:
        state.reason = f"git could not be run ({error.strerror or error})"
    return state


def is_tracked(path: Path) -> bool:
    """Whether `path` itself is in the index of the repository around it; False where that is not known."""
    try:
        _git(path.parent, "--literal-pathspecs", "ls-files", "--error-unmatch", "--", path.name)
    except (_GitError, OSError):
        return False
    return True


def _describe(state: GitState, top: Path, skip: Sequence[str], with_patch: bool) -> None:
    """Fill in everything that follows from the commit."""
    status = _status(top, skip)
    state.untracked = status.untracked
    state.dirty = status.changed or bool(status.untracked)
    state.short = _line(top, "rev-parse", "--short", "HEAD") + ("-dirty" if state.dirty else "")
    if state.dirty and with_patch:
        small, large = _small_enough(top, status.untracked)
        state.left_out = [f"{name} (submodule with changes of its own)" for name in status.dirty_submodules]
        state.left_out += large
        state.patch = _patch(top, small, skip)


def _status(top: Path, skip: Sequence[str]) -> _Status:
    """Parse `git status --porcelain=v2 -z`: "1 XY sub ... path", "u XY sub ... path" and "? path"."""
    output = _text(
        _git(top, "status", "--porcelain=v2", "-z", "--untracked-files=all", "--no-renames",
             "--ignore-submodules=none")
    )  # fmt: skip
    status = _Status()
    for item in output.split("\0"):
        kind, _, rest = item.partition(" ")
        columns_before_path = {"1": 7, "u": 9, "?": 0}.get(kind)
        if columns_before_path is None:
            continue
        *columns, path = rest.split(" ", columns_before_path)
        if _is_own(path, skip):
            continue
        if kind == "?":
            status.untracked.append(path)
        else:
            status.changed = True
            if columns[1].startswith("S") and ("M" in columns[1] or "U" in columns[1]):
                status.dirty_submodules.append(path)
    return status


def _patch(top: Path, untracked: Sequence[str], skip: Sequence[str]) -> str:
    """Diff HEAD against the working tree, with `untracked` files as additions.

    They are announced ("intent to add") in a copy of the index, so one diff covers everything, file
    modes, binary content and a file replaced by a folder included, and the repository is not touched.
    """
    exclude = [f":(top,exclude,glob)**/{name}" for name in LABBOOK_NAMES]
    exclude += [f":(top,exclude,literal){path}" for path in skip]
    with tempfile.TemporaryDirectory(prefix="ftx-git-") as scratch:
        index = Path(scratch) / "index"
        original = Path(_line(top, "rev-parse", "--git-path", "index"))
        if (top / original).exists():
            # With its time: git takes a file as unchanged that is older than the index and of the same size.
            shutil.copy2(top / original, index)
        environment = {"GIT_INDEX_FILE": str(index)}
        if untracked:
            names = "\0".join(untracked).encode("utf-8", "surrogateescape")
            _git(top, "--literal-pathspecs", "add", "--intent-to-add", "--pathspec-from-file=-",
                 "--pathspec-file-nul", stdin=names, environment=environment)  # fmt: skip
        return _text(_git(top, *_DIFF, *exclude, environment=environment))


def _small_enough(top: Path, untracked: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split untracked files into those that go into the patch, and the others with the reason."""
    small, others, total = [], [], 0
    for name in untracked:
        if name.endswith("/"):
            others.append(f"{name} (a repository of its own)")
            continue
        try:
            size = (top / name).lstat().st_size
        except OSError as error:  # removed since git listed it, or in a folder that may not be entered
            others.append(f"{name} ({error.strerror})")
            continue
        if size > MAX_UNTRACKED_BYTES:
            others.append(f"{name} ({size} bytes)")
        elif total + size > MAX_UNTRACKED_TOTAL_BYTES:
            others.append(f"{name} ({size} bytes; all untracked files together are too large)")
        else:
            small.append(name)
            total += size
    return small, others


def _is_own(path: str, skip: Sequence[str]) -> bool:
    bare = path.rstrip("/")
    return bare.rpartition("/")[2] in LABBOOK_NAMES or any(bare == own or bare.startswith(f"{own}/") for own in skip)


def _relative_to(top: Path, paths: Iterable[Path]) -> list[str]:
    """Return the paths that lie in the working tree as git spells them; the tree itself is never skipped."""
    real = top.resolve()
    spellings = [spelling for path in paths for spelling in (path.absolute(), path.resolve())]  # a link is both
    inside = [path.relative_to(real).as_posix() for path in spellings if real in path.parents]
    return list(dict.fromkeys(inside))


def _existing_folder(path: Path) -> Path:
    real = path.resolve()
    return next(folder for folder in (real, *real.parents) if folder.is_dir())


def _line(folder: Path, *arguments: str) -> str:
    return _text(_git(folder, *arguments)).removesuffix("\n")


def _text(output: bytes) -> str:
    return output.decode("utf-8", "surrogateescape")


def _git(folder: Path, *arguments: str, stdin: bytes = b"", environment: dict[str, str] | None = None) -> bytes:
    """Run git in `folder` and return its output, byte for byte; _GitError says in words why there is none."""
    executable = shutil.which("git")
    if executable is None:
        raise _GitError("git is not installed (no executable of that name on PATH)")
    kept = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    quiet = {"LC_ALL": "C", "LANGUAGE": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            [executable, "--no-pager", *_NEUTRAL, *arguments],
            cwd=folder,
            input=stdin,
            capture_output=True,
            env=kept | quiet | (environment or {}),
            timeout=GIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _GitError(f"git {_verb(arguments)} took longer than {GIT_SECONDS:.0f} s") from None
    if done.returncode != 0:
        raise _GitError(_reason(folder, _verb(arguments), _text(done.stderr)))
    return done.stdout


def _verb(arguments: Sequence[str]) -> str:
    return next(argument for argument in arguments if not argument.startswith("-"))


def _reason(folder: Path, verb: str, message: str) -> str:
    """Turn git's own message into one line that says what to do, where that is known."""
    if "dubious ownership" in message:
        return (
            f"git does not trust the owner of the repository holding {folder} (dubious ownership); "
            "git config --global --add safe.directory FOLDER allows it"
        )
    if "not a git repository" in message:
        return f"{folder} is not in a git repository"
    if "Needed a single revision" in message:
        return f"the repository {folder} has no commit yet"
    if "must be run in a work tree" in message:
        return f"{folder} is in a git repository without a working tree"
    return f"git {verb} failed: {' '.join(message.split()) or 'no message'}"
