"""A full disk: how the many writers say it, and room set aside to say why a run ended."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ftx.errors import FtxError
from ftx.record.checkpoints import checkpoints_of
from ftx.record.layout import RunDir

RESERVED_BYTES = 2**18
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What writers in other languages say of it: safetensors, torch's archive writer, the system.
_FULL_WORDS = ("storagefull", "no space left", "disk quota", "quotaexceeded", "file write failed", "unexpected pos")


class DiskFull(FtxError):
    """There is no room for what the run has to write."""


def disk_is_full(error: BaseException) -> bool:
    """Whether a writer, whatever it is written in, says that there is no room."""
    said = str(error).lower()
    return (isinstance(error, OSError) and error.errno in _FULL) or any(words in said for words in _FULL_WORDS)


@contextmanager
def full_disk_said(run: RunDir, what: str) -> Iterator[None]:
    """Turn every report of a full disk inside the block into DiskFull, in words."""
    try:
        yield
    except Exception as error:
        if not disk_is_full(error) or isinstance(error, DiskFull):
            raise
        raise DiskFull(
            f"no room for {what}: the disk of {run.path}, or a quota on it, is full; {remedy(run)}"
        ) from error


def remedy(run: RunDir) -> str:
    """What a person can do about it."""
    kept = checkpoints_of(run)
    stays = f"{kept[0].name} stays: " if kept else ""
    return f"{stays}make room, then resume={run.path}"


def set_aside(run: RunDir) -> None:
    """Keep some room for the last state of the record. OSError: there is none left."""
    # Not zeros, which a file system may keep without taking any room.
    run.reserve.write_bytes(os.urandom(RESERVED_BYTES))


def give_up_reserve(run: RunDir) -> None:
    """Free what was set aside."""
    with suppress(OSError):
        run.reserve.unlink(missing_ok=True)
