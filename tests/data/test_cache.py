"""An entry is built once, used whole or not at all, and the cache stays within its bounds."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ftx.data.cache import Cache, Entry, built_aside, cache_root
from ftx.data.render import TokenizedRow
from ftx.data.store import Stored, StoreWriter
from ftx.errors import DataError

ROOMY = 1 << 30


def key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


class Building:
    """Builds one split of one row, and counts how often; or fails with `error`."""

    def __init__(self, token: int = 7, error: Exception | None = None) -> None:
        self.times = 0
        self._token = token
        self._error = error

    def __call__(self, folder: Path) -> dict[str, Any]:
        self.times += 1
        writer = StoreWriter(folder / "train.arrow")
        writer.write([Stored(TokenizedRow("f:1", [1, self._token], ((1, 2),), 1, 1, "x"), 0, 0.5)])
        writer.close()
        if self._error is not None:
            raise self._error
        return {"rows": 1}


def token_of(entry: Entry) -> int:
    assert entry.record == {"rows": 1}
    assert list(entry.stores) == ["train"]
    return entry.stores["train"].row(0).input_ids[1]


def kept(root: Path) -> set[str]:
    """What lies in the cache beside its locks."""
    return {path.name for path in root.iterdir()} - {"locks"}


def used(root: Path, name: str, seconds_ago: float) -> None:
    at = time.time() - seconds_ago
    os.utime(root / key(name) / "entry.json", (at, at))


def test_a_second_use_builds_nothing(tmp_path: Path) -> None:
    build = Building()
    entries = [Cache(tmp_path, ROOMY).entry(key("a"), build) for _ in range(2)]
    assert [token_of(entry) for entry in entries] == [7, 7]
    assert [entry.aside for entry in entries] == [None, None]
    assert build.times == 1
    assert kept(tmp_path) == {key("a")}


def test_another_key_is_another_entry(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "not" / "there", ROOMY)
    assert token_of(cache.entry(key("a"), Building(7))) == 7
    assert token_of(cache.entry(key("b"), Building(8))) == 8
    assert token_of(cache.entry(key("a"), Building(9))) == 7


def flip(path: Path) -> None:
    """One bit of a token id, which Arrow does not notice."""
    before, after = ((1).to_bytes(4, "little") + token.to_bytes(4, "little") for token in (7, 6))
    content = path.read_bytes()
    assert content.count(before) == 1
    path.write_bytes(content.replace(before, after))


def change_record(path: Path) -> None:
    found = json.loads(path.read_text())
    del found["files"]
    path.write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        pytest.param("train.arrow", flip, id="one bit"),
        pytest.param("train.arrow", lambda path: os.truncate(path, path.stat().st_size - 1), id="cut off"),
        pytest.param("train.arrow", lambda path: os.truncate(path, 0), id="empty"),
        pytest.param("train.arrow", Path.unlink, id="missing"),
        pytest.param("entry.json", Path.unlink, id="no record"),
        pytest.param("entry.json", lambda path: os.truncate(path, 9), id="half a record"),
        pytest.param("entry.json", lambda path: path.write_text("[]"), id="another record"),
        pytest.param("entry.json", change_record, id="a record without its files"),
    ],
)
def test_a_damaged_entry_is_built_again(tmp_path: Path, name: str, damage: Callable[[Path], object]) -> None:
    cache, again = Cache(tmp_path, ROOMY), Building(8)
    cache.entry(key("a"), Building(7))
    damage(tmp_path / key("a") / name)
    entries = [cache.entry(key("a"), again) for _ in range(2)]
    assert [token_of(entry) for entry in entries] == [8, 8]
    assert again.times == 1
    assert kept(tmp_path) == {key("a")}


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="bad rows"):
        Cache(tmp_path, ROOMY).entry(key("a"), Building(error=DataError("bad rows")))
    assert kept(tmp_path) == set()
    assert token_of(Cache(tmp_path, ROOMY).entry(key("a"), Building(8))) == 8


@pytest.fixture
def size(tmp_path: Path) -> int:
    """Bytes of one entry."""
    root = tmp_path / "measured"
    Cache(root, ROOMY).entry(key("a"), Building())
    total = sum(path.stat().st_size for path in (root / key("a")).iterdir())
    shutil.rmtree(root)
    return total


def test_what_was_used_longest_ago_goes_first(tmp_path: Path, size: int) -> None:
    root = tmp_path / "cache"
    cache = Cache(root, 2 * size)
    for name, seconds_ago in (("a", 300), ("b", 200)):
        cache.entry(key(name), Building())
        used(root, name, seconds_ago)
    cache.entry(key("a"), Building())  # used again: b is now the older one
    cache.entry(key("c"), Building())
    assert kept(root) == {key("a"), key("c")}


def test_the_bound_may_be_met_exactly(tmp_path: Path, size: int) -> None:
    cache = Cache(tmp_path / "cache", 2 * size)
    for name in ("a", "b"):
        cache.entry(key(name), Building())
    assert kept(tmp_path / "cache") == {key("a"), key("b")}


def test_the_entry_just_built_stays_whatever_its_size(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1)
    first = cache.entry(key("a"), Building(7))
    used(tmp_path, "a", -300)  # by a clock that is ahead
    assert token_of(cache.entry(key("b"), Building(8))) == 8
    assert kept(tmp_path) == {key("b")}
    assert token_of(first) == 7  # whoever has an entry open goes on reading it


def test_folders_that_are_not_the_caches_are_never_removed(tmp_path: Path) -> None:
    (tmp_path / "my data").mkdir()
    (tmp_path / "my data" / "rows.jsonl").write_text("x" * 10_000)
    (tmp_path / "notes.txt").write_text("x")
    Cache(tmp_path, 1).entry(key("a"), Building())
    assert kept(tmp_path) == {"my data", "notes.txt", key("a")}


@pytest.mark.parametrize("root", ["file", "file/below"])
def test_a_root_that_cannot_be_written_is_said_and_done_without(tmp_path: Path, root: str) -> None:
    (tmp_path / "file").write_text("x")
    build = Building()
    entry = Cache(tmp_path / root, ROOMY).entry(key("a"), build)
    assert token_of(entry) == 7
    assert entry.aside is not None
    assert entry.aside.startswith(f"{tmp_path / root} cannot be used (")
    assert entry.aside.endswith("): set FTX_CACHE=FOLDER")
    assert build.times == 1
    assert (tmp_path / "file").read_text() == "x"


def test_a_full_disk_is_said_and_done_without(tmp_path: Path) -> None:
    class Full(Building):
        def __call__(self, folder: Path) -> dict[str, Any]:
            if folder.is_relative_to(tmp_path / "cache"):
                raise OSError(28, "No space left on device")
            return super().__call__(folder)

    entry = Cache(tmp_path / "cache", ROOMY).entry(key("a"), Full())
    assert entry.aside == f"{tmp_path / 'cache'} cannot be used (No space left on device): set FTX_CACHE=FOLDER"
    assert token_of(entry) == 7
    assert kept(tmp_path / "cache") == set()


def test_what_is_built_aside_keeps_nothing(tmp_path: Path) -> None:
    build = Building()
    entries = [built_aside(build), built_aside(build, "why")]
    assert [token_of(entry) for entry in entries] == [7, 7]
    assert [entry.aside for entry in entries] == [None, "why"]
    assert build.times == 2
    assert list(tmp_path.iterdir()) == []


PROCESS = """
import os, signal, sys, time
from pathlib import Path
from ftx.data.cache import Cache, built_aside
from ftx.data.render import TokenizedRow
from ftx.data.store import Stored, StoreWriter

root, key, me, peers = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
rooms = root.parent

def build(folder):
    with (rooms / "built").open("a") as file:
        file.write(me + "\\n")
    until = time.monotonic() + 30
    while not all((rooms / peer).exists() for peer in peers) and time.monotonic() < until:
        time.sleep(0.01)
    writer = StoreWriter(folder / "train.arrow")
    writer.write([Stored(TokenizedRow(me, [1, 7], ((1, 2),), 1, 1, "x"), 0, 0.5)])
    if me == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.3)  # the peers are at the door
    writer.close()
    return {"rows": 1}

(rooms / me).touch()
entry = Cache(root, 1 << 30).entry(key, build)
assert entry.aside is None
print(entry.stores["train"].row(0).where)
"""


def started(root: Path, name: str, *peers: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROCESS, str(root), key("a"), name, *peers]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_that_want_the_same_entry_build_it_once(tmp_path: Path) -> None:
    processes = [started(tmp_path / "cache", me, "one", "other") for me in ("one", "other")]
    said = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    (builder,) = (tmp_path / "built").read_text().split()
    assert said == [builder, builder]
    assert kept(tmp_path / "cache") == {key("a")}


def test_what_a_killed_process_left_is_not_used_and_goes_in_time(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    killed = started(root, "killed")
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    (half_built,) = kept(root)
    build = Building(8)
    assert token_of(Cache(root, ROOMY).entry(key("a"), build)) == 8
    assert build.times == 1
    assert kept(root) == {half_built, key("a")}
    Cache(root, 1).entry(key("b"), Building())  # perhaps its process still builds it
    assert kept(root) == {half_built, key("b")}
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(root / half_built, (two_days_ago, two_days_ago))
    Cache(root, 1).entry(key("c"), Building())
    assert kept(root) == {key("c")}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"FTX_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a/data"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/ftx/data"),
        ({"XDG_CACHE_HOME": "", "HOME": "/c"}, "/c/.cache/ftx/data"),
    ],
    ids=["its own", "the desktop's", "home"],
)
def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str) -> None:
    for name in ("FTX_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_root() == Path(expected)
