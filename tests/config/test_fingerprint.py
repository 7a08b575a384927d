"""Which settings make two runs different, and which do not."""

from dataclasses import replace
from functools import cache

import pytest

from ftx.config import fingerprint
from ftx.config.command_line import parse_command_line
from ftx.config.compose import compose_run
from ftx.config.fingerprint import fingerprints
from ftx.config.keys import run_keys
from ftx.config.schema import RunConfig

CONTENT = {
    "train": {"ordered": "t", "any_order": "T", "tokens": "tt", "used": "tu"},
    "validation": {"ordered": "v", "any_order": "V", "tokens": "vt"},
    "test": {"ordered": "e", "any_order": "E", "tokens": "et"},
}


def of(config: RunConfig, content: dict[str, dict[str, str]] = CONTENT, weights: str = "w") -> dict[str, str]:
    return fingerprints(config, weights=weights, template="x", content=content)


@cache
def composed(*words: str) -> RunConfig:
    return compose_run(parse_command_line(words))


def test_every_key_is_classified_exactly_once() -> None:
    lists = (
        fingerprint.TRAIN_KEYS,
        fingerprint.SELECTION_KEYS,
        fingerprint.EVALUATION_KEYS,
        fingerprint.BOTH,
        fingerprint.NEITHER,
    )
    listed = [name for names in lists for name in names]
    assert sorted(listed) == sorted(run_keys())


@pytest.mark.parametrize(
    "word",
    [
        *("seed=1", "data_seed=5", "lora.rank=8", "optim.lr=1e-3", "lora=dora", "hardware.threads=1", "custom.beta=1"),
    ],
)
def test_what_moves_the_weights_moves_the_train_fingerprint(word: str) -> None:
    assert of(composed(word))["train"] != of(composed())["train"]


@pytest.mark.parametrize(
    "word",
    [
        *("notes=x", "name=x", "output_root=x", "labbook=null", "tracking=none", "hardware.micro_batch_size=2"),
        *("data.snapshot=true", "data.cache_gb=0", "preflight=false", "data.template=plain"),
    ],
)
def test_what_changes_no_number_moves_neither(word: str) -> None:
    assert of(composed(word)) == of(composed())


def test_scores_move_the_evaluation_alone() -> None:
    base, other = of(composed()), of(composed("score=none"))
    assert base["train"] == other["train"]
    assert base["evaluation"] != other["evaluation"]


@pytest.mark.parametrize("word", ["data.supervise=all", "data.on_long=truncate", "data.template_kwargs.thinking=false"])
def test_which_tokens_count_moves_both(word: str) -> None:
    base, other = of(composed()), of(composed(word))
    assert base["train"] != other["train"]
    assert base["evaluation"] != other["evaluation"]


@pytest.mark.parametrize("name", ["ordered", "tokens", "used"])
def test_training_rows_count_by_content_and_move_the_training_alone(name: str) -> None:
    other = {**CONTENT, "train": CONTENT["train"] | {name: "moved"}}
    assert of(composed(), other)["train"] != of(composed())["train"]
    assert of(composed(), other)["evaluation"] == of(composed())["evaluation"]


@pytest.mark.parametrize("word", ["data.max_examples=8", "data.split_seed=5"])
def test_how_rows_are_chosen_counts_by_which_are(word: str) -> None:
    base = composed()
    key, value = word.removeprefix("data.").split("=")
    assert of(replace(base, data=replace(base.data, **{key: int(value)}))) == of(base)


def test_weights_count_by_content() -> None:
    assert of(composed(), weights="other")["train"] != of(composed())["train"]


def test_the_order_of_validation_rows_counts_where_only_the_first_are_scored() -> None:
    other = {**CONTENT, "validation": CONTENT["validation"] | {"ordered": "turned"}}
    assert of(composed(), other) == of(composed())
    some = composed("score.max_examples=5")
    assert of(some, other)["evaluation"] != of(some)["evaluation"]
    assert of(some, other)["train"] == of(some)["train"]
    by_score = composed("score.max_examples=5", "metric.name=exact_match")
    assert of(by_score, other)["train"] != of(by_score)["train"]


def test_validation_rows_count_as_long_as_they_choose_the_checkpoint() -> None:
    other = {**CONTENT, "validation": {"ordered": "n", "any_order": "N", "tokens": "vt"}}
    assert of(composed(), other)["train"] != of(composed())["train"]
    last = composed("metric.at=final")
    assert of(last, other)["train"] == of(last)["train"]
    assert of(last, other)["evaluation"] != of(last)["evaluation"]


def test_the_order_of_target_modules_does_not_count() -> None:
    config = composed("lora.target_modules=[q_proj,v_proj]")
    turned = replace(config, lora=replace(config.lora, target_modules=["v_proj", "q_proj"]))
    assert of(config) == of(turned)
