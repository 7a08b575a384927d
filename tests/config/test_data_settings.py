"""What may be said of the data: files and lists of them, their weights, the source that a key implies, the template."""

import re
from pathlib import Path
from typing import Any

import pytest

from config.composing import composed, problems
from ftx.config.aliases import FOREIGN_NAMES
from ftx.config.checks import FILE_ENDINGS, TEMPLATES
from ftx.config.command_line import parse_command_line
from ftx.config.compose import open_composer
from ftx.config.keys import run_keys, section_names
from ftx.config.resolve import one_or_many, paths_of
from ftx.config.schema import DataConfig
from ftx.config.values import described_keys
from ftx.study.planning import Sketch, sketch_study


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three files of rows, a template and a folder in the working directory."""
    for name in ("a.jsonl", "b.jsonl", "c.jsonl", "rows.xml", "own.jinja"):
        (tmp_path / name).write_text('{"prompt": "a", "completion": "b"}\n')
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)


def sketched(*words: str) -> Sketch:
    line = parse_command_line(["-m", *words])
    with open_composer(line) as composer:
        return sketch_study(line, composer)


@pytest.mark.parametrize(
    ("value", "paths", "recorded"),
    [
        (None, [], None),
        ("a.jsonl", ["a.jsonl"], "a.jsonl"),
        (["a.jsonl"], ["a.jsonl"], "a.jsonl"),
        (["b.jsonl", "a.jsonl"], ["b.jsonl", "a.jsonl"], ["b.jsonl", "a.jsonl"]),
    ],
)
def test_files_are_one_text_or_a_list(value: Any, paths: list[str], recorded: Any) -> None:
    assert paths_of(value) == paths
    assert one_or_many(value) == recorded
    assert paths_of(recorded) == paths


@pytest.mark.parametrize(
    ("typed", "path"),
    [
        ("a.jsonl", "a.jsonl"),
        ("[a.jsonl]", "a.jsonl"),
        ("[b.jsonl,a.jsonl]", ["b.jsonl", "a.jsonl"]),
    ],
)
def test_one_file_is_recorded_as_text(typed: str, path: Any) -> None:
    assert composed(f"data.path={typed}").data.path == path


def test_help_says_what_a_key_of_files_takes() -> None:
    allowed = {name: words for name, _, words, _ in described_keys()}
    for name in ("data.path", "data.eval_path", "data.test_path"):
        assert allowed[name] == "a file or a list of files, written [a.jsonl,b.jsonl], or null"
    assert allowed["data.weights"] == "a list, written [a,b], of a number or null, above 0"
    assert allowed["data.template_kwargs"] == "a mapping"


@pytest.mark.parametrize(
    ("words", "overrides"),
    [
        (["data.path=a.jsonl"], ["data=file", "data.path=a.jsonl"]),
        (["seed=1", "++data.path=a.jsonl"], ["data=file", "seed=1", "++data.path=a.jsonl"]),
        (["data.path=a.jsonl,b.jsonl"], ["data=file", "data.path=a.jsonl,b.jsonl"]),
        (["data.name=some/rows"], ["data=hub", "data.name=some/rows"]),
        (["data.path=a.jsonl", "data.name=x"], ["data=file", "data.path=a.jsonl", "data.name=x"]),
        (["debug=smoke", "data.path=a.jsonl"], ["data=file", "debug=smoke", "data.path=a.jsonl"]),
        (["study.name=x", "data.path=a.jsonl"], ["data=file", "study.name=x", "data.path=a.jsonl"]),
    ],
)
def test_a_file_or_a_name_says_where_rows_come_from(words: list[str], overrides: list[str]) -> None:
    assert parse_command_line(words).overrides == overrides
    assert parse_command_line(overrides).overrides == overrides  # a recorded command means itself


@pytest.mark.parametrize(
    "words",
    [
        ["data.path=a.jsonl", "data=orders"],
        ["data=hub", "data.name=x"],
        ["data=orders,file", "data.path=a.jsonl"],
        ["+data=file", "data.path=a.jsonl"],
        ["data.path=a.jsonl", "study=mine"],
        ["+study=mine", "data.name=x"],
        ["data.eval_path=a.jsonl"],
        ["data.path_of=a.jsonl"],
        [],
    ],
    ids=" ".join,
)
def test_nothing_is_added_where_the_source_is_typed_or_not_implied(words: list[str]) -> None:
    assert parse_command_line(words).overrides == words


def test_the_implied_source_is_composed_for_runs_and_studies() -> None:
    assert composed("data.path=a.jsonl").data.source == "file"
    assert composed("data.name=some/rows").data.source == "hub"
    sketch = sketched("data.path=a.jsonl,b.jsonl")
    assert sketch.base[:2] == ("data=file", "data.path=a.jsonl")
    assert [arm.label for arm in sketch.design.arms] == ["baseline", "data.path=b.jsonl"]


@pytest.mark.parametrize(
    ("typed", "labels"),
    [
        ("a.jsonl,[a.jsonl],b.jsonl", ["baseline", "data.path=b.jsonl"]),
        ("[a.jsonl],[b.jsonl,c.jsonl]", ["baseline", "data.path=[b.jsonl,c.jsonl]"]),
        ("[a.jsonl,b.jsonl],[b.jsonl,a.jsonl]", ["baseline", "data.path=[b.jsonl,a.jsonl]"]),
        ("[a.jsonl,b.jsonl]", ["baseline"]),
    ],
)
def test_levels_of_files(typed: str, labels: list[str]) -> None:
    assert [arm.label for arm in sketched(f"data.path={typed}").design.arms] == labels


def test_an_arm_holds_its_files_as_they_are_recorded() -> None:
    one, two = (arm.changes for arm in sketched("data.path=[a.jsonl],[b.jsonl],[b.jsonl,c.jsonl]").design.arms[1:])
    assert [(change.baseline, change.value) for change in one] == [("a.jsonl", "b.jsonl")]
    assert [(change.baseline, change.value) for change in two] == [("a.jsonl", ["b.jsonl", "c.jsonl"])]


@pytest.mark.parametrize("ending", [f"{kind}{packed}" for kind in FILE_ENDINGS for packed in ("", ".gz")])
def test_files_of_these_kinds_are_taken(ending: str) -> None:
    Path(f"rows{ending}").write_text("")
    assert composed(f"data.path=rows{ending}").data.path == f"rows{ending}"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["data.path=nowhere.jsonl"],
            "data.path=nowhere.jsonl: no such file; expected one that ends in .jsonl, .json,",
        ),
        (["data.path=[a.jsonl,nowhere.jsonl]"], "data.path=nowhere.jsonl: no such file"),
        (["data.path=[a.jsonl,folder]"], "data.path=folder: is a folder"),
        (["data.path=a.jsonl", "data.eval_path=[b.jsonl,rows.xml]"], "data.eval_path=rows.xml: expected one that ends"),
        (["data.path="], "data.path is empty"),
        (["data.path=a.jsonl", "data.test_path=[b.jsonl,'']"], "data.test_path is empty"),
        (["data.path=[a.jsonl,./a.jsonl]"], "data.path names ./a.jsonl twice: name it once (data.weights says"),
        (
            ["data.path=[a.jsonl,folder/../a.jsonl]", "data.allow_overlap=true"],
            "data.path names folder/../a.jsonl twice",
        ),
        (["data.path=a.jsonl", "data.eval_path=[b.jsonl,b.jsonl]"], "data.eval_path names b.jsonl twice"),
        (
            ["data.path=[a.jsonl,b.jsonl]", "data.eval_path=b.jsonl"],
            "data.eval_path=b.jsonl is also a file of data.path:",
        ),
        (
            ["data.path=a.jsonl", "data.eval_path=b.jsonl", "data.test_path=[c.jsonl,b.jsonl]"],
            "data.test_path=b.jsonl is also a file of data.eval_path:",
        ),
        (["data=hub", "data.name=x", "data.eval_path=a.jsonl"], "data.eval_path belongs to data=file; data=hub takes"),
        (["data=orders", "data.path=[a.jsonl,b.jsonl]"], "data.path=[a.jsonl,b.jsonl] inside data=orders"),
        (["data.path=[a.jsonl,b.jsonl]", "data.weights=[1]"], "data.weights=[1] has 1 numbers for 2 in data.path"),
        (["data.path=a.jsonl", "data.weights=[2,0.5]"], "data.weights=[2,0.5] has 2 numbers for 1 in data.path"),
        (["data.weights=[2]"], "data.weights is set, but only data=file mixes files"),
        (["data=hub", "data.name=x", "data.weights=[2]"], "data.weights is set, but only data=file mixes files"),
        (["data.path=a.jsonl", "data.split=dev"], "data.split is set, but only data=hub has splits"),
        (
            ["data.path=a.jsonl", "data.eval_path=b.jsonl", "data.group_by=id"],
            "data.group_by is set, but the validation",
        ),
        (
            ["data=hub", "data.name=x", "data.eval_split=dev", "data.group_by=id"],
            "data.group_by is set, but the valida",
        ),
        (["data.group_by=id"], "data.group_by is set, but the validation rows are given"),
        (["data.on_bad_row=skip"], "data.on_bad_row is set, but data=orders has no bad rows"),
        (["data.template=plian"], "data.template=plian: no such file; expected one of model, training, plain, or a"),
        (["data.template=folder"], "data.template=folder: no such file"),
        (["data.template="], "data.template is empty"),
        (["data.template_kwargs={a: 1, tokenize: true}"], "data.template_kwargs.tokenize: ftx sets that itself"),
        (["data.template_kwargs.tools=[]"], "data.template_kwargs.tools: ftx sets that itself"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_settings_of_data_that_cannot_be(words: list[str], expected: str) -> None:
    (problem,) = problems(*words)
    assert problem.startswith(expected)


def test_every_wrong_file_is_named_at_once() -> None:
    assert len(problems("data.path=[x.jsonl,rows.xml,a.jsonl]", "data.eval_path=[a.jsonl,folder]")) == 4


@pytest.mark.parametrize(
    "words",
    [
        ["data.path=[a.jsonl,b.jsonl]", "data.eval_path=b.jsonl", "data.allow_overlap=true"],
        ["data.path=[a.jsonl,b.jsonl]", "data.weights=[2,0.5]"],
        ["data.path=a.jsonl", "data.group_by=id", "data.on_bad_row=skip"],
        ["data=hub", "data.name=x", "data.split=dev", "data.group_by=id"],
        ["data=orders", "data.template=own.jinja", "data.template_kwargs={thinking: false}"],
        *([f"data.template={name}"] for name in TEMPLATES),
    ],
    ids=" ".join,
)
def test_settings_of_data_that_make_sense(words: list[str]) -> None:
    composed(*words)


def test_the_rows_of_a_file_may_count_several_times() -> None:
    assert composed("data.path=a.jsonl", "data.weights=[2]").data.weights == [2.0]
    assert composed("data.path=[a.jsonl,b.jsonl]", "data.weights=[1,1]").data.weights is None  # as without
    sketch = sketched("data.path=[a.jsonl,b.jsonl]", "data.weights=[1,1],[2,1]")
    assert [arm.label for arm in sketch.design.arms] == ["baseline", "data.weights=[2.0,1.0]"]


@pytest.mark.parametrize(
    "word",
    [
        "data.template_kwargs={thinking: false}",
        "data.template_kwargs.thinking=false",
        "+data.template_kwargs.thinking=false",
        "++data.template_kwargs={thinking: false}",
    ],
)
def test_a_template_is_told_anything(word: str) -> None:
    assert composed(word).data.template_kwargs == {"thinking": False}
    assert composed(word, "data.template_kwargs.more.inner=[1,x]").data.template_kwargs == {
        "thinking": False,
        "more": {"inner": [1, "x"]},
    }


@pytest.mark.parametrize(
    "word",
    [
        "data.template_kwargs={thinking: true},{thinking: false}",
        "data.template_kwargs.thinking=true,false",
    ],
)
def test_what_a_template_is_told_can_be_varied(word: str) -> None:
    assert composed("-m", word).data.template_kwargs == {"thinking": True}
    changes = [arm.changes for arm in sketched(word).design.arms]
    found = [[(change.key, change.value) for change in each] for each in changes]
    assert found == [
        [],
        [("data.template_kwargs.thinking", True)],
        [("data.template_kwargs.thinking", False)],
    ]


def test_levels_of_what_a_template_is_told_stand_beside_what_is_fixed() -> None:
    """Hydra merges a mapping into one that is there, for an arm of a study as for a run of its own."""
    fixed, typed = "data.template_kwargs.date=today", "data.template_kwargs={thinking: true}"
    assert composed(fixed, typed).data.template_kwargs == {"date": "today", "thinking": True}
    option = Path("conf/data/mine.yaml")
    option.parent.mkdir(parents=True)
    option.write_text("source: file\npath: a.jsonl\ntemplate_kwargs:\n  date: today\n")
    sketch = sketched("data=mine", f"{typed},{{thinking: false}}")
    assert [[change.key for change in arm.changes] for arm in sketch.design.arms] == [
        [],
        ["data.template_kwargs.thinking"],
        ["data.template_kwargs.thinking"],
    ]


def test_a_mapping_of_data_under_m_may_hold_what_the_template_is_told() -> None:
    config = composed("-m", "data=file", "data={path: [a.jsonl, b.jsonl], template_kwargs: {thinking: false}}")
    assert (config.data.path, config.data.template_kwargs) == (["a.jsonl", "b.jsonl"], {"thinking": False})


def test_overlap_is_refused_unless_allowed() -> None:
    assert DataConfig().allow_overlap is False
    assert composed("data.allow_overlap=true").data.allow_overlap is True


def test_names_from_elsewhere_are_answered_with_names_that_exist() -> None:
    real = {*run_keys(), *section_names()}
    named = {word for answer in FOREIGN_NAMES.values() for word in re.findall(r"\b[a-z]+\.[a-z0-9_.]*[a-z0-9]", answer)}
    named = {word for word in named if word.split(".")[0] in section_names()}
    assert len(named) > 20
    assert {word for word in named if word not in real and not word.startswith("data.template_kwargs.")} == set()
