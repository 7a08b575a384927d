"""Which rows a run uses: weights, the first N, and length limits, every loss counted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftx.data.limits import drawn, limited
from ftx.data.render import TokenizedRow
from ftx.data.rows import Row
from ftx.data.splits import draw_position
from ftx.data.store import Store, Stored, StoreWriter


def answered(length: int, answer: int) -> TokenizedRow:
    """A prompt and an answer of so many tokens at its end."""
    prompt = length - answer
    return TokenizedRow(f"f:{length}", list(range(length)), ((prompt, length),), prompt, answer, "x")


def stored(path: Path, rows: list[Stored]) -> Store:
    writer = StoreWriter(path / "train.arrow")
    writer.write(rows)
    writer.close()
    return Store(path / "train.arrow")


def store_of(path: Path, *rows: TokenizedRow) -> Store:
    return stored(path, [Stored(row, 0, 0.0) for row in rows])


def all_of(store: Store) -> Any:
    return np.arange(len(store))


POSITIONS = {0: [0.1, 0.9], 1: [0.1, 0.49, 0.5, 0.9], 2: [0.1, 0.49, 0.5]}  # by file


@pytest.fixture
def three_files(tmp_path: Path) -> Store:
    return stored(tmp_path, [Stored(answered(9, 2), file, at) for file, all_at in POSITIONS.items() for at in all_at])


@pytest.mark.parametrize(
    ("weights", "most", "expected"),
    [
        (None, None, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ([1.0, 1.0, 1.0], None, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ([2.0, 0.5, 1.5], None, [0, 0, 1, 1, 2, 3, 6, 6, 7, 7, 8]),
        ([0.05, 3.0, 0.5], None, [2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 7]),
        (None, 4, [0, 1, 2, 3]),
        ([2.0, 0.5, 1.5], 4, [0, 0, 1, 1, 2, 3]),
        (None, 99, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
    ],
    ids=["all", "ones", "twice, half, once and a half", "next to none", "first 4", "weighted first 4", "more than all"],
)
def test_an_epoch_holds_each_row_by_its_files_weight(
    three_files: Store, weights: list[float] | None, most: int | None, expected: list[int]
) -> None:
    assert drawn(three_files, weights, most).tolist() == expected


def test_a_half_keeps_the_same_rows_when_others_are_added(tmp_path: Path) -> None:
    def kept(name: str, prompts: list[str]) -> set[str]:
        (tmp_path / name).mkdir()
        rows = [Row("prompt_completion", prompt, prompt, "x") for prompt in prompts]
        made = [Stored(TokenizedRow(row.where, [1, 2], ((1, 2),), 1, 1, "x"), 0, draw_position(row, 0)) for row in rows]
        store = stored(tmp_path / name, made)
        return {store.row(number).where for number in drawn(store, [0.5], None)}

    old = [f"old {number}" for number in range(200)]
    before = kept("before", old)
    after = kept("after", [*(f"new {number}" for number in range(77)), *reversed(old)])
    assert 72 < len(before) < 128  # 100, give or take four standard deviations of 7
    assert {where for where in after if where.startswith("old")} == before


ROWS = [answered(10, 3), answered(20, 3), answered(21, 3), answered(22, 3), answered(23, 3), answered(30, 3)]
COUNTS = {"rows": 6, "too_long": 4, "limit": 20, "quantiles": {"p50": 21, "p90": 30, "p99": 30, "max": 30}}


def test_drop_keeps_what_fits_whole(tmp_path: Path) -> None:
    store = store_of(tmp_path, *ROWS)
    found = limited(store, all_of(store), 20, "drop")
    assert [row.where for row in found.rows] == ["f:10", "f:20"]
    assert found.counts == COUNTS | {
        "dropped": 4,
        "truncated": 0,
        "answers_cut": 0,
        "target_tokens_lost": 12,
        "kept": 2,
        "tokens": 30,
        "target_tokens": 6,
        "longest": 20,
    }


def test_truncate_cuts_the_end_and_drops_what_loses_its_answer(tmp_path: Path) -> None:
    store = store_of(tmp_path, *ROWS)
    found = limited(store, all_of(store), 20, "truncate")
    # 21 tokens lose 1 of 3 target tokens, 22 lose 2; the answer of 23 begins at token 20, behind the limit.
    assert [row.where for row in found.rows] == ["f:10", "f:20", "f:21", "f:22"]
    assert [row.input_ids for row in found.rows][2:] == [list(range(20))] * 2
    assert [row.supervised for row in found.rows] == found.rows.supervised.tolist() == [3, 3, 2, 1]
    assert [len(row.input_ids) for row in found.rows] == found.rows.lengths.tolist() == [10, 20, 20, 20]
    assert found.counts == COUNTS | {
        "dropped": 2,
        "truncated": 2,
        "answers_cut": 2,
        "target_tokens_lost": 1 + 2 + 3 + 3,
        "kept": 4,
        "tokens": 70,
        "target_tokens": 9,
        "longest": 20,
    }


def test_error_leaves_the_long_rows_out(tmp_path: Path) -> None:
    store = store_of(tmp_path, *ROWS)
    found = limited(store, all_of(store), 20, "error")
    assert (found.counts["too_long"], found.counts["dropped"], found.counts["kept"]) == (4, 4, 2)


@pytest.mark.parametrize("on_long", ["drop", "truncate", "error"])
@pytest.mark.parametrize("limit", [None, 30], ids=["no limit", "the longest row's length"])
def test_nothing_is_lost_to_a_limit_that_all_meet(tmp_path: Path, limit: int | None, on_long: str) -> None:
    store = store_of(tmp_path, *ROWS)
    found = limited(store, all_of(store), limit, on_long)
    assert list(found.rows) == ROWS
    assert found.counts == COUNTS | {
        "too_long": 0,
        "limit": limit,
        "dropped": 0,
        "truncated": 0,
        "answers_cut": 0,
        "target_tokens_lost": 0,
        "kept": 6,
        "tokens": 126,
        "target_tokens": 18,
        "longest": 30,
    }


CHAT = TokenizedRow("chat", [0] * 25, ((5, 8), (15, 25)), 15, 10, "x")
TEXT = TokenizedRow("text", [0] * 25, ((1, 25),), None, 0, None)
ALL = TokenizedRow("all", [0] * 25, ((1, 25),), 15, 10, "x")


@pytest.mark.parametrize(
    ("row", "limit", "left", "lost", "answers_cut"),
    [
        pytest.param(CHAT, 20, 8, 5, 1, id="chat, inside the last answer"),
        pytest.param(CHAT, 16, 4, 9, 1, id="chat, one token of the last answer left"),
        pytest.param(CHAT, 15, None, 13, 0, id="chat, only an earlier answer left"),
        pytest.param(CHAT, 3, None, 13, 0, id="chat, no answer left"),
        pytest.param(TEXT, 20, 19, 5, 1, id="text"),
        pytest.param(TEXT, 2, 1, 23, 1, id="text, one token left"),
        pytest.param(TEXT, 1, None, 24, 0, id="text, nothing left"),
        pytest.param(ALL, 16, 15, 9, 1, id="all, inside the answer"),
        pytest.param(ALL, 15, None, 24, 0, id="all, answer lost"),
    ],
)
def test_what_truncation_leaves_of_a_row(
    tmp_path: Path, row: TokenizedRow, limit: int, left: int | None, lost: int, answers_cut: int
) -> None:
    store = store_of(tmp_path, row)
    found = limited(store, all_of(store), limit, "truncate")
    assert [kept.supervised for kept in found.rows] == ([] if left is None else [left])
    assert found.counts["target_tokens_lost"] == lost
    assert found.counts["answers_cut"] == answers_cut
    assert found.counts["target_tokens"] + lost == row.supervised
    assert (found.counts["dropped"], found.counts["truncated"]) == ((1, 0) if left is None else (0, 1))


def test_a_row_that_stands_twice_is_counted_twice(tmp_path: Path) -> None:
    store = store_of(tmp_path, *ROWS)
    found = limited(store, np.array([0, 0, 3, 3]), 20, "truncate")
    assert [row.where for row in found.rows] == ["f:10", "f:10", "f:22", "f:22"]
    assert (found.counts["rows"], found.counts["truncated"], found.counts["target_tokens_lost"]) == (4, 2, 4)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        (range(3, 13), {"p50": 7, "p90": 11, "p99": 12, "max": 12}),
        (range(3, 203), {"p50": 102, "p90": 182, "p99": 200, "max": 202}),
        ([7], {"p50": 7, "p90": 7, "p99": 7, "max": 7}),
        ([9, 3], {"p50": 3, "p90": 9, "p99": 9, "max": 9}),
    ],
    ids=["ten", "two hundred", "one", "two"],
)
def test_quantiles_are_lengths_that_rows_have(tmp_path: Path, lengths: Any, expected: dict[str, int]) -> None:
    store = store_of(tmp_path, *(answered(length, 1) for length in lengths))
    assert limited(store, all_of(store), 5, "drop").counts["quantiles"] == expected


def test_no_rows(tmp_path: Path) -> None:
    store = store_of(tmp_path, *ROWS)
    found = limited(store, np.empty(0, dtype=np.int64), 20, "drop")
    assert found.counts["quantiles"] == {}
    assert (found.counts["rows"], found.counts["kept"], found.counts["longest"]) == (0, 0, 0)
