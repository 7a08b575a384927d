"""`python scripts/aggregate.py`: what it refuses, with which exit status, and its formats."""

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from effects.asking import Aggregate, arms, without_drawing
from effects.directories import Folder
from ftx.record.ledger import Ledger

SCRIPT = Path(__file__).parents[2] / "scripts" / "aggregate.py"
VALUES = {"base": (0.612, 0.598, 0.605), "r_8 & 50%": (0.609, 0.6, 0.601), "a|b": (0.571, 0.56, 0.566)}


@pytest.fixture
def aggregate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Aggregate:
    monkeypatch.chdir(tmp_path)
    without_drawing(monkeypatch)
    return Aggregate(capsys)


def refused(aggregate: Aggregate, status: int, *words: str) -> str:
    """What stands on stderr; nothing may stand on stdout, and every line is a sentence of ours."""
    answer = aggregate(*words)
    assert (answer.status, answer.out) == (status, ""), answer
    assert re.fullmatch(r"(ftx: .+\n)+", answer.err), answer.err
    return answer.err


def test_the_script_is_the_program(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(arms(**VALUES))
    words = ["--table", "r.csv", "--factor", "arm", "--replicate", "seed", "--metric", "y", "--direction", "max"]
    command = [sys.executable, str(SCRIPT), *words, "--baseline", "base", "--format", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["level"] for row in json.loads(done.stdout)["effects"]] == list(VALUES)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--factor", "arm"], "--factor describes a table: it needs --table FILE"),
        (["--margin", "1", "--status", "s"], "--status describes a table"),
        (["--table", "r.csv"], "--table needs --factor and --metric and --direction too"),
        (["--table", "r.csv", "--study", "s"], "--table stands alone"),
        (["--table", "r.csv", "--runs", "outputs"], "--table stands alone"),
        (["--study", "nosuch"], "--study nosuch: no such study; there are mine"),
    ],
)
def test_wrong_use_is_2(aggregate: Aggregate, tmp_path: Path, words: list[str], said: str) -> None:
    Folder(tmp_path, seeds=1).write()
    assert said in refused(aggregate, 2, *words)


@pytest.mark.parametrize(
    "words", [["--format", "pdf"], ["--direction", "up"], ["--margin", "x"], ["--nosuch"], ["--family", "all"]]
)
def test_an_option_that_is_none_is_2(aggregate: Aggregate, words: list[str]) -> None:
    answer = aggregate(*words)
    assert (answer.status, answer.out) == (2, "")
    assert "usage: " in answer.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "outputs: no such folder"),
        (["--root", "nowhere"], "nowhere: no such folder"),
        (["--runs", "nowhere"], "nowhere: no such folder"),
        (["--table", "r.csv", "--factor", "a", "--metric", "y", "--direction", "min"], "--table r.csv: no such file"),
    ],
)
def test_nothing_there_is_1(aggregate: Aggregate, words: list[str], said: str) -> None:
    assert said in refused(aggregate, 1, *words)


def test_no_study_is_1_and_says_what_to_do(aggregate: Aggregate) -> None:
    Path("outputs").mkdir()
    assert "--runs outputs" in refused(aggregate, 1)
    assert "a comparison needs two" in refused(aggregate, 1, "--runs", "outputs")


def test_a_root_that_is_no_folder_is_1(aggregate: Aggregate) -> None:
    Path("outputs").write_text("")
    assert "outputs: no such folder" in refused(aggregate, 1)


def test_an_unreadable_root_is_1(aggregate: Aggregate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Folder(tmp_path, seeds=1).write()

    def denied(_root: Path) -> Ledger:
        raise PermissionError(13, "Permission denied", "outputs")

    monkeypatch.setattr(Ledger, "scan", denied)
    assert "Permission denied" in refused(aggregate, 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"{", "truncated at byte 1"),
        (b"[]", "expected a JSON object"),
        (b"\xff{}", "not UTF-8"),
        (b'{"schema_version": 99}', "schema_version 99"),
        (b'{"schema_version": 1}', "missing"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_a_damaged_study_is_1(aggregate: Aggregate, tmp_path: Path, content: bytes, said: str, named: bool) -> None:
    Folder(tmp_path, seeds=1).write()
    (tmp_path / "multirun" / "mine" / "study.json").write_bytes(content)
    err = refused(aggregate, 1, *(["--study", "mine"] if named else []))
    assert "multirun/mine/study.json" in err
    assert said in err


@pytest.mark.parametrize(
    "change",
    [
        {"trials": None},
        {"trials": [3]},
        {"factors": [{"name": "a"}]},
        {"factors": "abc"},
        {"metric": {}},
        {"metric": {"name": "eval_loss", "direction": "up"}},
        {"launches": None},
        {"design": "no such design"},
    ],
    ids=["trials", "trial", "factor", "factors", "metric", "direction", "launches", "design"],
)
def test_a_study_with_a_value_of_the_wrong_kind_is_1(
    aggregate: Aggregate, tmp_path: Path, change: dict[str, Any]
) -> None:
    Folder(tmp_path, seeds=1).write()
    path = tmp_path / "multirun" / "mine" / "study.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert "study.json" in refused(aggregate, 1)


def test_a_study_without_trials_is_1(aggregate: Aggregate, tmp_path: Path) -> None:
    Folder(tmp_path, seeds=1).write(trials=[])
    assert "nothing to compare" in refused(aggregate, 1)


def test_all_failed_is_1_with_the_table(aggregate: Aggregate) -> None:
    answer = aggregate.table(arms(a=("", "nan"), b=("", "")))
    assert answer.status == 1
    assert answer.err == "ftx: r.csv: no run finished\n"
    assert {row["n_failed"] for row in json.loads(answer.out)["effects"]} == {2}


@pytest.mark.parametrize(
    "values", [{"a": (1.0,)}, {"a": (1.0, 2.0, 3.0)}, {"a": (1.0,), "b": (2.0,)}], ids=["one-run", "one-arm", "n-is-1"]
)
def test_too_little_is_said_and_no_claim_made(aggregate: Aggregate, values: dict[str, tuple[float, ...]]) -> None:
    answer = aggregate.table(arms(**values))
    rows = answer.rows()
    assert {row["verdict"] for row in rows.values()} <= {None, "not enough seeds"}
    assert {row["p_adjusted"] for row in rows.values()} == {None}
    assert len(values) > 1 or answer.problems("one_arm")
    assert all(row["sd"] is None for row in rows.values() if row["n_ok"] == 1)


def test_a_factor_with_one_level_is_said(aggregate: Aggregate) -> None:
    text = "a,b,seed,y\n" + "".join(f"{a},1,{s},{a + s / 7 + a * s / 99}\n" for a in (1, 2) for s in range(3))
    answer = aggregate.table(text, "--format", "terminal", factors="a b")
    assert answer.status == 0
    assert "b" in answer.out
    rows = aggregate.table(text, factors="a b").rows()
    assert (rows["b", "1"]["is_baseline"], rows["a", "2"]["n_ok"]) == (True, 3)


def test_one_table_of_two_that_cannot_be_made_leaves_the_other(aggregate: Aggregate, tmp_path: Path) -> None:
    folder = Folder(tmp_path).write()
    folder.write(study="empty", trials=[])
    answer = aggregate("--study", "empty", "mine", "--format", "json")
    assert answer.status == 1
    assert "ftx: empty: no runs: nothing to compare" in answer.err
    assert json.loads(answer.out)["study"] == "mine"


@pytest.mark.parametrize("option", [["--looks", "0"], ["--alpha", "0"], ["--alpha", "2"], ["--margin", "-1"]])
def test_a_number_out_of_range_is_wrong_use(aggregate: Aggregate, option: list[str]) -> None:
    answer = aggregate.table(arms(**VALUES), "--baseline", "base", *option)
    assert (answer.status, answer.out) == (2, "")


def test_a_report_that_cannot_be_written_is_said_beside_the_table(aggregate: Aggregate) -> None:
    Path("taken").write_text("a file")
    answer = aggregate.table(arms(**VALUES), "--baseline", "base", "--out", "taken")
    assert len(answer.data["effects"]) == 3
    assert answer.err.startswith("ftx: taken: the report could not be written")


def test_study_and_runs_together_are_wrong_use(aggregate: Aggregate, tmp_path: Path) -> None:
    Folder(tmp_path, seeds=1).write()
    assert aggregate("--study", "mine", "--runs", "outputs").status == 2


# Formats


def shown(aggregate: Aggregate, kind: str) -> str:
    answer = aggregate.table(arms(**VALUES), "--baseline", "base", "--format", kind)
    assert answer.status == 0, answer.err
    return answer.out


def test_json_is_strict_and_unrounded(aggregate: Aggregate) -> None:
    data = json.loads(shown(aggregate, "json"), parse_constant=pytest.fail)
    keys = {"design", "metric", "effects", "f_tests", "seed_correlation", "problems"}
    assert keys <= set(data)
    row_keys = (
        "factor level baseline is_baseline n_planned n_ok n_failed n_missing values mean sd effect se df ci_low "
        "ci_high p_adjusted verdict smallest_detectable_effect seeds_needed cost"
    )
    assert set(row_keys.split()) <= set(data["effects"][0])
    assert data["effects"][1]["mean"] == pytest.approx(sum(VALUES["r_8 & 50%"]) / 3, rel=1e-15)


def test_csv_comes_back_by_pandas(aggregate: Aggregate) -> None:
    data = json.loads(shown(aggregate, "json"))["effects"]
    frame = pd.read_csv(io.StringIO(shown(aggregate, "csv")))
    assert list(frame["level"]) == list(VALUES)
    for place, row in enumerate(data):
        for name in ("mean", "sd", "effect", "ci_low", "p_adjusted"):
            assert frame[name][place] == pytest.approx(
                row[name] if row[name] is not None else float("nan"), nan_ok=True
            )
        assert json.loads(frame["values"][place]) == row["values"]
    assert list(frame["is_baseline"]) == [True, False, False]


def test_markdown_rows_have_as_many_cells_as_the_heading(aggregate: Aggregate) -> None:
    table = [line for line in shown(aggregate, "markdown").splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(VALUES)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {10}
    assert re.fullmatch(r"\|(---\|)+", table[1])


def test_latex_rows_have_as_many_cells_as_columns(aggregate: Aggregate) -> None:
    text = shown(aggregate, "latex")
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 1 + len(VALUES)
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {3}
    assert r"r\_8 \& 50\%" in text
    assert text.count(r"\begin") == text.count(r"\end")


def test_latex_has_balanced_braces_outside_of_comments(aggregate: Aggregate) -> None:
    lines = [re.sub(r"(?<!\\)%.*", "", line) for line in shown(aggregate, "latex").splitlines()]
    text = re.sub(r"\\[{}]", "", "\n".join(lines))
    assert text.count("{") == text.count("}")


def test_several_studies_as_csv_are_one_table(aggregate: Aggregate, tmp_path: Path) -> None:
    folder = Folder(tmp_path).write()
    folder.write(study="second")
    found = aggregate("--study", "mine", "second", "--format", "csv")
    rows = list(csv.reader(io.StringIO(found.out)))
    assert {len(row) for row in rows} == {len(rows[0])}
    assert rows.count(rows[0]) == 1


def test_the_terminal_table_is_readable_where_it_is_piped(aggregate: Aggregate) -> None:
    text = shown(aggregate, "terminal")
    assert "y, higher is better" in text
    assert "within noise" in text
    assert "difference" in text
