"""What may be said of a study, and which overrides are refused with the right spelling."""

from pathlib import Path

import pytest

from config.composing import problems
from ftx.config.checks import study_problems
from ftx.config.command_line import group_options, parse_command_line
from ftx.config.compose import compose_run, open_composer, to_study_config
from ftx.config.overrides import override_problems
from ftx.config.schema import StudyConfig


def refusals(word: str, *, multirun: bool = True) -> list[str]:
    return override_problems([word], group_options(parse_command_line([])), multirun=multirun)


@pytest.mark.parametrize(
    "study",
    [
        StudyConfig(),
        StudyConfig(slots="1"),
        StudyConfig(slots="16"),
        StudyConfig(name="rank_2026-01.v2"),
        StudyConfig(name="x" * 80),
        StudyConfig(replicates=["seed", "data_seed"], coupled=[["lora.rank", "optim.lr"]]),
    ],
    ids=["defaults", "one-slot", "slots", "name", "longest-name", "replicates-and-coupled"],
)
def test_studies_that_make_sense(study: StudyConfig) -> None:
    assert study_problems(study) == []


@pytest.mark.parametrize("slots", ["0", "-1", "2.5", "many", "", "Auto"])
def test_slots_are_auto_or_a_number(slots: str) -> None:
    assert study_problems(StudyConfig(slots=slots)) == [
        f"study.slots must be auto or a whole number of at least 1, got {slots}"
    ]


@pytest.mark.parametrize(
    ("replicates", "expected"),
    [
        ([], ["study.replicates=[] repeats nothing; [seed] is the default"]),
        (["sed"], ["study.replicates: sed is not a key of a run that the schema knows; did you mean seed?"]),
        (
            ["seed", "optim.lrr"],
            ["study.replicates: optim.lrr is not a key of a run that the schema knows; did you mean optim.lr?"],
        ),
        (["optim"], ["study.replicates: optim is not a key of a run that the schema knows; did you mean optim.lr?"]),
    ],
    ids=["none", "typo", "second", "section"],
)
def test_replicates_are_keys_of_a_run(replicates: list[str], expected: list[str]) -> None:
    assert study_problems(StudyConfig(replicates=replicates)) == expected


@pytest.mark.parametrize(
    ("name", "nonsense"),
    [("study.slots", "Did you mean study.slots?"), ("custom.fold", "no such key")],
    ids=["of-the-study", "of-ones-own"],
)
def test_a_refused_replicate_key_is_not_suggested_again(name: str, nonsense: str) -> None:
    """Both keys exist. A key under custom. may be taken or refused, but not for not existing."""
    assert not any(nonsense in problem for problem in study_problems(StudyConfig(replicates=[name])))


def test_a_replicate_key_is_named_once() -> None:
    """Crossed with itself, every trial would stand in the plan several times."""
    (problem,) = study_problems(StudyConfig(replicates=["seed", "data_seed", "seed"]))
    assert problem.startswith("study.replicates")
    assert "seed" in problem


def test_a_replicate_key_belongs_to_no_factor() -> None:
    assert study_problems(StudyConfig(coupled=[["lora.rank", "optim.lr"], ["seed", "optim.epochs"]])) == [
        "study.coupled: seed is a replicate key (study.replicates), which belongs to no factor"
    ]
    assert study_problems(StudyConfig(replicates=["data_seed"], coupled=[["seed", "optim.epochs"]])) == []


@pytest.mark.parametrize("name", ["a/b", "../up", "..", ".hidden", "-m", "", "two words", "x" * 81, "a\n"])
def test_a_studys_name_is_a_folder_name(name: str) -> None:
    (problem,) = study_problems(StudyConfig(name=name))
    assert problem.startswith("study.name must be a folder name")
    assert problem.endswith(f"got {name!r}")


def test_all_problems_of_a_study_are_said_at_once() -> None:
    assert len(study_problems(StudyConfig(slots="no", replicates=[], name="a/b"))) == 3


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("study.slots=no", "study.slots must be auto or a whole number of at least 1, got no"),
        ("study.design=offat", "study.design must be one of ofat, factorial; got offat"),
        ("study.reuse=always", "study.reuse must be one of same, any, never; got always"),
        ("study.replicate_top=0", "study.replicate_top must be at least 1, got 0"),
        ("study.max_hours=0", "study.max_hours must be above 0, got 0"),
        ("study.slot=2", "study.slot: no such key. Did you mean study.slots?"),
        ("study.coupled=[optim.lr,lora.rank]", "study.coupled must be a list of lists, written [[a,b]]"),
        ("study=rank_and_rl", "study=rank_and_rl: no such option"),
    ],
)
def test_what_is_typed_of_a_study_is_checked(word: str, expected: str) -> None:
    (problem,) = problems("-m", word)
    assert problem.startswith(expected)


def test_a_number_of_slots_is_read_as_text() -> None:
    with open_composer(parse_command_line(["-m", "study.slots=2", "study.name=mine"])) as composer:
        study = to_study_config(composer.find(composer.fixed_words()).composed)
    assert (study.slots, study.name, study.replicates) == ("2", "mine", ["seed"])


def test_a_study_file_fills_in_the_axes() -> None:
    with open_composer(parse_command_line(["-m", "study=rank_and_lr", "optim.lr=1e-3,2e-3"])) as composer:
        study = to_study_config(composer.find(composer.fixed_words()).composed)
        words = composer.words_with_axes()
    assert study.axes == {"lora.rank": "8,16,32", "optim.lr": "1e-4,2e-4,5e-4", "seed": "0,1,2"}
    assert words == ["study=rank_and_lr", "optim.lr=1e-3,2e-3", "lora.rank=8,16,32", "seed=0,1,2"]


def test_a_study_file_may_vary_keys_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "mine.yaml").write_text("# @package _global_\nstudy:\n  axes:\n    custom.beta: 0.5,0.1\n")
    line = parse_command_line(["-m", f"--config-dir={tmp_path}", "study=mine"])
    assert compose_run(line).custom == {"beta": 0.5}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("study=rank_and_lr", "study=rank_and_lr: a study is several runs; add -m"),
        ("study.name=x", "study.name=x: a study is several runs; add -m"),
        ("study.axes={lora.rank: '8,16'}", "study.axes={lora.rank: '8,16'}: a study is several runs; add -m"),
        (
            "lora.rank=8,16",
            "lora.rank=8,16 lists several values: add -m to run each of them, or write one list as lora.rank=[8,16]",
        ),
        (
            "lora.target_modules=q_proj,v_proj",
            "lora.target_modules=q_proj,v_proj lists several values: add -m to run each of them, "
            "or write one list as lora.target_modules=[q_proj,v_proj]",
        ),
    ],
)
def test_without_m_there_is_one_run(word: str, expected: str) -> None:
    assert refusals(word, multirun=False) == [expected]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (
            "lora.target_modules=q_proj,v_proj",
            "one list is lora.target_modules=[q_proj,v_proj], several levels are lora.target_modules=[q_proj],[v_proj]",
        ),
        (
            "score.metrics=exact_match,bleu",
            "one list is score.metrics=[exact_match,bleu], several levels are score.metrics=[exact_match],[bleu]",
        ),
        ("data.weights=1,2", "one list is data.weights=[1,2], several levels are data.weights=[1],[2]"),
        ("lora.target_modules=choice(q_proj,v_proj)", "several levels are lora.target_modules=[q_proj],[v_proj]"),
        (
            "lora.target_modules=[q_proj,v_proj],k_proj",
            "several levels are lora.target_modules=[q_proj,v_proj],[k_proj]",
        ),
    ],
    ids=["bare-comma", "choices", "numbers", "choice()", "one-is-a-list"],
)
def test_a_bare_comma_on_a_list_gets_the_right_spelling(word: str, expected: str) -> None:
    (problem,) = refusals(word)
    assert problem.startswith(f"{word}: under -m a comma separates runs")
    assert expected in problem


@pytest.mark.parametrize(
    "word",
    [
        "lora.target_modules=[q_proj],[q_proj,v_proj]",
        "lora.target_modules=[q_proj,v_proj]",
        "score.metrics=[],[exact_match]",
        "data.path=a.jsonl,b.jsonl",
        "data.path=[a.jsonl],[b.jsonl,c.jsonl]",
        "data.path=a.jsonl,[b.jsonl,c.jsonl]",
        "data.weights=null,[1,2]",
        "data.template_kwargs={a: 1},{a: 2}",
        "data.template_kwargs.a=1,2",
        "lora.rank=8,16",
        "lora=standard,dora",
        "optim.max_steps=null,10",
        "seed=range(0,3)",
        "custom.beta=0,0.1",
        "study=rank_and_lr",
        "study.max_runs=4",
        "hydra/launcher=basic",
        "hydra/sweeper=optuna",
        "optim.lr=interval(1e-5,1e-3)",
    ],
)
def test_under_m_these_are_right(word: str) -> None:
    assert refusals(word) == []


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("study=rank_and_lr,seed_noise", "study=rank_and_lr,seed_noise: one study at a time; start each on its own"),
        ("debug=smoke,smoke", "debug=smoke,smoke: one debug at a time; start each on its own"),
        ("name=a,b", "name=a,b: a study does not vary name; give it one value"),
        ("output_root=a,b", "output_root=a,b: a study does not vary output_root; give it one value"),
        ("labbook=a,null", "labbook=a,null: a study does not vary labbook; give it one value"),
        ("hydra/launcher=basic,pool", "hydra/launcher=basic,pool: a study does not vary hydra/launcher;"),
        ("hydra.verbose=true,false", "hydra.verbose=true,false: a study does not vary hydra.verbose;"),
        ("study.max_runs=1,2", "study.max_runs=1,2: a study does not vary study.max_runs; give it one value"),
        ("study.design=ofat,factorial", "study.design=ofat,factorial: a study does not vary study.design;"),
        ("lora.rnk=8,16", "lora.rnk: no such key. Did you mean lora.rank?"),
        ("+lora.rnk=8,16", "lora.rnk: no such key. Did you mean lora.rank?"),
        ("learning_rate=1e-4,2e-4", "learning_rate: no such key. Did you mean optim.lr?"),
        ("lora=standard,dra", "lora=dra: no such option, expected one of dora, none, pissa, rslora, standard; did you"),
        ("data.path=a.jsonl,7", "data.path must be a file or a list of files"),
        ("data.path=[a.jsonl],[]", "data.path must be a file or a list of files"),
        ("data.template_kwargs={a: 1},7", "data.template_kwargs must be a mapping, got 7"),
        ("lora.target_modules=null,[a]", "lora.target_modules must be a list, written [a,b], of text, got null"),
        ("lora.rank=8,0", "lora.rank must be at least 1 and at most 4096, got 0"),
        ("optim.scheduler=cosine,linaer", "optim.scheduler must be one of cosine, linear, constant; got linaer"),
    ],
)
def test_what_a_study_cannot_vary_is_refused(word: str, expected: str) -> None:
    (problem,) = refusals(word)
    assert problem.startswith(expected)


@pytest.mark.parametrize("word", ["lora=glob(*)", "optim.lr=glob(*)"])
def test_hydras_glob_is_refused_in_words(word: str) -> None:
    """Nothing is composed here, so there is nothing to look for; what must not come is a traceback of Hydra's."""
    (problem,) = refusals(word)
    assert "glob" in problem
