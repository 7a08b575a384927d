"""The table of effects as people, papers and machines read it."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ftx.effects.observations import FactorLevels, Metric, Observation, Observations, Problem
from ftx.effects.table import Options, StudyEffects, effects_of
from ftx.report.effects import (
    HEADINGS,
    as_json,
    cells_of,
    effects_csv,
    footer,
    latex,
    markdown,
    number,
    p_value,
    print_effects,
    runs_csv,
    write_effects,
)

BALANCED = {
    16: (0.612, 0.598, 0.605),
    8: (0.609, 0.6, 0.601),
    32: (0.621, 0.604, 0.616),
    64: (0.571, 0.56, 0.566),
    128: (0.618, None, None),
}


def observations(**changes: Any) -> Observations:
    rows = [
        Observation(
            levels={"lora.rank": level},
            replicate=seed,
            status="missing" if value is None else "finished",
            value=value,
            secondary={"exact_match": None if value is None else value / 2},
            cost={"seconds": 20.0 + seed, "peak_memory_bytes": 2**30} if value is not None else {},
            run=None if value is None else f"outputs/rank{level}-s{seed}",
        )
        for level, values in BALANCED.items()
        for seed, value in enumerate(values)
    ]
    given: dict[str, Any] = {
        "name": "rank_study",
        "design": "ofat",
        "metric": Metric("token_accuracy", "max"),
        "factors": (FactorLevels("lora.rank", tuple(sorted(BALANCED)), 16),),
        "rows": tuple(rows),
        "problems": (Problem("differs", "versions differ: lora.rank=8 | not 2.13", ("r1",)),),
        "split": "test",
    }
    return Observations(**given | changes)


@pytest.fixture
def effects() -> StudyEffects:
    return effects_of(observations(), Options())


def printed(found: StudyEffects, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_effects([found], "terminal", console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_what_is_not_comparable_stands_above_the_table(effects: StudyEffects) -> None:
    text = printed(effects)
    assert text.index("differs: versions differ: lora.rank=8") < text.index("token_accuracy on test, higher is better")


def test_a_row_has_a_cell_for_every_heading(effects: StudyEffects) -> None:
    cells = {row.level: dict(zip(HEADINGS, cells_of(row), strict=True)) for row in effects.rows}
    assert cells[16]["verdict"] == "baseline"
    assert [cells[16][name] for name in ("difference", "interval", "p")] == ["", "", ""]
    assert cells[32]["difference"] == "+0.008667"
    assert cells[32]["verdict"] == "better"
    assert cells[8]["verdict"] == "within noise"
    assert re.fullmatch(r"0\.00\d+, \S+ seeds", cells[8]["could find, seeds"])
    assert cells[64]["p"] == "<1e-4"
    assert cells[128]["n"] == "1/3 (0 failed, 2 missing)"
    assert cells[128]["verdict"].startswith("not enough seeds")
    assert (cells[128]["interval"], cells[128]["p"]) == ("", "")


def test_the_baseline_comes_first_and_levels_keep_their_order(effects: StudyEffects) -> None:
    assert [row.level for row in effects.factor_rows("lora.rank")] == [16, 8, 32, 64, 128]


def test_the_cost_stands_beside_it(effects: StudyEffects) -> None:
    text = printed(effects)
    assert "What it costs, a run" in text
    assert "peak MiB" in text
    assert "1,024" in text
    assert "tokens/s" not in text  # nobody knows it here


def test_no_cost_no_table() -> None:
    rows = tuple(
        Observation(levels=row.levels, replicate=row.replicate, status=row.status, value=row.value)
        for row in observations().rows
    )
    assert "What it costs" not in printed(effects_of(observations(rows=rows), Options()))


def test_the_footer_says_how_many_runs_and_how_it_was_adjusted(effects: StudyEffects) -> None:
    (first, *rest) = footer(effects)
    assert first.startswith("13 different runs")
    assert "95.0%" in first
    assert "4 comparisons, adjusted all" in first
    assert any("residual sd" in line and "degrees of freedom" in line for line in rest)
    assert any("best of 4 arms" in line for line in rest)
    by_factor = effects_of(observations(), Options(family="factor", looks=2, margin=0.01))
    assert "adjusted within each factor" in next(footer(by_factor))
    assert "97.5%" in next(footer(by_factor))
    assert any(line.startswith("Seeds to find an effect as large as the margin") for line in footer(by_factor))


@pytest.mark.parametrize(("split", "said"), [("validation", True), ("test", False), (None, False)])
def test_a_value_that_chose_its_own_checkpoint_is_labelled(split: str | None, said: bool) -> None:
    lines = list(footer(effects_of(observations(split=split), Options())))
    assert any("selected and measured on the same rows" in line for line in lines) is said


def test_less_is_better_is_said() -> None:
    assert "lower is better" in printed(effects_of(observations(metric=Metric("eval_loss", "min")), Options()))


def test_brackets_are_printed_and_not_read_as_markup(effects: StudyEffects) -> None:
    odd = observations(problems=(Problem("differs", "template differs: [bold]x[/] [q_proj]"),), name="a [red]b")
    text = printed(effects_of(odd, Options()))
    assert "[bold]x[/] [q_proj]" in text
    assert "a [red]b" in text


def test_json_has_every_row_unrounded_and_null_where_unknown(effects: StudyEffects) -> None:
    data = json.loads(json.dumps(as_json(effects), allow_nan=False))
    rows = {row["level"]: row for row in data["effects"]}
    assert rows[32]["effect"] == pytest.approx(0.008666666666666671, abs=1e-15)
    assert (rows[128]["se"], rows[128]["p_adjusted"], rows[128]["sd"]) == (None, None, None)
    assert rows[16]["secondary"]["exact_match"] == {"mean": 0.3025, "sd": pytest.approx(0.0035), "n": 3}
    assert rows[16]["cost"]["seconds"] == 21.0
    assert data["problems"][0] == {
        "kind": "differs",
        "detail": "versions differ: lora.rank=8 | not 2.13",
        "runs": ["r1"],
    }


def test_csv_has_costs_and_secondary_metrics(effects: StudyEffects) -> None:
    rows = list(csv.DictReader(io.StringIO(effects_csv(effects))))
    assert [row["level"] for row in rows] == ["8", "16", "32", "64", "128"]
    assert float(rows[0]["effect"]) == next(row.effect for row in effects.rows if row.level == 8)
    assert (rows[1]["effect"], rows[1]["is_baseline"], rows[0]["is_baseline"]) == ("", "true", "false")
    assert json.loads(rows[1]["values"]) == [0.612, 0.598, 0.605]
    assert (float(rows[1]["seconds"]), rows[1]["tokens_per_second"]) == (21.0, "")
    assert (float(rows[1]["exact_match_mean"]), rows[4]["exact_match_n"]) == (0.3025, "1")


def test_every_planned_run_is_a_line(effects: StudyEffects) -> None:
    rows = list(csv.DictReader(io.StringIO(runs_csv(effects))))
    assert len(rows) == 15
    assert [row["status"] for row in rows].count("missing") == 2
    assert rows[0]["run"] == "outputs/rank16-s0"
    assert (rows[0]["token_accuracy"], rows[-1]["token_accuracy"], rows[-1]["run"]) == ("0.612", "", "")


def test_markdown_is_a_table_with_escaped_bars(effects: StudyEffects) -> None:
    odd = observations(factors=(FactorLevels("a|b", (16, 8), 16),), problems=())
    rows = tuple(
        Observation(
            levels={"a|b": row.levels["lora.rank"]}, replicate=row.replicate, status=row.status, value=row.value
        )
        for row in odd.rows
        if row.levels["lora.rank"] in (16, 8)
    )
    for found in (effects, effects_of(observations(factors=odd.factors, rows=rows), Options())):
        lines = [line for line in markdown(found).splitlines() if line.startswith("|")]
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {len(HEADINGS) + 1}
        assert len(lines) == 2 + len(found.rows)
    assert "- differs: versions differ" in markdown(effects)


def test_latex_is_arms_by_metrics(effects: StudyEffects) -> None:
    text = latex(effects)
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {4}
    assert rows[0] == r"factor & level & token\_accuracy & exact\_match &  \\"
    assert rows[1] == r"lora.rank & 16 & $0.605 \pm 0.007$ & $0.3025 \pm 0.0035$ & base \\"
    assert rows[-1] == r"lora.rank & 128 & $0.618$ & $0.309$ & ? \\"
    assert "n = 1 to 3 runs" in text
    assert r"rank\_study" in text
    assert "\\usepackage{booktabs}" in text


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a_b", r"a\_b"),
        ("50%", r"50\%"),
        ("R&D", r"R\&D"),
        ("#1 $x {y}", r"\#1 \$x \{y\}"),
        pytest.param("a\\b", r"a\textbackslash{}b"),
        pytest.param("2^8", r"2\textasciicircum{}8"),
        pytest.param("a~b", r"a\textasciitilde{}b"),
    ],
)
def test_latex_characters_are_escaped(text: str, escaped: str) -> None:
    assert escaped in latex(effects_of(observations(name=text), Options()))


def test_the_latex_caption_is_closed_on_its_line(effects: StudyEffects) -> None:
    (caption,) = (line for line in latex(effects).splitlines() if line.startswith("\\caption"))
    kept = re.sub(r"(?<!\\)%.*", "", caption)
    assert kept.count("{") == kept.count("}")


def test_the_latex_level_allows_for_the_looks() -> None:
    assert "97" in latex(effects_of(observations(), Options(looks=2))).split("simultaneous")[1].split("%")[0]


def test_all_files_are_written(effects: StudyEffects, tmp_path: Path) -> None:
    write_effects(effects, tmp_path / "new" / "report")
    texts = {path.name: path for path in (tmp_path / "new" / "report").iterdir()}
    assert {"effects.csv", "runs.csv", "effects.json", "report.md", "table.tex"} <= set(texts)
    assert json.loads(texts["effects.json"].read_text())["study"] == "rank_study"
    assert texts["table.tex"].read_text() == latex(effects)
    assert texts["effects.csv"].read_text() == effects_csv(effects)


@pytest.mark.parametrize("kind", ["json", "csv", "markdown", "latex"])
def test_a_format_alone_stands_on_stdout(effects: StudyEffects, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_effects([effects], kind, Console(file=io.StringIO()))
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith({"json": "{", "csv": "study,factor,", "markdown": "# rank_study", "latex": "% needs"}[kind])
    assert out.endswith("\n")


def test_several_studies_are_a_list_of_objects(effects: StudyEffects, capsys: pytest.CaptureFixture[str]) -> None:
    print_effects([effects, effects], "json", Console(file=io.StringIO()))
    assert len(json.loads(capsys.readouterr().out)) == 2


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (0.0, "0"), (0.123456, "0.1235"), (1e-9, "1e-09"), (123456.0, "1.235e+05")]
)
def test_numbers_have_four_digits(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("p", "text"), [(0.0, "<1e-4"), (9.9e-5, "<1e-4"), (1e-4, "0.0001"), (0.0563, "0.056")])
def test_a_tiny_p_is_a_bound(p: float, text: str) -> None:
    assert p_value(p) == text
