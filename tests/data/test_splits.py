"""The split is frozen by content: no seed, no order and no added row moves a row."""

import json
from pathlib import Path

import pytest

from ftx.config.schema import DataConfig
from ftx.data.rows import Row
from ftx.data.splits import content_hashes, overlaps, prompt_key, read_splits, split_by_prompt
from ftx.errors import DataError


def row(prompt: str, completion: str = "x", where: str = "f:1") -> Row:
    return Row("prompt_completion", where, prompt, completion)


ROWS = [row(f"prompt {number}") for number in range(200)]


def write(path: Path, prompts: list[str]) -> str:
    path.write_text("".join(json.dumps({"prompt": p, "completion": "x"}) + "\n" for p in prompts))
    return str(path)


def test_the_fraction_is_about_met() -> None:
    train, held_out = split_by_prompt(ROWS, 0.25, seed=0)
    assert len(train) + len(held_out) == 200
    assert 35 <= len(held_out) <= 65


def test_adding_and_reordering_rows_moves_no_old_row() -> None:
    _, before = split_by_prompt(ROWS, 0.25, seed=0)
    more = [row(f"other {number}") for number in range(50)] + ROWS[::-1]
    _, after = split_by_prompt(more, 0.25, seed=0)
    assert {r.context for r in before} == {r.context for r in after if str(r.context).startswith("prompt")}


def test_another_split_seed_is_another_split() -> None:
    assert split_by_prompt(ROWS, 0.25, seed=0)[1] != split_by_prompt(ROWS, 0.25, seed=1)[1]


def test_duplicates_stay_on_one_side_also_when_spacing_differs() -> None:
    rows = [row(f"question {number % 10}" + " " * (number % 3), str(number)) for number in range(20)]
    train, held_out = split_by_prompt(rows, 0.5, seed=0)
    assert len(train) + len(held_out) == 20
    assert not {prompt_key(r) for r in train} & {prompt_key(r) for r in held_out}


def test_an_empty_side_is_refused_with_the_remedy() -> None:
    with pytest.raises(DataError, match=r"data\.eval_fraction=0\.01 .* leaves 2 training and 0 validation rows of 2"):
        split_by_prompt(ROWS[:2], 0.01, seed=0)


def test_a_chat_is_known_by_everything_before_its_last_turn() -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    other = [turns[0], {"role": "assistant", "content": "c"}]
    assert prompt_key(Row("messages", "f:1", turns, [])) == prompt_key(Row("messages", "f:2", other, []))


def test_overlap_is_counted_and_shown() -> None:
    (overlap,) = overlaps(
        {"train": [row("a", where="t:1"), row("b")], "validation": [row("a ", where="v:1"), row("c")]}
    )
    assert overlap.in_words() == "1 of 2 validation prompts are also in train: v:1 = t:1"


def test_content_hashes_with_and_without_order() -> None:
    one, other = content_hashes([row("a"), row("b")]), content_hashes([row("b"), row("a")])
    assert one["any_order"] == other["any_order"]
    assert one["ordered"] != other["ordered"]
    assert content_hashes([row("a")])["any_order"] != content_hashes([row("a"), row("a")])["any_order"]


def test_files_of_ones_own(tmp_path: Path) -> None:
    config = DataConfig(
        source="file",
        path=write(tmp_path / "train.jsonl", ["a", "b", "c"]),
        eval_path=write(tmp_path / "eval.jsonl", ["d"]),
        test_path=write(tmp_path / "test.jsonl", ["e"]),
        max_examples=2,
    )
    splits = read_splits(config)
    assert [r.context for r in splits.train] == ["a", "b"]
    assert splits.record["train_examples"] == 2
    assert splits.record["validation_examples"] == splits.record["test_examples"] == 1
    assert splits.record["split"] == {"fraction": None, "seed": None}
    assert [file["rows"] for file in splits.record["files"]] == [3, 1, 1]


def test_overlap_is_refused_unless_allowed(tmp_path: Path) -> None:
    config = DataConfig(
        source="file",
        path=write(tmp_path / "train.jsonl", ["a", "b"]),
        eval_path=write(tmp_path / "eval.jsonl", ["b  ", "d"]),
    )
    with pytest.raises(DataError, match=r"1 of 2 validation prompts are also in train.*\n.*data\.allow_overlap=true"):
        read_splits(config)
    config.allow_overlap = True
    assert len(read_splits(config).record["overlap"]) == 1


def test_a_small_overlap_is_said_and_recorded_but_can_be_refused(tmp_path: Path) -> None:
    config = DataConfig(
        source="file",
        path=write(tmp_path / "train.jsonl", ["a", "b"]),
        eval_path=write(tmp_path / "eval.jsonl", ["a", *(f"other {number}" for number in range(19))]),
    )
    assert read_splits(config).record["overlap"][0].startswith("1 of 20 validation prompts are also in train")
    config.allow_overlap = False
    with pytest.raises(DataError, match="1 of 20 validation prompts are also in train"):
        read_splits(config)


def test_the_bundled_data_is_what_it_says() -> None:
    splits = read_splits(DataConfig(source="bundled", name="orders"))
    assert {name: len(rows) for name, rows in splits.by_name().items()} == {
        "train": 156,
        "validation": 31,
        "test": 64,
    }
    assert splits.record["path"] == "orders/train.jsonl"
    assert splits.record["overlap"] == []


@pytest.mark.train
def test_a_data_set_that_the_datasets_library_loads(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    named = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "name": "x"}]
    lines = [{"messages": named}]
    lines += [{"messages": [{"role": "user", "content": f"q{n}"}, named[1] | {"content": "c"}]} for n in range(19)]
    for line in lines[1:]:
        del line["messages"][1]["name"]
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    splits = read_splits(DataConfig(source="hub", name=str(folder), eval_fraction=0.5))
    rows = splits.train + splits.validation
    assert len(rows) == 20
    assert sum("name" in turn for r in rows for turn in r.context) == 1
