"""The rows that a run gets: the same with and without a cache, never stale, and everything lost to limits said."""

import hashlib
import json
import os
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ftx.config.schema import ColumnsConfig, DataConfig
from ftx.data import build
from ftx.data import prepare as preparing
from ftx.data.cache import Cache
from ftx.data.findings import notes, refuse_problems
from ftx.data.prepare import PreparedData, prepare
from ftx.data.render import TokenizedRow
from ftx.data.rows import Row
from ftx.errors import ConfigError, DataError

pytestmark = pytest.mark.train

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def call(name: str, *records: Any) -> str:
        (tmp_path / name).write_text("".join(json.dumps(record) + "\n" for record in records))
        return str(tmp_path / name)

    return call


def words(number: int) -> str:
    """A text of so many tokens of the bundled tokenizer."""
    return " ".join(["is"] * number)


def row(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    """A row by its tokens; the template adds one before the prompt, two behind it, and one behind the completion."""
    return {"prompt": words(prompt), "completion": words(completion), **more}


VALIDATION = row(2, 2)  # 8 tokens, 3 of them supervised


@pytest.fixture
def validation(write: Write) -> str:
    return write("validation.jsonl", VALIDATION)


def found(data: PreparedData, grade: str) -> list[tuple[str, str]]:
    return [(finding.topic, finding.detail) for finding in data.findings if finding.grade == grade]


def text_of(data: PreparedData, tokenizer: Any) -> list[str]:
    return [tokenizer.decode(each.input_ids) for each in data.train]


def entries(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()} - {"locks"}


def test_the_bundled_data(tokenizer: Any, cache: Path) -> None:
    data = prepare(DataConfig(source="bundled", name="orders"), tokenizer, 512)
    assert data.test is not None
    assert (len(data.train), len(data.validation), len(data.test)) == (156, 31, 64)
    assert data.record["path"] == "orders/train.jsonl"
    assert {data.record[f"{name}_examples"] for name in ("train", "validation", "test")} == {156, 31, 64}
    assert data.record["overlap"] == []
    assert {finding.grade for finding in data.findings} == {"ok"}
    first = data.train[0]
    (begin, end), text = first.spans[0], tokenizer.decode(first.input_ids)
    assert text.startswith("<|user|>")
    assert tokenizer.decode(first.input_ids[begin:end]) == f"{first.reference}<|end|>"


@pytest.mark.parametrize("on_long", ["drop", "truncate"])
def test_a_cache_changes_nothing(tokenizer: Any, cache: Path, on_long: str) -> None:
    config = DataConfig(source="bundled", name="orders", max_seq_len=80, on_long=on_long)
    without = prepare(replace(config, cache_gb=0), tokenizer, None)
    assert not cache.exists()
    first, second = prepare(config, tokenizer, None), prepare(config, tokenizer, None)
    assert len(entries(cache)) == 1
    for data in (first, second):
        assert {name: list(split) for name, split in data.splits.items()} == {
            name: list(split) for name, split in without.splits.items()
        }
        assert data.record == without.record == json.loads(json.dumps(data.record))
        assert data.findings == without.findings


def test_what_is_cached_is_not_built_again(tokenizer: Any, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = DataConfig(source="bundled", name="orders")
    before = prepare(config, tokenizer, None)
    monkeypatch.setattr(build.Builder, "build", lambda *_: pytest.fail("built again"))
    assert list(prepare(config, tokenizer, None).train) == list(before.train)


ROWS = [{**row(3 + number, 3), "doc": number, "question": words(5 + number)} for number in range(20)]


@pytest.fixture
def config(write: Write, tokenizer: Any, cache: Path) -> DataConfig:
    """Rows of which a part is held out, in the cache."""
    config = DataConfig(path=write("rows.jsonl", *ROWS), eval_fraction=0.5)
    prepare(config, tokenizer, None)
    assert len(entries(cache)) == 1
    return config


@pytest.mark.parametrize(
    "changed",
    [
        {"columns": ColumnsConfig(prompt="question")},
        {"on_bad_row": "skip"},
        {"group_by": "doc"},
        {"eval_fraction": 0.4},
        {"split_seed": 1},
        {"template_kwargs": {"enable_thinking": False}},
        {"supervise": "all"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_decides_a_row_is_in_the_key(
    config: DataConfig, tokenizer: Any, cache: Path, changed: dict[str, Any]
) -> None:
    other = prepare(replace(config, **changed), tokenizer, None)
    assert len(entries(cache)) == 2
    without = prepare(replace(config, **changed, cache_gb=0), tokenizer, None)
    assert list(other.train) == list(without.train)


@pytest.mark.parametrize(
    "changed",
    [
        {"max_seq_len": 16},
        {"eval_max_seq_len": 16},
        {"on_long": "truncate"},
        {"max_dropped": 1.0},
        {"max_examples": 2},
        {"weights": [0.5]},
        {"allow_overlap": True},
        {"snapshot": True},
        {"cache_gb": 1.0},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_only_chooses_among_rows_shares_them(
    config: DataConfig, tokenizer: Any, cache: Path, changed: dict[str, Any]
) -> None:
    data = prepare(replace(config, **changed), tokenizer, 24)
    assert len(entries(cache)) == 1
    without = prepare(replace(config, **{**changed, "cache_gb": 0}), tokenizer, 24)
    assert list(data.train) == list(without.train)


def change_template(tokenizer: Any) -> None:
    tokenizer.chat_template = tokenizer.chat_template.replace("'<|' + message['role']", "'<|' + message['role'] + ' '")


def change_vocabulary(tokenizer: Any) -> None:
    tokenizer.add_tokens(["is is"])


def change_end(tokenizer: Any) -> None:
    tokenizer.eos_token = "<|user|>"


@pytest.mark.parametrize("change", [change_template, change_vocabulary, change_end])
def test_the_tokenizer_is_in_the_key(
    config: DataConfig, tokenizer: Any, cache: Path, change: Callable[[Any], None]
) -> None:
    change(tokenizer)
    other = prepare(config, tokenizer, None)
    assert len(entries(cache)) == 2
    assert list(other.train) == list(prepare(replace(config, cache_gb=0), tokenizer, None).train)


def test_the_code_and_the_libraries_are_in_the_key(
    config: DataConfig, tokenizer: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "LOADED_SOURCES", "0" * 64)
    prepare(config, tokenizer, None)
    assert len(entries(cache)) == 2
    monkeypatch.setattr(preparing, "package_versions", dict.fromkeys)
    prepare(config, tokenizer, None)
    assert len(entries(cache)) == 3


def test_the_name_by_which_rows_are_shown_is_in_the_key(config: DataConfig, tokenizer: Any, cache: Path) -> None:
    other = Path(str(config.path)).rename(Path(str(config.path)).with_name("renamed.jsonl"))
    data = prepare(replace(config, path=str(other)), tokenizer, None)
    assert {each.where.rpartition(":")[0] for each in data.train} == {str(other)}
    assert len(entries(cache)) == 2


def test_a_space_between_two_rows_is_in_the_key(config: DataConfig, tokenizer: Any, cache: Path) -> None:
    path = Path(str(config.path))
    path.write_text(path.read_text() + "\n")
    data = prepare(config, tokenizer, None)
    assert data.record["files"][0]["blank_lines"] == 1
    assert len(entries(cache)) == 2


def test_a_file_edited_in_place_is_read_again(write: Write, validation: str, tokenizer: Any, cache: Path) -> None:
    config = DataConfig(path=write("rows.jsonl", {"prompt": "a", "completion": "one"}), eval_path=validation)
    path = Path(str(config.path))
    before, stat = prepare(config, tokenizer, None), path.stat()
    write("rows.jsonl", {"prompt": "a", "completion": "two"})
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    after = prepare(config, tokenizer, None)
    assert text_of(before, tokenizer) == ["<|user|>a<|end|><|assistant|>one<|end|>"]
    assert text_of(after, tokenizer) == ["<|user|>a<|end|><|assistant|>two<|end|>"]
    assert after.record["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert before.record["sha256"] != after.record["sha256"]
    assert before.record["content"]["train"] != after.record["content"]["train"]


def test_a_file_edited_before_it_is_read_is_not_kept_as_what_it_was(
    write: Write, validation: str, tokenizer: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = DataConfig(path=write("rows.jsonl", row(2, 2)), eval_path=validation)
    usual = Cache.entry

    def edited(self: Cache, key: str, built: Any) -> Any:
        write("rows.jsonl", row(2, 3))
        return usual(self, key, built)

    monkeypatch.setattr(Cache, "entry", edited)
    with pytest.raises(DataError, match=r"rows\.jsonl was changed while it was read; start again"):
        prepare(config, tokenizer, None)
    assert entries(cache) == set()


def test_a_cache_that_cannot_be_used_is_a_note(
    write: Write, validation: str, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FTX_CACHE", write("file"))
    data = prepare(DataConfig(path=write("rows.jsonl", row(3, 3)), eval_path=validation), tokenizer, None)
    ((topic, detail),) = found(data, "note")
    assert topic == "cache"
    assert detail.startswith(f"Tokenised data is not kept: {tmp_path / 'file' / 'data'} cannot be used (")
    assert len(data.train) == 1


# Prompts of 1 to 64 tokens and completions of 3, which is 4 with the end: rows of prompt + 7 tokens, whose completion
# begins at prompt + 3. At a limit L the prompts above L - 7 are too long, and those of at least L - 3 lose everything.
PROMPTS = range(1, 65)


@pytest.mark.parametrize(
    ("limit", "too_long", "lost", "cut_tokens"),
    [(16, 55, 52, 1 + 2 + 3), (24, 47, 44, 1 + 2 + 3), (48, 23, 20, 1 + 2 + 3)],
    ids=["16", "24", "48"],
)
def test_truncation_says_how_many_answers_it_eats(
    write: Write, validation: str, tokenizer: Any, cache: Path, limit: int, too_long: int, lost: int, cut_tokens: int
) -> None:
    path = write("rows.jsonl", *(row(prompt, 3) for prompt in PROMPTS))
    config = DataConfig(path=path, eval_path=validation, allow_overlap=True, max_seq_len=limit, on_long="truncate")
    data = prepare(config, tokenizer, None)
    counts = data.record["lengths"]["train"]
    target_lost = 4 * lost + cut_tokens
    assert counts == {
        "rows": 64,
        "too_long": too_long,
        "dropped": lost,
        "truncated": 3,
        "answers_cut": 3,
        "target_tokens_lost": target_lost,
        "limit": limit,
        "kept": 64 - lost,
        "tokens": sum(min(prompt + 7, limit) for prompt in PROMPTS if prompt + 3 < limit),
        "target_tokens": 4 * 64 - target_lost,
        "longest": limit,
        "quantiles": {"p50": 32 + 7, "p90": 58 + 7, "p99": 64 + 7, "max": 64 + 7},
    }
    assert found(data, "problem") == [
        (
            "lengths",
            f"{too_long} of 64 train rows are longer than data.max_seq_len={limit} tokens: {lost} lost their whole "
            f"answer and are dropped, 3 were cut, 3 of them inside the answer, {target_lost} target tokens lost "
            f"({target_lost / 256:.1%}), more than data.max_dropped=0.05 allows: raise data.max_seq_len, shorten the "
            "rows, or allow more with data.max_dropped",
        )
    ]
    allowed = prepare(replace(config, max_dropped=1.0), tokenizer, None)
    assert found(allowed, "problem") == []
    assert [len(each.input_ids) for each in allowed.train] == [min(p + 7, limit) for p in PROMPTS if p + 3 < limit]
    assert [each.supervised for each in allowed.train][-4:] == [4, 3, 2, 1]


@pytest.mark.parametrize("on_long", ["drop", "truncate"])
def test_nothing_left_to_learn_is_a_problem_even_where_all_may_be_dropped(
    write: Write, validation: str, tokenizer: Any, cache: Path, on_long: str
) -> None:
    path = write("rows.jsonl", *(row(prompt, 3) for prompt in (20, 30)))
    config = DataConfig(path=path, eval_path=validation, max_seq_len=16, on_long=on_long, max_dropped=1.0)
    data = prepare(config, tokenizer, None)
    detail = "no train row has a token to learn from: all 2 were dropped for their length"
    assert found(data, "problem") == [("supervised", f"{detail}; raise the limit or shorten the rows")]
    with pytest.raises(ConfigError, match=detail):
        refuse_problems(data.findings)


def test_weights_that_leave_no_row_are_a_problem(write: Write, validation: str, tokenizer: Any, cache: Path) -> None:
    config = DataConfig(path=write("rows.jsonl", row(3, 3)), eval_path=validation, weights=[1e-9])
    assert found(prepare(config, tokenizer, None), "problem") == [
        ("supervised", "data.weights=[1e-09] leaves no train row: raise them, or give longer files")
    ]


# Of 20 rows, one is longer than 20 tokens: 30 and 7, with a completion of 3 + 1.
LONG = [row(3, 3), *(row(4, 3) for _ in range(18)), row(30, 3)]


@pytest.mark.parametrize(
    ("settings", "grade", "detail"),
    [
        pytest.param(
            {},
            "note",
            "1 of 20 train rows are longer than data.max_seq_len=20 tokens: 1 dropped, 4 target tokens lost (5.0%)",
            id="as many as allowed",
        ),
        pytest.param(
            {"max_dropped": 0.04},
            "problem",
            "1 of 20 train rows are longer than data.max_seq_len=20 tokens: 1 dropped, 4 target tokens lost (5.0%), "
            "more than data.max_dropped=0.04 allows: raise data.max_seq_len, shorten the rows, or allow more with "
            "data.max_dropped",
            id="more than allowed",
        ),
        pytest.param(
            {"on_long": "error", "max_dropped": 1.0},
            "problem",
            "1 of 20 train rows are longer than data.max_seq_len=20 tokens: raise data.max_seq_len, "
            "shorten the rows, or say data.on_long=drop or truncate",
            id="none allowed",
        ),
        pytest.param({"max_seq_len": 37}, "ok", "train: the longest row has 37 tokens (at most 37)", id="all fit"),
    ],
)
def test_long_rows_in_words(
    write: Write, validation: str, tokenizer: Any, cache: Path, settings: dict[str, Any], grade: str, detail: str
) -> None:
    config = DataConfig(path=write("rows.jsonl", *LONG), eval_path=validation, max_seq_len=20)
    data = prepare(replace(config, **settings), tokenizer, None)
    (finding,) = (each for each in data.findings if each.topic == "lengths" and "train" in each.detail)
    assert (finding.grade, finding.detail) == (grade, detail)


def test_the_models_limit_holds_for_all_and_evaluation_has_its_own(write: Write, tokenizer: Any, cache: Path) -> None:
    rows = [row(number, 3) for number in (5, 20, 35)]  # 12, 27 and 42 tokens
    path = write("rows.jsonl", *rows)
    config = DataConfig(
        path=path,
        eval_path=path,
        test_path=path,
        allow_overlap=True,
        max_seq_len=20,
        eval_max_seq_len=33,
        max_dropped=1.0,
    )

    def kept(config: DataConfig, model_limit: int | None) -> list[int]:
        lengths = prepare(config, tokenizer, model_limit).record["lengths"]
        return [lengths[name]["kept"] for name in ("train", "validation", "test")]

    assert kept(config, None) == [1, 2, 2]
    assert kept(config, 25) == [1, 1, 1]
    assert kept(replace(config, eval_max_seq_len=None), None) == [1, 3, 3]
    assert kept(replace(config, eval_max_seq_len=None), 40) == [1, 2, 2]
    data = prepare(replace(config, eval_max_seq_len=None), tokenizer, 40)
    assert [detail.partition(":")[0] for topic, detail in found(data, "note") if topic == "lengths"] == [
        "2 of 3 train rows are longer than data.max_seq_len=20 tokens",
        "1 of 3 validation rows are longer than the model's own limit of 40 tokens",
        "1 of 3 test rows are longer than the model's own limit of 40 tokens",
    ]


@pytest.mark.parametrize(
    ("allowed", "grade", "ending"),
    [
        (False, "problem", ": take them out of one of the two, or say data.allow_overlap=true if you mean it"),
        (True, "note", " (allowed by data.allow_overlap)"),
    ],
    ids=["refused", "allowed"],
)
def test_overlap_in_words(write: Write, tokenizer: Any, cache: Path, allowed: bool, grade: str, ending: str) -> None:
    path, other = write("rows.jsonl", row(3, 3), row(4, 3)), write("other.jsonl", row(5, 3), row(4, 2))
    data = prepare(DataConfig(path=path, eval_path=other, allow_overlap=allowed), tokenizer, None)
    detail = f"1 of 2 validation prompts are also in train: {other}:2 = {path}:2{ending}"
    assert found(data, grade) == [("overlap", detail)]


def test_the_training_file_as_evaluation_file_is_refused(write: Write, tokenizer: Any, cache: Path) -> None:
    path = write("rows.jsonl", *(row(3 + number, 3) for number in range(4)))
    data = prepare(DataConfig(path=path, eval_path=path, test_path=path), tokenizer, None)
    problems = [detail for _, detail in found(data, "problem")]
    assert [detail.partition(":")[0] for detail in problems] == [
        "4 of 4 validation prompts are also in train",
        "4 of 4 test prompts are also in train",
        "4 of 4 test prompts are also in validation",
    ]
    with pytest.raises(ConfigError) as caught:
        refuse_problems(data.findings)
    assert caught.value.problems == problems


@pytest.mark.parametrize(
    ("bad", "max_dropped", "grade"), [(29, 0.29, "note"), (30, 0.29, "problem"), (1, 0.0, "problem")]
)
def test_skipped_rows_in_words(
    write: Write, validation: str, tokenizer: Any, cache: Path, bad: int, max_dropped: float, grade: str
) -> None:
    path = write("rows.jsonl", *[{"prompt": "a"}] * bad, *[row(3, 3)] * (100 - bad))
    config = DataConfig(path=path, eval_path=validation, on_bad_row="skip", max_dropped=max_dropped)
    data = prepare(config, tokenizer, None)
    skipped = f"{path}: {bad} of 100 rows cannot be used ({bad} x no field completion) and are skipped"
    first = f"(the first: {path}:1: has no field completion)"
    refused = (
        f"{skipped}, more than data.max_dropped={max_dropped:g} allows: mend them {first}, or allow more with "
        "data.max_dropped"
    )
    assert ("rows", refused if grade == "problem" else f"{skipped} {first}") in found(data, grade)
    assert data.record["files"][0]["bad_rows"]["kinds"] == {"no field completion": bad}


@pytest.mark.parametrize(
    ("rows", "topic", "detail"),
    [
        (
            [row(3, 3), {"prompt": "a<|end|>", "completion": "b"}],
            "template",
            "train: rows with a control token of the template in their text (a turn's end, say), which is read as that "
            "token: 1",
        ),
        (
            [row(3, 3), row(3, 3), row(3, 4), row(4, 3)],
            "duplicates",
            "train: rows with the prompt of an earlier row: 2, of them equal in all: 1",
        ),
    ],
    ids=["control token", "duplicates"],
)
def test_notes_on_rows(
    write: Write, validation: str, tokenizer: Any, cache: Path, rows: list[Any], topic: str, detail: str
) -> None:
    data = prepare(DataConfig(path=write("rows.jsonl", *rows), eval_path=validation), tokenizer, None)
    assert found(data, "note") == [(topic, detail)]
    assert notes(data.findings) == [detail]
    refuse_problems(data.findings)


def test_a_clean_run_says_what_was_looked_at(write: Write, validation: str, tokenizer: Any, cache: Path) -> None:
    path = write("rows.jsonl", row(3, 3), row(4, 4))
    data = prepare(DataConfig(path=path, eval_path=validation), tokenizer, None)
    hashed = hashlib.sha256(tokenizer.chat_template.encode()).hexdigest()[:8]
    assert found(data, "ok") == [
        ("rows", f"{path}: 2 rows for train"),
        ("rows", f"{validation}: 1 rows for validation"),
        ("duplicates", "train: every prompt stands once"),
        ("duplicates", "validation: every prompt stands once"),
        ("overlap", "no prompt stands in two of train, validation"),
        ("template", f"chat template {hashed}: every answer stands whole in its row and is ended by an end token"),
        ("lengths", "train: the longest row has 12 tokens (at most 1024)"),
        ("lengths", "validation: the longest row has 8 tokens (no limit)"),
        ("supervised", "train: 9 of 22 tokens carry loss (41%)"),
        ("supervised", "validation: 3 of 8 tokens carry loss (38%)"),
    ]
    assert len(data.findings) == 10


def test_files_are_mixed_by_weight_and_recorded_as_one(write: Write, tokenizer: Any, cache: Path) -> None:
    paths = [write("one.jsonl", row(3, 3), row(4, 3)), write("two.jsonl", row(5, 3))]
    evaluation = write("evaluation.jsonl", *(row(number, 2) for number in range(10, 18)))
    config = DataConfig(path=paths, eval_path=evaluation, weights=[2.0, 3.0], max_examples=3)
    data = prepare(config, tokenizer, None)
    assert len(data.validation) == 8  # of evaluation, all rows once
    assert [len(each.input_ids) for each in data.train] == [10, 10, 11, 11, 12, 12, 12]
    hashes = [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths]
    assert data.record["sha256"] == hashlib.sha256("".join(hashes).encode()).hexdigest()
    assert data.record["path"] == ", ".join(paths)
    assert (data.record["train_examples"], data.record["weights"]) == (7, [2.0, 3.0])


def test_many_rows_are_not_in_memory_at_once(
    tmp_path: Path, validation: str, tokenizer: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Encoder:
        """Templates take seconds while memory is traced."""

        def __init__(self, *_: Any) -> None: ...

        def encode(self, rows: Sequence[Row]) -> list[TokenizedRow]:
            return [TokenizedRow(row.where, [1] * 50, ((1, 2),), None, 0, None) for row in rows]

    count, text = 20_000, "is " * 300
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        file.writelines(json.dumps({"prompt": f"{number}", "completion": text}) + "\n" for number in range(count))
    monkeypatch.setattr(preparing, "Encoder", Encoder)
    prepare(DataConfig(path=validation, eval_path=validation), tokenizer, None)  # what is imported late
    tracemalloc.start()
    try:
        data = prepare(DataConfig(path=str(path), eval_path=validation), tokenizer, None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(data.train) == count
    assert peak < count * len(text)  # 18 MB: the texts alone
