"""The side of a row follows from its text alone: no order and no added row moves it; what is shared is counted."""

import hashlib
import json
from typing import Any

import pytest

from ftx.data.rows import Row
from ftx.data.splits import Contents, Prompts, draw_position, overlaps, prompts_of, side_position

SEED = 0
ANSWER = {"role": "assistant", "content": "b"}


def row(prompt: str, completion: str = "x", group: str | None = None) -> Row:
    return Row("prompt_completion", "f:1", prompt, completion, None, group)


def chat(*contents: str | None, where: str = "f:1") -> Row:
    roles = ("user", "assistant")
    turns = [{"role": roles[at % 2], "content": content} for at, content in enumerate(contents)]
    return Row("messages", where, turns, [])


def place(one: Row, seed: int = SEED) -> float:
    return side_position(one, prompts_of(one, "auto"), seed)


def contents(*rows: Row, supervise: str = "auto") -> Contents:
    made = Contents()
    for one in rows:
        made.add(one, prompts_of(one, supervise), one.content().encode())
    return made


def final(one: Row) -> str:
    return prompts_of(one, "auto").final


ROWS = [row(f"prompt {number}") for number in range(1000)]


def by_hand(text: str) -> float:
    return int(hashlib.sha256(text.encode()).hexdigest()[:16], 16) / 2**64


def test_a_position_is_the_start_of_a_hash_of_seed_and_prompt() -> None:
    assert place(row(" one  two\n")) == by_hand("0\none two")
    assert place(row("one"), seed=7) == by_hand("7\none")
    assert place(row("one", group='"g"')) == by_hand('0\ngroup "g"')
    assert draw_position(row("a", "b"), 3) == by_hand('3\ndraw ["prompt_completion", "a", "b"]')


def test_positions_fill_the_range_evenly() -> None:
    places = sorted(map(place, ROWS))
    assert places[0] >= 0
    assert places[-1] < 1
    # 1000 even draws: 250 below a quarter, give or take four standard deviations of 13.7.
    assert abs(sum(at < 0.25 for at in places) - 250) < 55


def test_another_seed_is_another_split() -> None:
    held_out = [{one.context for one in ROWS if place(one, seed) < 0.25} for seed in (0, 1)]
    # Of two independent quarters a quarter agrees.
    assert 35 < len(held_out[0] & held_out[1]) < 95


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(row("a b"), row("a b "), id="trailing space"),
        pytest.param(row("a b"), row("\n a\t\u00a0b"), id="space within"),
        pytest.param(row("\u00e9"), row("e\u0301"), id="Unicode forms"),
        pytest.param(row("a", "x"), row("a", "y"), id="answers"),
        pytest.param(chat("a", "b"), chat("a ", "c"), id="a chat's trailing space"),
        pytest.param(chat("a\nb", "c"), chat("a b", "c"), id="a chat's line end"),
        pytest.param(chat("q", "e\u0301", "r", "b"), chat("q", "\u00e9", "r", "b"), id="a chat's Unicode form"),
        pytest.param(row("a"), chat("a", "b"), id="a prompt and a chat of it"),
        pytest.param(
            row("a"),
            Row("prompt_completion", "f:1", [{"role": "user", "content": "a"}], [ANSWER]),
            id="a prompt as turns",
        ),
        pytest.param(Row("text", "f:1", "", "a  b"), Row("text", "f:1", "", "a b\n"), id="a text"),
    ],
)
def test_the_same_question_has_one_key_and_one_place(one: Row, other: Row) -> None:
    assert final(one) == final(other)
    assert place(one) == place(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(row("ab"), row("a b"), id="words"),
        pytest.param(row("a"), row("A"), id="case"),
        pytest.param(chat("a", "b", "c", "d"), chat("a", "x", "c", "d"), id="an earlier answer"),
        pytest.param(chat("a", "b", "c", "d"), chat("a", "b"), id="more turns"),
        pytest.param(
            Row("messages", "f:1", [{"role": "system", "content": "a"}, {"role": "assistant", "content": "b"}], []),
            chat("a", "b"),
            id="a system's word and a user's",
        ),
        pytest.param(Row("text", "f:1", "", "a"), Row("text", "f:1", "", "b"), id="texts"),
    ],
)
def test_another_question_has_another_key(one: Row, other: Row) -> None:
    assert final(one) != final(other)


def test_a_tool_call_without_content_has_a_key() -> None:
    assert final(chat("a", None, "b", "c")) == json.dumps([["user", "a"], ["assistant", ""], ["user", "b"]])


def test_what_follows_the_last_answer_is_no_part_of_the_prompt() -> None:
    assert final(chat("a", "b", "c")) == final(chat("a", "b")) == "a"


def test_groups_stay_together_whatever_their_prompts() -> None:
    assert place(row("a", group="1")) == place(row("b", group="1"))
    assert place(row("a", group="1")) != place(row("a", group="2"))


def test_a_draw_depends_on_the_whole_row() -> None:
    assert draw_position(row("a", "b"), SEED) != draw_position(row("a", "c"), SEED)
    assert draw_position(row("a", "b"), SEED) != draw_position(row("a", "b"), SEED + 1)
    assert draw_position(row("a", "b"), SEED) == draw_position(row("a", "b", group="1"), SEED)


def test_hashes_are_of_the_rows_in_order_and_in_any_order() -> None:
    one, other = '["prompt_completion", "a", "x"]', '["prompt_completion", "b", "x"]'
    digests = sorted(hashlib.sha256(text.encode()).digest() for text in (one, other))
    assert contents(row("a"), row("b")).hashes() == {
        "ordered": hashlib.sha256(f"{one}\n{other}\n".encode()).hexdigest(),
        "any_order": hashlib.sha256(b"".join(digests)).hexdigest(),
        "tokens": hashlib.sha256(
            b"".join(sorted(hashlib.blake2b(text.encode(), digest_size=16).digest() for text in (one, other)))
        ).hexdigest(),
    }


@pytest.mark.parametrize(
    ("rows", "changed"),
    [
        ([row("b"), row("a")], {"ordered"}),
        ([row("a"), row("b"), row("b")], {"ordered", "any_order", "tokens"}),
        ([row("a"), row("b", "y")], {"ordered", "any_order", "tokens"}),
        ([row("a"), row("b ")], {"ordered", "any_order", "tokens"}),
        ([row("a", group="1"), row("b")], set()),
    ],
    ids=["order", "a repeat", "a completion", "a space", "a group"],
)
def test_hashes_change_with_the_content(rows: list[Row], changed: set[str]) -> None:
    before, after = contents(row("a"), row("b")).hashes(), contents(*rows).hashes()
    assert {name for name in before if before[name] != after[name]} == changed


def test_repeats_are_counted_by_prompt_and_whole() -> None:
    rows = [row("a", "x"), row("a ", "x"), row("a", "x"), row("a", "y"), row("b"), row("c")]
    assert contents(*rows).repeats() == {"prompts": 3, "rows": 1}


def test_every_pair_of_splits_that_shares_prompts() -> None:
    splits = {
        "train": contents(row("a"), row("b"), row("c")),
        "validation": contents(row("x"), row("b "), row("y"), row("a")),
        "test": contents(row("z"), chat("x", "answer")),
    }
    assert overlaps(splits) == [
        {"first": "train", "second": "validation", "rows": 2, "of": 4, "pairs": [(1, 1), (3, 0)]},
        {"first": "validation", "second": "test", "rows": 1, "of": 2, "pairs": [(1, 0)]},
    ]


def test_the_prompts_of_a_chat() -> None:
    one = chat("a", "b", "c", "d", "e")
    later = json.dumps([["user", "a"], ["assistant", "b"], ["user", "c"]])
    assert prompts_of(one, "auto") == Prompts("a", later, ("a", later))
    assert prompts_of(one, "last_turn") == Prompts("a", later, (later,))


def test_a_chat_and_its_beginning_are_on_one_side_and_overlap() -> None:
    whole, beginning = chat("a", "b", "c", "d"), chat("a ", "b")
    assert place(whole) == place(beginning)
    (found,) = overlaps({"train": contents(row("x"), whole), "validation": contents(beginning)})
    assert (found["rows"], found["pairs"]) == (1, [(0, 1)])
    assert overlaps({"train": contents(whole, supervise="last_turn"), "validation": contents(beginning)}) == []
    (found,) = overlaps({"train": contents(beginning), "validation": contents(row("x"), whole)})
    assert (found["rows"], found["pairs"]) == (1, [(1, 0)])


def test_all_shared_rows_are_counted_and_three_are_shown() -> None:
    same = [row(str(number)) for number in range(5)]
    (found,) = overlaps({"train": contents(*same), "validation": contents(*same, row("0"))})
    assert (found["rows"], found["of"], found["pairs"]) == (6, 6, [(0, 0), (1, 1), (2, 2)])


def test_nothing_shared() -> None:
    nothing: list[Any] = overlaps({"train": contents(row("a")), "validation": contents(row("b"))})
    assert nothing == []
