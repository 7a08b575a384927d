"""Nothing is lost to a length limit without being counted."""

from typing import Any

import pytest

from ftx.config.schema import DataConfig
from ftx.data.prepare import fit, prepare
from ftx.data.render import IGNORED, TokenizedRow
from ftx.data.rows import Row
from ftx.data.splits import Splits
from ftx.errors import DataError


def tokens(length: int, answer: int) -> TokenizedRow:
    labels = [IGNORED] * (length - answer) + [1] * answer
    return TokenizedRow(f"f:{length}", [1] * length, labels, length - answer, answer, "", "")


ROWS = [tokens(10, 3), tokens(20, 3), tokens(21, 3), tokens(30, 3), tokens(21, 0)]


def test_drop_keeps_what_fits() -> None:
    fitted = fit(ROWS, 20, "drop")
    assert [len(row.input_ids) for row in fitted.rows] == [10, 20]
    assert fitted.counts == {"rows": 5, "too_long": 3, "dropped": 3, "truncated": 0, "target_tokens_lost": 6}


def test_truncate_cuts_the_end_and_drops_rows_that_lose_their_answer() -> None:
    fitted = fit(ROWS, 20, "truncate")
    assert [len(row.input_ids) for row in fitted.rows] == [10, 20, 20]
    assert fitted.rows[2].supervised == 2
    assert fitted.counts == {"rows": 5, "too_long": 3, "dropped": 2, "truncated": 1, "target_tokens_lost": 4}


def test_no_limit_changes_nothing() -> None:
    assert fit(ROWS, None, "error").rows == ROWS


class Letters:
    """A tokenizer for which every letter is a token."""

    chat_template: str | None = None
    eos_token_id = 0
    all_special_ids = (0,)

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) for letter in text]}


def splits(*lengths: int) -> Splits:
    rows = [Row("prompt_completion", f"f:{n}", "p" * (n - 4), "abc") for n in lengths]
    return Splits(rows, rows[:1], [], {"content": {}, "overlap": []})


def test_more_long_rows_than_allowed_are_refused_with_the_remedy() -> None:
    config = DataConfig(max_seq_len=20, max_dropped=0.3)
    with pytest.raises(DataError, match=r"1 of 3 train rows are longer than data\.max_seq_len=20 tokens, more than"):
        prepare(splits(10, 12, 25), config, Letters(), None)
    config.max_dropped = 0.4
    data = prepare(splits(10, 12, 25), config, Letters(), None)
    assert data.record["train_examples"] == 2
    assert data.record["lengths"]["train"]["dropped"] == 1
    assert data.notices() == ["1 of 3 train rows are longer than 20 tokens: 1 dropped, 0 cut, 4 target tokens lost"]


def test_error_refuses_any_long_row() -> None:
    with pytest.raises(DataError, match=r"1 of 2 train rows .* data\.on_long=drop or truncate"):
        prepare(splits(10, 25), DataConfig(max_seq_len=20, on_long="error"), Letters(), None)


@pytest.mark.parametrize("on_long", ["drop", "truncate"])
def test_nothing_left_to_learn_stops_the_run(on_long: str) -> None:
    config = DataConfig(max_seq_len=5, on_long=on_long, max_dropped=1.0)
    with pytest.raises(DataError, match=r"no train row has a token to learn from; 2 of 2 train rows"):
        prepare(splits(10, 25), config, Letters(), None)


def test_evaluation_has_its_own_limit_and_the_models_limit_holds_for_both() -> None:
    data = prepare(splits(10, 12), DataConfig(max_seq_len=20), Letters(), 15)
    assert data.record["lengths"]["train"]["limit"] == 15
    assert data.record["lengths"]["validation"]["limit"] == 15
    shorter = prepare(splits(10, 12), DataConfig(max_seq_len=12), Letters(), 50)
    assert shorter.record["lengths"]["validation"]["limit"] == 50
