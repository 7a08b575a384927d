"""What else could explain a number: code, package versions, machine, process, and how to repeat the run."""

import hashlib
import platform
import shlex
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

import psutil

from ftx.record.git_state import GitState, git_state, is_tracked

__all__ = [
    "LOADED_SOURCES",
    "STACK",
    "GitState",
    "environment_text",
    "file_sha256",
    "ftx_state",
    "git_state",
    "machine",
    "package_versions",
    "process_alive",
    "process_identity",
    "reproduce_script",
    "sources_sha256",
]

STACK = (
    *("ftx", "torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers"),
    *("safetensors", "numpy", "hydra-core"),
)
"""Packages whose version can change a number; the run log's `versions`."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_START_TOLERANCE_SECONDS = 2.0  # the kernel derives start times from a boot time that NTP moves


def file_sha256(path: Path | str) -> str:
    """Return the hex SHA-256 of a file's bytes, reading it in pieces."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ftx_state() -> dict[str, Any]:
    """Return ftx's `version`, `commit`, `dirty`, the `reason` they are null, and the hash of its `sources`.

    The commit is null unless ftx's own files are tracked: an ftx installed into a virtual environment
    inside somebody's repository is not part of that repository.
    """
    package = Path(__file__).resolve().parents[1]
    state = git_state(package, with_patch=False)
    if state.commit and not is_tracked(package / "__init__.py"):
        state = GitState(reason=f"ftx's sources in {package} are not tracked by the repository around them")
    return {
        "version": package_versions(["ftx"])["ftx"],
        "commit": state.commit,
        "dirty": state.dirty,
        "reason": state.reason,
        "sources": LOADED_SOURCES,
    }


def sources_sha256(package: Path) -> str:
    """Return one hash over all .py files below `package`: their relative paths, sizes and bytes, sorted."""
    digest = hashlib.sha256()
    files = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    for name in sorted(files):
        content = files[name].read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogateescape") + content)
    return digest.hexdigest()


LOADED_SOURCES = sources_sha256(Path(__file__).resolve().parents[1])
"""ftx's own sources when this process, or the one it was forked from, began to load them; they may change later."""


def package_versions(names: Iterable[str]) -> dict[str, str | None]:
    """Return the installed version of each package without importing it; None: not installed."""
    versions: dict[str, str | None] = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions


def environment_text() -> str:
    """Return name==version of every installed distribution, sorted, headed by comments on the interpreter."""
    found: dict[str, str] = {}
    for distribution in distributions():
        metadata = distribution.metadata
        if "Name" in metadata and "Version" in metadata:  # a half-removed package has neither
            found.setdefault(metadata["Name"].lower(), f"{metadata['Name']}=={metadata['Version']}")
    header = [
        f"# python {platform.python_version()} ({platform.python_implementation()}) {sys.executable}",
        f"# platform {platform.platform()}",
    ]
    return "\n".join([*header, *(found[name] for name in sorted(found))]) + "\n"


def machine() -> dict[str, str]:
    """Return `os`, `machine` and `python`; the accelerator is for a caller that may import torch."""
    return {
        "os": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "python": platform.python_version(),
    }


def process_identity() -> dict[str, Any]:
    """Name this process so that no later one is taken for it: `host`, `boot_id`, `pid`, `started`; and its `folder`.

    `started` is in seconds since 1970-01-01 UTC: a process number alone is used again. `folder` is the one that
    relative paths of its configuration are meant from.
    """
    process = psutil.Process()
    return {
        "host": socket.gethostname(),
        "boot_id": _boot_id(),
        "pid": process.pid,
        "started": process.create_time(),
        "folder": str(Path.cwd()),
    }


def process_alive(identity: Mapping[str, Any]) -> bool | None:
    """Whether the process that `process_identity` named still runs; None if another host has to say."""
    if identity["host"] != socket.gethostname():
        return None
    if identity["boot_id"] != _boot_id():
        return False
    try:
        process = psutil.Process(identity["pid"])
        same = abs(process.create_time() - identity["started"]) < _START_TOLERANCE_SECONDS
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def reproduce_script(command: Sequence[str], cwd: Path, git: GitState) -> str:
    """Return a POSIX shell script that repeats the run with one command, from wherever it is started.

    Its comments say which commit the run had and how to rebuild uncommitted changes from code.patch,
    which lies beside the script.
    """
    comments = ["Repeats this run with one command.", *_code_comments(git)]
    return "\n".join(
        [
            "#!/bin/sh",
            *(f"# {_one_line(comment)}" for comment in comments),
            "set -eu",
            f"cd -- {shlex.quote(str(cwd))}",
            f"exec {shlex.join(command)}",
            "",
        ]
    )


def _code_comments(git: GitState) -> list[str]:
    if git.commit is None:
        return [f"Commit of the configuration: unknown ({git.reason})."]
    lines = [f"Commit of the configuration: {git.commit} in {git.repository}."]
    if git.dirty is None:
        return [*lines, f"Whether there were uncommitted changes is unknown ({git.reason})."]
    if not git.dirty:
        return [*lines, "There were no uncommitted changes."]
    if git.patch is None:
        return [*lines, f"There were uncommitted changes that could not be kept ({git.reason})."]
    lines += [
        "There were uncommitted changes. To rebuild that tree, then repeat the run in it:",
        f"  git clone -- {shlex.quote(git.repository or '')} rebuilt && cd rebuilt",
        f"  git checkout {git.commit}",
        "  git apply --whitespace=nowarn FOLDER_OF_THIS_SCRIPT/code.patch",
    ]
    return lines + [f"Not in the patch: {name}" for name in git.left_out]


def _one_line(comment: str) -> str:
    """Keep a name with a line break from ending the comment and starting a command."""
    return comment.replace("\n", "\\n").replace("\r", "\\r")


def _boot_id() -> str | None:
    """Return what changes at every start of this machine."""
    with suppress(OSError):
        return _BOOT_ID.read_text().strip()
    with suppress(psutil.Error, OSError):
        return f"booted at {psutil.boot_time():.0f}"
    return None
