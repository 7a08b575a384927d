"""What of a command line is fixed and what is swept, and what a study's file adds to it."""

from typing import Any

import pytest

from ftx.config.axes import Sweep, axis_word, split_axes, typed_value, with_file_axes, with_file_words
from ftx.config.overrides import parsed
from ftx.design.factors import Axis
from ftx.errors import ConfigError

NOTHING = Sweep((), ())


def in_order(sweep: Sweep) -> dict[str, str]:
    return {axis.key: ",".join(axis.values) for axis in sweep.axes}


@pytest.mark.parametrize(
    ("word", "levels"),
    [
        ("lora.rank=8,16,32", ["8", "16", "32"]),
        ("lora=standard,dora", ["standard", "dora"]),
        ("seed=range(0,3)", ["0", "1", "2"]),
        ("seed=range(3)", ["0", "1", "2"]),
        ("lora=choice(standard,dora)", ["standard", "dora"]),
        ("lora.rank=choice(8)", ["8"]),
        ("optim.lr=1e-4,2E-4,.0005", ["1e-4", "2e-4", "5e-4"]),
        ("optim.epochs=1,2.0,0.5", ["1", "2", "0.5"]),
        ("optim.max_steps=null,10", ["null", "10"]),
        ("model.name='a b','c,d'", ["a b", "'c,d'"]),
        ("lora.target_modules=[q_proj],[q_proj,v_proj]", ["[q_proj]", "[q_proj,v_proj]"]),
        ("data.path=a.jsonl,b.jsonl", ["a.jsonl", "b.jsonl"]),
        ("data.path=[a.jsonl],[b.jsonl,c.jsonl]", ["a.jsonl", "[b.jsonl,c.jsonl]"]),
        ("data.path=a.jsonl,null", ["a.jsonl", "null"]),
        ("data.weights=null,[1,0.5]", ["null", "[1.0,0.5]"]),
        ("data.template_kwargs={a: true},{a: false}", ["{a:true}", "{a:false}"]),
        ("data.template_kwargs.a=true,1", ["true", "1"]),
        ("lora.target_modules=choice([q_proj],[k_proj])", ["[q_proj]", "[k_proj]"]),
    ],
)
def test_a_list_of_values_is_an_axis(word: str, levels: list[str]) -> None:
    sweep = split_axes([word])
    assert sweep.fixed == ()
    assert sweep.axes == (Axis(word.partition("=")[0], tuple(levels)),)


@pytest.mark.parametrize("word", ["lora.rank=8", "lora=dora", "data.path=[a.jsonl,b.jsonl]", "notes='a, b'"])
def test_one_value_is_fixed(word: str) -> None:
    assert split_axes([word]) == Sweep((word,), ())


@pytest.mark.parametrize(
    "word",
    [
        "optim.lr=1e-4,0.0002",
        "optim.max_steps=null,10",
        "hardware.deterministic=true,FALSE",
        "lora.target_modules=[q_proj],[q_proj,'v_proj']",
        "model.name='it\\'s',\"a b\",'1','null'",
        "++custom.inner={a:1},{a:2,b:[x]}",
        "++custom.beta=0,0.1",
        "++data.template_kwargs={a: true},{a: [x,1.0]}",
        "++data.template_kwargs.a=true,1,1.0,x",
        "data.path=a.jsonl,[a.jsonl,'b c.jsonl']",
        # A key of one's own has no type: 1.0 alone is a float in the configuration and in the fingerprint, and so
        # it must be as a level.
        "++custom.beta=0.5,1.0",
    ],
)
def test_a_level_typed_alone_is_the_same_value(word: str) -> None:
    (axis,) = split_axes([word]).axes
    listed = list(parsed([word])[0].sweep_iterator())
    alone = [parsed([axis.override(level)])[0].value() for level in axis.values]
    assert [repr(_plain(value)) for value in alone] == [repr(_plain(value)) for value in listed]


@pytest.mark.parametrize(
    ("words", "fixed", "axes"),
    [
        (["lora.rank=8", "lora.rank=16,32"], (), {"lora.rank": "16,32"}),
        (["lora.rank=16,32", "lora.rank=8"], ("lora.rank=8",), {}),
        (["seed=0,1", "lora.rank=8,16", "seed=2,3"], (), {"lora.rank": "8,16", "seed": "2,3"}),
        (["lora.rank=8", "lora.rank=16"], ("lora.rank=16",), {}),
    ],
    ids=["list-last", "value-last", "two-lists", "two-values"],
)
def test_of_a_key_typed_twice_the_last_counts(words: list[str], fixed: tuple[str, ...], axes: dict[str, str]) -> None:
    sweep = split_axes(words)
    assert (sweep.fixed, in_order(sweep)) == (fixed, axes)


def test_a_key_is_one_axis_whatever_sign_stands_in_front() -> None:
    """`++lora.rank` is lora.rank: two axes of one key would be two factors of one name."""
    assert in_order(split_axes(["lora.rank=8,16", "++lora.rank=32,64"])) == {"lora.rank": "32,64"}
    assert len(split_axes(["lora.rank=8,16", "++lora.rank=32,64"]).axes) == 1


def test_hydras_sign_is_kept_for_the_override() -> None:
    (axis,) = split_axes(["++custom.beta=0,0.1"]).axes
    assert (axis.key, axis.override("0.1")) == ("custom.beta", "++custom.beta=0.1")


def test_an_interval_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigError) as caught:
        split_axes(["optim.lr=interval(1e-5,1e-3)"])
    assert caught.value.problems == [
        "optim.lr=interval(1e-5,1e-3): an interval has no levels; list values, or search it with hydra/sweeper=optuna"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval(1e-5,1e-3)", "an interval has no levels"),
        ("1e-4,(2e-4", "optim.lr"),
    ],
    ids=["interval", "not-hydras-grammar"],
)
def test_a_files_axis_that_cannot_be_read_is_refused_in_words(text: str, expected: str) -> None:
    """As ConfigError, which the programs print; an error of Hydra's own would be a traceback."""
    with pytest.raises(ConfigError, match=expected):
        with_file_axes(NOTHING, {"optim.lr": text})


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        ("8,16,32", ["8", "16", "32"]),
        ([8, 16, 32], ["8", "16", "32"]),
        ("range(0,3)", ["0", "1", "2"]),
        ("choice(a,b)", ["a", "b"]),
        ("1e-4,0.0002", ["1e-4", "2e-4"]),
        ([1e-4, 0.0002, 0.5, 1.0], ["1e-4", "2e-4", "0.5", "1.0"]),
        ("[q_proj],[q_proj,v_proj]", ["[q_proj]", "[q_proj,v_proj]"]),
        ([["q_proj"], ["q_proj", "v_proj"]], ["[q_proj]", "[q_proj,v_proj]"]),
        ([["q_proj", "v_proj"]], ["[q_proj,v_proj]"]),
        ([None, 10], ["null", "10"]),
        (None, ["null"]),
        ("null,10", ["null", "10"]),
        (0, ["0"]),
        ("0", ["0"]),
        ("'a b','c,d'", ["'a b'", "'c,d'"]),
        (["standard", "dora"], ["standard", "dora"]),
    ],
)
def test_levels_of_a_study_file_as_text_and_as_yaml(values: Any, levels: list[str]) -> None:
    assert with_file_axes(NOTHING, {"some.key": values}).axes == (Axis("some.key", tuple(levels)),)


@pytest.mark.parametrize("values", ["true,false", [True, False]], ids=["text", "yaml"])
def test_truth_values_of_a_study_file(values: Any) -> None:
    (axis,) = with_file_axes(NOTHING, {"hardware.deterministic": values}).axes
    assert [parsed([axis.override(level)])[0].value() for level in axis.values] == [True, False]


@pytest.mark.parametrize(
    "value",
    [
        *("plain", "a b", "a,b", "it's", "", "null", "true", "1", "1e-4", "[a]", "{a:1}", "${x}", "back\\slash", "a=b"),
        *(None, True, False, 0, -3, 2.5, 1e-4, ["a", "b c"], [[1], []], {"a": 1, "b": [None, "x y"]}),
    ],
    ids=repr,
)
def test_hydra_reads_a_written_value_as_it_was(value: Any) -> None:
    override = parsed([f"x={typed_value(value)}"])[0]
    assert not override.is_sweep_override()
    assert _plain(override.value()) == value


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return value.text.replace("\\'", "'") if hasattr(value, "text") else value


def test_a_yaml_list_of_texts_with_commas_stays_that_many_levels() -> None:
    override = parsed([axis_word("model.name", ["a,b", "it's", "1"])])[0]
    assert [_plain(value) for value in override.sweep_iterator()] == ["a,b", "it's", "1"]


FILE = {"lora.rank": "8,16,32", "optim.lr": "1e-4,2e-4,5e-4", "seed": "0,1,2"}


@pytest.mark.parametrize(
    ("typed", "fixed", "axes"),
    [
        ([], (), FILE),
        (["optim.lr=1e-3"], ("optim.lr=1e-3",), {"lora.rank": "8,16,32", "seed": "0,1,2"}),
        (["optim.lr=1e-3,3e-3"], (), FILE | {"optim.lr": "1e-3,3e-3"}),
        (["++optim.lr=1e-3"], ("++optim.lr=1e-3",), {"lora.rank": "8,16,32", "seed": "0,1,2"}),
        (["optim.epochs=1,2"], (), FILE | {"optim.epochs": "1,2"}),
        (["seed=7", "lora=dora"], ("seed=7", "lora=dora"), {"lora.rank": "8,16,32", "optim.lr": "1e-4,2e-4,5e-4"}),
    ],
    ids=["nothing", "one-value", "a-list", "with-signs", "another-key", "seed-and-group"],
)
def test_what_is_typed_replaces_the_files(typed: list[str], fixed: tuple[str, ...], axes: dict[str, str]) -> None:
    sweep = with_file_axes(split_axes(typed), FILE)
    assert sweep.fixed == fixed
    assert list(in_order(sweep).items()) == list(axes.items())  # the order of factors is the file's


def test_typed_lists_do_not_move_the_files_factors() -> None:
    sweep = with_file_axes(split_axes(["optim.epochs=1,2", "seed=5,6", "lora.rank=4,8"]), FILE)
    assert list(in_order(sweep)) == ["lora.rank", "optim.lr", "seed", "optim.epochs"]


def test_keys_of_ones_own_can_be_added() -> None:
    (axis,) = with_file_axes(NOTHING, {"custom.beta": "0,0.1"}).axes
    assert [axis.override(level) for level in axis.values] == ["++custom.beta=0", "++custom.beta=0.1"]


def test_what_a_template_is_told_can_be_varied_by_a_file() -> None:
    (axis,) = with_file_axes(NOTHING, {"data.template_kwargs.thinking": [True, False]}).axes
    assert [axis.override(level) for level in axis.values] == [
        "++data.template_kwargs.thinking=true",
        "++data.template_kwargs.thinking=false",
    ]


def test_a_files_axes_as_words_for_any_sweeper() -> None:
    assert with_file_words(["seed=7", "lora.rank=4,8"], FILE) == [
        "seed=7",
        "lora.rank=4,8",
        "optim.lr=1e-4,2e-4,5e-4",
    ]


def test_keys_of_ones_own_can_be_added_by_any_sweeper() -> None:
    assert with_file_words([], {"custom.beta": "0,0.1"}) == ["++custom.beta=0,0.1"]
