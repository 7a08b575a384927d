"""Where rows come from: bundled files, files of one's own, and what the `datasets` library loads."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftx.config.schema import DataConfig
from ftx.data.sources import HubSplit, sources_of
from ftx.errors import DataError

ASK = {"role": "user", "content": "a"}
RECORDS = [
    {"messages": [ASK, {"role": "assistant", "content": "b", "name": "x"}], "id": 1},
    {"messages": [ASK, {"role": "assistant", "content": "c"}]},
    {"messages": [ASK, {"role": "assistant", "content": "d", "calls": [{"f": {"x": 1}}, {"f": {"y": None}}]}]},
]
AS_THEY_ARE = [*RECORDS[:2], {"messages": [ASK, {"role": "assistant", "content": "d", "calls": [{"f": {"x": 1}}]}]}]

Loads = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loads:
    """A folder that `datasets` reads."""
    import datasets  # seconds

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "loaded")

    def call(name: str = "set", **splits: list[Any]) -> Path:
        (tmp_path / name).mkdir(exist_ok=True)
        for split, records in splits.items():
            lines = "".join(json.dumps(record) + "\n" for record in records)
            (tmp_path / name / f"{split}.jsonl").write_text(lines)
        return tmp_path / name

    return call


def test_the_bundled_set_has_three_splits() -> None:
    sources = sources_of(DataConfig(source="bundled", name="orders"))
    assert [(source.split, source.records.origin) for source in sources] == [
        ("train", "orders/train.jsonl"),
        ("validation", "orders/validation.jsonl"),
        ("test", "orders/test.jsonl"),
    ]
    assert [sum(1 for _ in source.records.records()) for source in sources] == [156, 31, 64]


def test_files_come_in_the_order_given_training_first() -> None:
    sources = sources_of(DataConfig(path=["b.jsonl", "a.csv.gz"], test_path="t.json", eval_path=["e.parquet"]))
    assert [(source.split, source.records.origin, source.path, source.revision) for source in sources] == [
        ("train", "b.jsonl", Path("b.jsonl"), None),
        ("train", "a.csv.gz", Path("a.csv.gz"), None),
        ("validation", "e.parquet", Path("e.parquet"), None),
        ("test", "t.json", Path("t.json"), None),
    ]


def test_a_file_in_ones_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a"}\n')
    (source,) = sources_of(DataConfig(path="~/rows.jsonl"))
    assert list(source.records.records()) == [("~/rows.jsonl:1", {"prompt": "a"})]


@pytest.mark.train
def test_rows_of_a_loaded_set_keep_exactly_their_keys(folder: Loads) -> None:
    name = str(folder(train=RECORDS))
    (source,) = sources_of(DataConfig(source="hub", name=name))
    found = list(source.records.records())
    assert [where for where, _ in found] == [f"{name}[train]:{number}" for number in (1, 2, 3)]
    # Of a null within a row nobody can tell whether Arrow put it there.
    assert [record for _, record in found[:2]] == AS_THEY_ARE[:2]
    assert found[2][1]["messages"][1]["calls"][0] == {"f": {"x": 1}}
    assert "name" not in found[2][1]["messages"][1]
    assert (source.revision, source.path, source.records.blank_lines) == (None, None, 0)


@pytest.mark.train
def test_splits_of_a_loaded_set_by_name(folder: Loads) -> None:
    name = str(folder(train=RECORDS, validation=RECORDS[:2], test=RECORDS[1:2]))
    sources = sources_of(
        DataConfig(source="hub", name=name, split="train[:2]", eval_split="validation", test_split="test")
    )
    assert [(source.split, source.records.origin) for source in sources] == [
        ("train", f"{name}[train[:2]]"),
        ("validation", f"{name}[validation]"),
        ("test", f"{name}[test]"),
    ]
    assert [sum(1 for _ in source.records.records()) for source in sources] == [2, 2, 1]


@pytest.mark.train
def test_the_hash_of_a_loaded_set_is_of_its_records_in_order(folder: Loads) -> None:
    def sha256(name: str, records: list[Any]) -> str:
        return HubSplit(str(folder(name, train=records)), "train", None).sha256()

    lines = "".join(json.dumps(record, sort_keys=True) + "\n" for record in RECORDS[:2])
    assert sha256("one", RECORDS[:2]) == hashlib.sha256(lines.encode()).hexdigest() == sha256("other", RECORDS[:2])
    assert sha256("reversed", RECORDS[1::-1]) != sha256("one", RECORDS[:2])


@pytest.mark.train
def test_a_folder_edited_in_place_is_loaded_again(folder: Loads) -> None:
    name = folder(train=[{"prompt": "a", "completion": "one"}])
    file = name / "train.jsonl"
    before, stat = HubSplit(str(name), "train", None), file.stat()
    folder(train=[{"prompt": "a", "completion": "two"}])
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    after = HubSplit(str(name), "train", None)
    assert [record["completion"] for _, record in after.records()] == ["two"]
    assert [record["completion"] for _, record in before.records()] == ["one"]
    assert before.sha256() != after.sha256()


@pytest.mark.train
def test_a_saved_split_is_its_records(folder: Loads, tmp_path: Path) -> None:
    rows = HubSplit(str(folder(train=[*RECORDS[:2], {"messages": [{**ASK, "content": "é\n"}]}])), "train", None)
    rows.save(tmp_path / "saved.jsonl")
    saved = [json.loads(line) for line in (tmp_path / "saved.jsonl").read_text("utf-8").splitlines()]
    assert saved == [record for _, record in rows.records()]
    assert "é" in (tmp_path / "saved.jsonl").read_text("utf-8")


@pytest.mark.train
def test_a_branch_is_resolved_once_and_its_commit_loaded_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import huggingface_hub

    asked, loaded = [], []

    class Hub:
        def dataset_info(self, name: str, revision: str | None) -> Any:
            asked.append((name, revision))
            return SimpleNamespace(sha=f"{len(asked)}" * 40)

    def load(name: str, *, revision: str, split: str, download_mode: str | None) -> list[Any]:
        loaded.append((name, revision, split, download_mode))
        return [{"prompt": "a"}]

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    monkeypatch.setattr(datasets, "load_dataset", load)
    sources = sources_of(DataConfig(source="hub", name="who/what", revision="main", test_split="test"))
    assert asked == [("who/what", "main")]
    assert loaded == [("who/what", "1" * 40, "train", None), ("who/what", "1" * 40, "test", None)]
    assert [source.revision for source in sources] == ["1" * 40] * 2


@pytest.mark.train
def test_a_set_that_cannot_be_had_is_refused_in_one_line(tmp_path: Path) -> None:
    code = (
        "from ftx.config.schema import DataConfig\n"
        "from ftx.data.sources import sources_of\n"
        "from ftx.errors import DataError\n"
        "try:\n    sources_of(DataConfig(source='hub', name='nobody/nothing', revision='main'))\n"
        "except DataError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("data.name=nobody/nothing, split train: cannot be loaded (ConnectionError: ")
    assert line.endswith("); check the name and the network, or use data=file with a local file")


@pytest.mark.train
def test_without_a_network_what_was_loaded_before_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody listens
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, revision, **__: [{"prompt": revision}])
    (source,) = sources_of(DataConfig(source="hub", name="who/what", revision="main"))
    assert source.revision is None
    assert list(source.records.records()) == [("who/what[train]:1", {"prompt": "main"})]


@pytest.mark.train
def test_a_split_that_is_not_there_is_refused_in_one_line(folder: Loads) -> None:
    with pytest.raises(DataError) as caught:
        sources_of(DataConfig(source="hub", name=str(folder(train=RECORDS)), eval_split="nope"))
    (line,) = str(caught.value).splitlines()
    assert "split nope: cannot be loaded (ValueError: " in line
