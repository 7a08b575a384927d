"""Copies of what was read, named by its content: whole, once, and refused where it is no longer what was read."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ftx.config.schema import DataConfig
from ftx.data.snapshot import keep_snapshots
from ftx.data.sources import Source, sources_of
from ftx.errors import DataError
from ftx.record.provenance import file_sha256


def read(sources: list[Source]) -> list[dict[str, Any]]:
    """Entries of the record, as far as copies go."""
    return [{"sha256": source.records.sha256(), "snapshot": None} for source in sources]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "outputs" / ".data"


@pytest.fixture
def sources(tmp_path: Path) -> list[Source]:
    """Three files, two of them of the same content."""
    (tmp_path / "train.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "again.JSONL").write_text('{"text": "a"}\n')
    (tmp_path / "test.csv.gz").write_bytes(gzip.compress(b"text\nb\n"))
    config = DataConfig(
        path=str(tmp_path / "train.jsonl"),
        eval_path=str(tmp_path / "again.JSONL"),
        test_path=str(tmp_path / "test.csv.gz"),
    )
    return sources_of(config)


def test_every_content_is_kept_once_under_its_hash(sources: list[Source], kept: Path) -> None:
    files = read(sources)
    keep_snapshots(sources, files, kept)
    text, packed = (file_sha256(str(sources[at].path)) for at in (0, 2))
    assert names(kept) == sorted([f"{text}.jsonl", f"{packed}.csv.gz"])
    assert [file["snapshot"] for file in files] == [
        str(kept / f"{text}.jsonl"),
        str(kept / f"{text}.jsonl"),
        str(kept / f"{packed}.csv.gz"),
    ]
    for source, file in zip(sources, files, strict=True):
        assert source.path is not None
        assert Path(file["snapshot"]).read_bytes() == source.path.read_bytes()


def test_a_copy_can_be_read_by_whom_the_folder_is_for(sources: list[Source], kept: Path) -> None:
    before = os.umask(0o022)
    try:
        keep_snapshots(sources, read(sources), kept)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in kept.iterdir()} == {0o644}


def test_what_is_there_is_not_copied_again(sources: list[Source], kept: Path) -> None:
    keep_snapshots(sources, read(sources), kept)
    before = {path.name: path.stat().st_ino for path in kept.iterdir()}
    files = read(sources)
    keep_snapshots(sources, files, kept)
    assert {path.name: path.stat().st_ino for path in kept.iterdir()} == before
    assert all(file["snapshot"] for file in files)


def test_a_copy_outlives_its_file(sources: list[Source], kept: Path) -> None:
    files = read(sources)
    keep_snapshots(sources, files, kept)
    assert sources[0].path is not None
    sources[0].path.write_text('{"text": "changed"}\n')
    later = read(sources)
    keep_snapshots(sources, later, kept)
    assert Path(files[0]["snapshot"]).read_text() == '{"text": "a"}\n'
    assert Path(later[0]["snapshot"]).read_text() == '{"text": "changed"}\n'
    assert len(names(kept)) == 3


def test_a_file_that_was_changed_since_is_refused_and_nothing_kept(sources: list[Source], kept: Path) -> None:
    files = read(sources)
    assert sources[0].path is not None
    sources[0].path.write_text('{"text": "b"}\n')
    with pytest.raises(DataError, match=r"train\.jsonl was changed after it was read; start again"):
        keep_snapshots(sources[:1], files[:1], kept)
    assert names(kept) == []


@pytest.mark.train
def test_a_loaded_set_is_kept_as_json_lines(tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets  # seconds

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "loaded")
    (tmp_path / "set").mkdir()
    records = [{"text": "a", "id": 1}, {"text": "é"}]
    file = tmp_path / "set" / "train.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    sources = sources_of(DataConfig(source="hub", name=str(tmp_path / "set")))
    files = read(sources)
    keep_snapshots(sources, files, kept)
    (copy,) = kept.iterdir()
    assert copy.name == f"{files[0]['sha256']}.jsonl"
    (again,) = sources_of(DataConfig(path=str(copy)))
    assert [record for _, record in again.records.records()] == records

    file.write_text('{"text": "other"}\n')
    with pytest.raises(DataError, match=r"set\[train\] was changed after it was read; start again"):
        keep_snapshots(sources_of(DataConfig(source="hub", name=str(tmp_path / "set"))), files, tmp_path / "later")
