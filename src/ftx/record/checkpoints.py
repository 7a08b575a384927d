"""Checkpoints as folders: complete or absent, and looked at byte by byte before one is used.

A checkpoint is written aside, synced, listed in a manifest with sizes and hashes, and renamed. What is inside is
the trainer's business.
"""

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftx.errors import FtxError
from ftx.record.atomic import read_json, sync_folder, write_json
from ftx.record.layout import RunDir
from ftx.record.provenance import file_sha256

MANIFEST = "manifest.json"
_NAME = re.compile(r"checkpoint-(\d+)")
_ASIDE = ".aside"  # end of the hidden name of what is being written or removed


@dataclass(frozen=True)
class Checkpoint:
    """The folder of one, and the optimiser steps that were done when it was written."""

    path: Path
    step: int

    @property
    def name(self) -> str:
        """As people say it, and as it stands in the record."""
        return self.path.name


@dataclass(frozen=True)
class Choice:
    """The checkpoint to continue from; None: there is none to be used, so from the start."""

    checkpoint: Checkpoint | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What its writer put into the manifest."""
    skipped: tuple[str, ...] = ()
    """Newer ones, and why they cannot be used."""


FROM_THE_START = Choice(None)


def checkpoint_at(run: RunDir, step: int) -> Checkpoint:
    """The checkpoint after `step` optimiser steps, whether it is there or not."""
    return Checkpoint(run.checkpoints / f"checkpoint-{step}", step)


def checkpoints_of(run: RunDir) -> list[Checkpoint]:
    """What stands in the run's folder under a checkpoint's name, newest first."""
    if not run.checkpoints.is_dir():
        return []
    names = [found for entry in run.checkpoints.iterdir() if (found := _NAME.fullmatch(entry.name))]
    return [checkpoint_at(run, step) for step in sorted({int(found[1]) for found in names}, reverse=True)]


@contextmanager
def written_whole(folder: Path, facts: Callable[[], Mapping[str, Any]] | None = None) -> Iterator[Path]:
    """Yield an empty folder to write into, which becomes `folder` when all of it is on the disk, or leaves no trace.

    Args:
        folder: replaced if it is there.
        facts: asked when the block has ended; go into a manifest, beside sizes and hashes of all files.
            None: no manifest.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = _aside(folder)
    aside.mkdir()
    try:
        yield aside
        files = [path for path in sorted(aside.rglob("*")) if path.is_file()]
        for path in files:
            sync(path)
        if facts is not None:
            listed = {path.relative_to(aside).as_posix(): _identity(path) for path in files}
            write_json(aside / MANIFEST, {"facts": dict(facts()), "files": listed})
        sync_folder(aside)
        remove_whole(folder)
        aside.rename(folder)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def remove_whole(folder: Path) -> None:
    """Remove a folder so that a kill on the way leaves all of it or nothing under its name."""
    if folder.exists():
        aside = _aside(folder)
        folder.rename(aside)
        shutil.rmtree(aside)


def damage(folder: Path) -> str | None:
    """Why the folder is not what was written, in words; None: every byte is as the manifest says."""
    try:
        files = read_json(folder / MANIFEST)["files"]
        for name, (size, sha256) in files.items():
            path = folder / name
            if not path.is_file():
                return f"{name} is missing"
            found = path.stat().st_size
            if found != size:
                return f"{name} has {found:,} of {size:,} bytes" if found < size else f"{name} has grown"
            if file_sha256(path) != sha256:
                return f"{name} was changed after it was written"
    except (FtxError, OSError, KeyError, TypeError, ValueError, AttributeError):
        return f"its {MANIFEST} is missing or damaged"
    return None


def usable_checkpoint(run: RunDir, *, with_best: bool) -> Choice:
    """The newest checkpoint that is whole.

    Args:
        run: where to look.
        with_best: whether the best checkpoint so far must be whole too, because the run will end with its weights.
    """
    skipped: list[str] = []
    for checkpoint in checkpoints_of(run):
        wrong = damage(checkpoint.path)
        facts = {} if wrong else read_json(checkpoint.path / MANIFEST)["facts"]
        if not wrong and with_best and facts.get("best_step") not in (None, checkpoint.step):
            best = checkpoint_at(run, facts["best_step"])
            wrong_there = damage(best.path)
            wrong = f"it counts on {best.name}, and there {wrong_there}" if wrong_there else None
        if not wrong:
            return Choice(checkpoint, facts, tuple(skipped))
        skipped.append(f"{checkpoint.name}: {wrong}")
    return Choice(None, {}, tuple(skipped))


def keep_newest(run: RunDir, limit: int, best_step: int | None) -> None:
    """Remove the oldest checkpoints beyond `limit`, but neither the newest nor the best."""
    found = checkpoints_of(run)
    kept = {found[0].step, best_step} if found else set()
    kept &= {checkpoint.step for checkpoint in found}
    for checkpoint in found:
        if checkpoint.step not in kept and len(kept) < limit:
            kept.add(checkpoint.step)
    for checkpoint in found:
        if checkpoint.step not in kept:
            remove_whole(checkpoint.path)


def sweep_up(run: RunDir) -> None:
    """Remove what a killed process was writing or removing."""
    for left in run.checkpoints.glob(f".*{_ASIDE}") if run.checkpoints.is_dir() else []:
        shutil.rmtree(left, ignore_errors=True)


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.{secrets.token_hex(4)}{_ASIDE}")


def _identity(path: Path) -> tuple[int, str]:
    return path.stat().st_size, file_sha256(path)


def sync(path: Path) -> None:
    """Wait until the disk has a file."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
