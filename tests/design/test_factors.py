"""From lists of values to factors: one a key, and one for keys that move together."""

import pytest

from ftx.design.factors import Axis, Factor, Level, factors_of
from ftx.errors import ConfigError

RANK = Axis("lora.rank", ("8", "16", "32"))
LR = Axis("optim.lr", ("1e-4", "2e-4", "5e-4"))
BATCH = Axis("optim.batch_size", ("4", "8", "16"))


def problems(axes: list[Axis], coupled: list[list[str]]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        factors_of(axes, coupled)
    return caught.value.problems


def test_every_key_is_a_factor_of_its_own() -> None:
    assert factors_of([Axis("lora.rank", ("8", "16")), Axis("lora", ("standard", "dora"))]) == [
        Factor("lora.rank", ("lora.rank",), (Level("8", ("lora.rank=8",)), Level("16", ("lora.rank=16",)))),
        Factor("lora", ("lora",), (Level("standard", ("lora=standard",)), Level("dora", ("lora=dora",)))),
    ]


def test_no_axes_no_factors() -> None:
    assert factors_of([]) == []


@pytest.mark.parametrize("prefix", ["+", "++"])
def test_hydras_sign_stays_in_front_of_the_key(prefix: str) -> None:
    (factor,) = factors_of([Axis("custom.beta", ("0", "0.1"), prefix=prefix)])
    assert (factor.name, factor.keys) == ("custom.beta", ("custom.beta",))
    assert [level.label for level in factor.levels] == ["0", "0.1"]
    assert factor.levels[1].overrides == (f"{prefix}custom.beta=0.1",)


def test_the_nth_values_of_coupled_keys_go_together() -> None:
    (factor,) = factors_of([BATCH, LR], [["optim.batch_size", "optim.lr"]])
    assert factor.name == "optim.batch_size+optim.lr"
    assert factor.keys == ("optim.batch_size", "optim.lr")
    assert factor.levels == (
        Level("4/1e-4", ("optim.batch_size=4", "optim.lr=1e-4")),
        Level("8/2e-4", ("optim.batch_size=8", "optim.lr=2e-4")),
        Level("16/5e-4", ("optim.batch_size=16", "optim.lr=5e-4")),
    )


def test_factors_stand_in_the_order_of_their_first_axis() -> None:
    coupled = [["optim.lr", "optim.batch_size"]]
    assert [factor.name for factor in factors_of([BATCH, RANK, LR], coupled)] == [
        "optim.lr+optim.batch_size",
        "lora.rank",
    ]
    assert [factor.name for factor in factors_of([RANK, BATCH, LR], coupled)] == [
        "lora.rank",
        "optim.lr+optim.batch_size",
    ]


def test_a_coupled_set_of_one_key_is_that_key() -> None:
    assert factors_of([RANK], [["lora.rank"]]) == factors_of([RANK])


@pytest.mark.parametrize(
    ("axes", "coupled", "expected"),
    [
        pytest.param(
            [Axis("optim.batch_size", ("4", "8")), LR],
            [["optim.batch_size", "optim.lr"]],
            "study.coupled=[[optim.batch_size,optim.lr]]: keys that move together need equally many levels, "
            "but optim.batch_size has 2, optim.lr has 3",
            id="unequal-lengths",
        ),
        pytest.param(
            [LR],
            [["optim.batch_size", "optim.lr"]],
            "study.coupled=[[optim.batch_size,optim.lr]]: optim.batch_size has no levels; "
            "list them, optim.batch_size=VALUE,VALUE",
            id="without-levels",
        ),
        pytest.param(
            [LR],
            [["optim.lr", "optim.lr"]],
            "study.coupled=[[optim.lr,optim.lr]]: optim.lr is named twice; a key belongs to one factor",
            id="twice-in-one-set",
        ),
        pytest.param(
            [RANK, BATCH, LR],
            [["optim.batch_size", "optim.lr"], ["lora.rank", "optim.lr"]],
            "study.coupled=[[lora.rank,optim.lr]]: optim.lr is named twice; a key belongs to one factor",
            id="in-two-sets",
        ),
    ],
)
def test_couplings_that_make_no_sense_are_refused(axes: list[Axis], coupled: list[list[str]], expected: str) -> None:
    assert problems(axes, coupled) == [expected]


def test_all_couplings_are_looked_at() -> None:
    found = problems([RANK, LR], [["lora.rank", "lora.dropout"], ["optim.lr", "optim.epochs"]])
    assert len(found) == 2
    assert "lora.dropout has no levels" in found[0]
    assert "optim.epochs has no levels" in found[1]
