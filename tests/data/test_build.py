"""From files to stored token ids: bad rows named or skipped, sides by content, everything counted in the record."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ftx.config.schema import DataConfig
from ftx.data import build
from ftx.data.build import Builder
from ftx.data.render import Encoder
from ftx.data.rows import Row
from ftx.data.sources import sources_of
from ftx.data.splits import prompts_of, side_position
from ftx.data.store import Store
from ftx.errors import DataError

pytestmark = pytest.mark.train

GOOD = {"prompt": "a", "completion": "b"}
TURNS = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
FORBIDDEN = {"messages": [{"role": "narrator", "content": "a"}, *TURNS]}  # the bundled template raises
REFUSED = (
    "the chat template refuses the turns narrator, user, assistant: unknown role: narrator",
    "the chat template refuses the turns",
)


class Built:
    """A build in a folder: what is recorded, and what is stored."""

    def __init__(self, config: DataConfig, tokenizer: Any, folder: Path) -> None:
        folder.mkdir()
        sources = sources_of(config)
        hashes = [source.records.sha256() for source in sources]
        self.record = Builder(config, Encoder(tokenizer, {}, "auto"), folder).build(sources, hashes)
        self.stores = {path.stem: Store(path) for path in folder.iterdir()}

    def places(self, split: str) -> list[str]:
        store = self.stores[split]
        return [store.row(number).where.rpartition("/")[2] for number in range(len(store))]

    def texts(self, split: str, tokenizer: Any) -> list[str]:
        store = self.stores[split]
        return [tokenizer.decode(store.row(number).input_ids) for number in range(len(store))]


@pytest.fixture
def built(tmp_path: Path, tokenizer: Any) -> Callable[..., Built]:
    def call(config: DataConfig) -> Built:
        return Built(config, tokenizer, tmp_path / f"built-{len(list(tmp_path.iterdir()))}")

    return call


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def call(name: str, *records: Any) -> str:
        """JSON lines; text stands for itself."""
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        return str(tmp_path / name)

    return call


@pytest.fixture
def validation(write: Callable[..., str]) -> str:
    return write("validation.jsonl", {"prompt": "validation", "completion": "b"})


def prompts(*names: str) -> list[dict[str, str]]:
    return [{"prompt": name, "completion": "x"} for name in names]


def is_held_out(prompt: str, fraction: float, seed: int = 0) -> bool:
    row = Row("prompt_completion", "", prompt, "x")
    return side_position(row, prompts_of(row, "auto"), seed) < fraction


def test_bad_rows_are_all_refused_with_the_first_twenty_in_words(
    built: Callable[..., Built], write: Callable[..., str], validation: str
) -> None:
    bad = [*[{"prompt": "a", "completion": 1}] * 30, '{"prompt": "a", "completion": "b"},', {"prompt": "a"}, [1]]
    path = write("rows.jsonl", GOOD, *bad, GOOD)
    with pytest.raises(DataError) as caught:
        built(DataConfig(path=path, eval_path=validation))
    lines = str(caught.value).splitlines()
    assert lines[:20] == [f"{path}:{number}: completion is a number (1), expected text" for number in range(2, 22)]
    assert lines[20:] == [
        "... and 13 more bad rows",
        "33 of 35 rows cannot be used: 30 x completion is not text, 1 x not JSON, 1 x no field completion, "
        "1 x not an object",
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        pytest.param(
            [GOOD, GOOD, {"prompt": "a", "completion": 7}],
            ":3: completion is a number (7), expected text",
            id="a value changes type on line 3",
        ),
        pytest.param(
            [GOOD, "", GOOD, json.dumps(GOOD) + ","],
            ":4: not JSON: Extra data at column 35",
            id="a trailing comma on line 4",
        ),
        pytest.param(
            [json.dumps([GOOD, GOOD], indent=1)],
            " holds a JSON array; expected one JSON object a line: rename it to .json",
            id="a JSON array",
        ),
        pytest.param(
            [GOOD, {"messages": TURNS}],
            ":2: is a row of chat turns in a file of prompt and completion: put them into files of their own",
            id="another kind of row",
        ),
        pytest.param([{"messages": TURNS}, FORBIDDEN], f":2: {REFUSED[0]}", id="turns that the template refuses"),
        pytest.param([], " has no rows", id="no lines"),
        pytest.param(["", " "], " has no rows", id="blank lines"),
    ],
)
def test_one_fault_is_one_line(
    built: Callable[..., Built], write: Callable[..., str], validation: str, lines: list[Any], message: str
) -> None:
    path = write("rows.jsonl", *lines)
    with pytest.raises(DataError) as caught:
        built(DataConfig(path=path, eval_path=validation))
    assert str(caught.value) == path + message


@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"prompt": "a", "completion": ""}, "completion is empty"),
        ({"prompt": "a", "completion": " \t"}, "completion is empty"),
        ({"prompt": "a"}, "no field completion"),
        ({"messages": TURNS[:1]}, "messages has no assistant turn"),
        (FORBIDDEN, "the chat template refuses the turns"),
    ],
    ids=["empty", "white space", "no key", "no answer", "refused by the template"],
)
def test_nothing_trainable_is_refused_with_counts(
    built: Callable[..., Built], write: Callable[..., str], validation: str, on_bad_row: str, row: Any, kind: str
) -> None:
    path = write("rows.jsonl", *[row] * 25)
    with pytest.raises(DataError) as caught:
        built(DataConfig(path=path, eval_path=validation, on_bad_row=on_bad_row))
    assert str(caught.value).splitlines()[-1] == f"25 of 25 rows cannot be used: 25 x {kind}"


def test_a_file_that_is_bad_altogether_is_refused_beside_good_ones(
    built: Callable[..., Built], write: Callable[..., str], validation: str
) -> None:
    path = write("bad.jsonl", {"prompt": "a"})
    with pytest.raises(DataError, match=r"bad\.jsonl:1: has no field completion$"):
        built(DataConfig(path=[write("good.jsonl", GOOD), path], eval_path=validation, on_bad_row="skip"))


MIXED = [{"messages": TURNS}, FORBIDDEN, "{", {"messages": TURNS}, {"messages": []}, FORBIDDEN, {"messages": TURNS}]


@pytest.mark.parametrize("order", [[0, 1, 3, 5], [5, 0, 3, 1]], ids=["as they are", "mixed"])
def test_all_rows_that_the_template_refuses_are_named(
    built: Callable[..., Built], write: Callable[..., str], validation: str, order: list[int]
) -> None:
    path = write("rows.jsonl", *(MIXED[at] for at in order))
    with pytest.raises(DataError) as caught:
        built(DataConfig(path=path, eval_path=validation))
    *shown, counts = str(caught.value).splitlines()
    assert shown == [f"{path}:{number}: {REFUSED[0]}" for number, at in enumerate(order, start=1) if at in (1, 5)]
    assert counts == "2 of 4 rows cannot be used: 2 x the chat template refuses the turns"


def test_behind_a_row_that_cannot_be_read_nothing_is_tokenised_and_that_is_said(
    built: Callable[..., Built], write: Callable[..., str], validation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_BATCH", 2)
    path = write("rows.jsonl", *MIXED)
    with pytest.raises(DataError) as caught:
        built(DataConfig(path=path, eval_path=validation))
    *shown, counts, rest = str(caught.value).splitlines()
    assert sorted(shown) == [
        f"{path}:2: {REFUSED[0]}",
        f"{path}:3: not JSON: Expecting property name enclosed in double quotes at column 2",
        f"{path}:5: messages has no turns",
    ]
    assert counts.startswith("3 of 7 rows cannot be used: 1 x the chat template refuses the turns, 1 x ")
    assert rest == "The chat template was not tried on the last rows, behind the first of these."


def test_skipped_rows_are_counted_by_kind_and_the_rest_is_used(
    built: Callable[..., Built], write: Callable[..., str], validation: str
) -> None:
    made = built(DataConfig(path=write("rows.jsonl", *MIXED, ""), eval_path=validation, on_bad_row="skip"))
    assert made.places("train") == ["rows.jsonl:1", "rows.jsonl:4", "rows.jsonl:7"]
    file = made.record["files"][0]
    assert (file["rows"], file["blank_lines"]) == (7, 1)
    assert file["bad_rows"]["count"] == 4
    assert file["bad_rows"]["kinds"] == {REFUSED[1]: 2, "not JSON": 1, "messages has no turns": 1}
    assert len(file["bad_rows"]["shown"]) == 4
    assert made.record["files"][1]["bad_rows"] == {"count": 0, "kinds": {}, "shown": []}


def test_only_twenty_skipped_rows_are_kept_in_words(
    built: Callable[..., Built], write: Callable[..., str], validation: str
) -> None:
    path = write("rows.jsonl", GOOD, *[{"prompt": "a"}] * 33)
    file = built(DataConfig(path=path, eval_path=validation, on_bad_row="skip")).record["files"][0]
    assert file["bad_rows"]["count"] == 33
    assert file["bad_rows"]["shown"] == [f"{path}:{number}: has no field completion" for number in range(2, 22)]


def test_every_file_is_recorded_with_the_hash_of_its_bytes(
    built: Callable[..., Built], write: Callable[..., str]
) -> None:
    names = {"one.jsonl": ["a", "b"], "two.jsonl": ["c"], "validation.jsonl": ["d"], "test.jsonl": ["e", "f"]}
    paths = [write(name, *prompts(*some)) for name, some in names.items()]
    made = built(DataConfig(path=paths[:2], eval_path=paths[2], test_path=paths[3]))
    splits = ("train", "train", "validation", "test")
    assert made.record["files"] == [
        {
            "split": split,
            "path": path,
            "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest(),
            "revision": None,
            "rows": len(some),
            "snapshot": None,
            "blank_lines": 0,
            "bad_rows": {"count": 0, "kinds": {}, "shown": []},
        }
        for split, path, some in zip(splits, paths, names.values(), strict=True)
    ]
    assert made.record["split"] == {"fraction": None, "seed": None, "group_by": None}
    assert made.places("train") == ["one.jsonl:1", "one.jsonl:2", "two.jsonl:1"]
    assert made.stores["train"].column("file").tolist() == [0, 0, 1]
    assert made.record["overlap"] == []
    assert list(made.record["content"]) == ["train", "validation", "test"]


def test_a_fraction_is_held_out_of_all_training_files(built: Callable[..., Built], write: Callable[..., str]) -> None:
    names = [f"prompt {number}" for number in range(100)]
    paths = [write("one.jsonl", *prompts(*names[:60])), write("two.jsonl", *prompts(*names[60:]))]
    made = built(DataConfig(path=paths, eval_fraction=0.2, split_seed=3))
    held_out = [is_held_out(name, 0.2, seed=3) for name in names]
    places = [f"one.jsonl:{number}" for number in range(1, 61)] + [f"two.jsonl:{number}" for number in range(1, 41)]
    for split, wanted in (("validation", True), ("train", False)):
        assert made.places(split) == [place for place, held in zip(places, held_out, strict=True) if held is wanted]
    assert made.record["split"] == {"fraction": 0.2, "seed": 3, "group_by": None}


def test_duplicates_stay_on_one_side(built: Callable[..., Built], write: Callable[..., str]) -> None:
    names = [f"question {number}" for number in range(10)]
    doubled = [name + " " * (number < 4) for number, name in enumerate(names)]
    made = built(DataConfig(path=write("rows.jsonl", *prompts(*names, *doubled)), eval_fraction=0.2, split_seed=8))
    # By hand: of the ten questions only 3, which has a twin with a trailing space, and 6 are below 0.2.
    assert [number for number, name in enumerate(names) if is_held_out(name, 0.2, seed=8)] == [3, 6]
    assert made.places("validation") == [f"rows.jsonl:{number}" for number in (4, 7, 14, 17)]
    assert len(made.stores["train"]) == 16
    assert made.record["overlap"] == []
    assert made.record["repeats"] == {"train": {"prompts": 8, "rows": 5}, "validation": {"prompts": 2, "rows": 1}}


def test_adding_rows_moves_no_old_row(built: Callable[..., Built], write: Callable[..., str], tokenizer: Any) -> None:
    old, new = [f"old {number}" for number in range(60)], [f"new {number}" for number in range(40)]
    before = built(DataConfig(path=write("before.jsonl", *prompts(*old)), eval_fraction=0.3))
    after = built(DataConfig(path=write("after.jsonl", *prompts(*new, *reversed(old))), eval_fraction=0.3))
    for split in ("train", "validation"):
        texts = {text for text in after.texts(split, tokenizer) if "old" in text}
        assert texts == set(before.texts(split, tokenizer))


def test_groups_stay_on_one_side_and_other_splits_need_none(
    built: Callable[..., Built], write: Callable[..., str]
) -> None:
    rows = [{**GOOD, "prompt": f"prompt {number}", "doc": number % 12} for number in range(60)]
    path, test = write("rows.jsonl", *rows), write("test.jsonl", {**GOOD, "prompt": "test"})
    made = built(DataConfig(path=path, test_path=test, eval_fraction=0.3, group_by="doc"))
    docs = {
        split: {(int(place.rpartition(":")[2]) - 1) % 12 for place in made.places(split)}
        for split in ("train", "validation")
    }
    assert docs["train"] | docs["validation"] == set(range(12))
    assert docs["train"] & docs["validation"] == set()
    assert made.record["split"] == {"fraction": 0.3, "seed": 0, "group_by": "doc"}


def test_prompts_that_two_groups_share_are_an_overlap(built: Callable[..., Built], write: Callable[..., str]) -> None:
    path = write("rows.jsonl", *({"prompt": "same", "completion": "x", "doc": number} for number in range(30)))
    made = built(DataConfig(path=path, eval_fraction=0.3, split_seed=5, group_by="doc"))
    held_out, kept = made.places("validation"), made.places("train")
    # Groups 0, 3, 5, 6, 21, 22 and 28 by hand; the first row is held out, and training is named first all the same.
    assert held_out == [f"rows.jsonl:{number}" for number in (1, 4, 6, 7, 22, 23, 29)]
    (overlap,) = made.record["overlap"]
    assert (overlap["first"], overlap["second"]) == ("train", "validation")
    assert (overlap["rows"], overlap["of"]) == (len(held_out), len(held_out))
    folder = Path(path).parent
    assert overlap["shown"] == [f"{folder}/{place} = {folder}/{kept[0]}" for place in held_out[:3]]


def test_the_evaluation_file_may_not_be_the_training_file(
    built: Callable[..., Built], write: Callable[..., str]
) -> None:
    path = write("rows.jsonl", *prompts("a", "b", "c", "d"))
    made = built(DataConfig(path=path, eval_path=path))
    assert made.record["overlap"] == [
        {
            "first": "train",
            "second": "validation",
            "rows": 4,
            "of": 4,
            "shown": [f"{path}:{number} = {path}:{number}" for number in (1, 2, 3)],
        }
    ]


@pytest.mark.parametrize(("fraction", "held_out"), [(0.0001, 0), (0.9999, 3)], ids=["nothing held out", "all held out"])
def test_an_empty_side_is_refused_with_the_remedy(
    built: Callable[..., Built], write: Callable[..., str], fraction: float, held_out: int
) -> None:
    with pytest.raises(DataError) as caught:
        built(DataConfig(path=write("rows.jsonl", *prompts("a", "b", "c")), eval_fraction=fraction))
    assert str(caught.value) == (
        f"data.eval_fraction={fraction} with data.split_seed=0 leaves {3 - held_out} training and {held_out} "
        "validation rows of 3: give data.eval_path, or another fraction or split seed"
    )


CLEAN = "".join(json.dumps({"prompt": f"é {n}", "completion": f"b {n}"}, ensure_ascii=False) + "\n" for n in range(3))


@pytest.mark.parametrize(
    ("content", "blank_lines"),
    [
        (b"\xef\xbb\xbf" + CLEAN.encode(), 0),
        (CLEAN.replace("\n", "\r\n").encode(), 0),
        (CLEAN.replace("\n", "\n\n \r\n").encode(), 6),
        (CLEAN.rstrip("\n").encode(), 0),
    ],
    ids=["BOM", "CRLF", "blank lines", "no last newline"],
)
def test_line_ends_change_no_token(
    built: Callable[..., Built],
    write: Callable[..., str],
    tmp_path: Path,
    validation: str,
    content: bytes,
    blank_lines: int,
) -> None:
    clean = built(DataConfig(path=write("clean.jsonl", *CLEAN.splitlines()), eval_path=validation))
    (tmp_path / "other.jsonl").write_bytes(content)
    other = built(DataConfig(path=str(tmp_path / "other.jsonl"), eval_path=validation))
    columns = ["input_ids", "spans", "reference"]
    assert other.stores["train"].table(columns) == clean.stores["train"].table(columns)
    assert other.record["content"] == clean.record["content"]
    assert other.record["files"][0]["blank_lines"] == blank_lines


def save_parquet(path: Path, records: list[Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(records), path)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_key_that_one_row_lacks_is_not_rendered_as_null(
    built: Callable[..., Built], tmp_path: Path, tokenizer: Any, validation: str, suffix: str
) -> None:
    call = {"role": "assistant", "content": "c", "tool_calls": [{"name": "c"}]}
    records = [{"messages": [TURNS[0], call], "tools": [{"name": "f"}]}, {"messages": TURNS}]
    # A template that shows each key there is.
    tokenizer.chat_template = (
        "{%- if tools is not none -%}{{- tools -}}{%- endif -%}{%- for message in messages -%}"
        "{%- for name in message -%}{{- name + ' ' -}}{%- endfor -%}{{- message.content + '<|end|>' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- 'role content ' -}}{%- endif -%}"
    )
    texts = {}
    for name, some in (("both", records), ("alone", records[1:])):
        path = tmp_path / f"{name}{suffix}"
        if suffix == ".parquet":
            save_parquet(path, some)
        else:
            path.write_text("".join(json.dumps(record) + "\n" for record in some))
        made = Built(DataConfig(path=str(path), eval_path=validation), tokenizer, tmp_path / f"{name}-{suffix}")
        texts[name] = made.texts("train", tokenizer)
    assert texts["alone"] == ["role content a<|end|>role content b<|end|>"]
    assert texts["both"][1:] == texts["alone"]


def test_what_may_surprise_is_counted_by_split(
    built: Callable[..., Built], write: Callable[..., str], validation: str
) -> None:
    path = write("rows.jsonl", GOOD, *prompts("a<|end|>", "<|user|>b"))
    assert built(DataConfig(path=path, eval_path=validation)).record["remarks"] == {
        "train": {"control": 2},
        "validation": {},
    }


def test_a_file_that_is_no_longer_what_was_hashed_is_refused(
    write: Callable[..., str], validation: str, tokenizer: Any, tmp_path: Path
) -> None:
    config = DataConfig(path=write("rows.jsonl", GOOD), eval_path=validation)
    sources = sources_of(config)
    hashes = [source.records.sha256() for source in sources]
    write("rows.jsonl", GOOD, GOOD)
    (tmp_path / "built").mkdir()
    with pytest.raises(DataError, match=r"rows\.jsonl was changed while it was read; start again"):
        Builder(config, Encoder(tokenizer, {}, "auto"), tmp_path / "built").build(sources, hashes)
