"""From a command line to a checked configuration; every refusal names the field, the value and the remedy."""

from pathlib import Path

import pytest

from config.composing import composed, problems
from ftx.config.checks import announcements
from ftx.config.command_line import CommandLine, packaged_config_dir, parse_command_line
from ftx.config.compose import open_composer
from ftx.errors import ConfigError
from ftx.study.planning import sketch_study


def test_defaults_are_those_of_the_field() -> None:
    config = composed()
    assert (config.seed, config.lora.rank, config.lora.alpha, config.lora.dropout) == (0, 16, 32.0, 0.05)
    assert config.lora.target_modules == ["all-linear"]
    assert (config.optim.lr, config.optim.scheduler, config.optim.warmup_ratio) == (2e-4, "cosine", 0.03)
    assert (config.model.name, config.data.name) == ("tiny", "orders")
    assert (config.metric.name, config.metric.direction, config.metric.at) == ("eval_loss", "min", "best")


@pytest.mark.parametrize("spelling", ["1e-4", "1E-4", "'1e-4'", "0.0001", ".0001"])
def test_a_number_is_a_float_however_it_is_spelled(spelling: str) -> None:
    assert composed(f"optim.lr={spelling}").optim.lr == 0.0001


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("optim.lrr=1e-3", "optim.lrr: no such key. Did you mean optim.lr?"),
        ("+optim.lrr=1e-3", "optim.lrr: no such key. Did you mean optim.lr?"),
        ("++lora.rnak=8", "lora.rnak: no such key. Did you mean lora.rank?"),
        ("rank=8", "rank: no such key. Did you mean lora.rank?"),
        ("learning_rate=1e-3", "learning_rate: no such key. Did you mean optim.lr?"),
        ("training.learning_rate=1e-3", "training.learning_rate: no such key. Did you mean optim.lr?"),
        ("lora_r=8", "lora_r: no such key. Did you mean lora.rank?"),
        ("num_train_epochs=1", "num_train_epochs: no such key. Did you mean optim.epochs?"),
        ("val_set_size=0.1", "val_set_size: no such key. Did you mean data.eval_fraction?"),
        ("lora.rank=-1", "lora.rank must be at least 1 and at most 4096, got -1"),
        ("lora.rank=64.5", "lora.rank must be a whole number, got 64.5"),
        ("lora.rank=true", "lora.rank must be a whole number, got true"),
        ("optim.lr=fast", "optim.lr must be a number or null, got fast"),
        ("optim.lr=nan", "optim.lr must be a finite number, got nan"),
        ("optim.lr=inf", "optim.lr must be a finite number, got inf"),
        ("optim.epochs=1e9", "optim.epochs must be above 0 and at most 10000, got 1000000000"),
        ("optim.scheduler=cosin", "optim.scheduler must be one of cosine, linear, constant; got cosin"),
        ("score.metrics=[bleu]", "score.metrics must be one of exact_match; got bleu"),
        ("lora=lorra", "lora=lorra: no such option, expected one of dora, none, pissa, rslora, standard"),
        ("lora.target_modules=q_proj", "lora.target_modules must be a list, written [a,b], of text, got q_proj"),
        ("lora.target_modules=q_proj,v_proj", "add -m to run each of them, or write one list as lora.target_modules=["),
        ("lora=8,16", "lora=8,16 lists several values"),
        ("optim={lr: 1, foo: 3}", "optim.foo: no such key."),
        ("data.columns.promt=q", "data.columns.promt: no such key. Did you mean data.columns.prompt?"),
        ("~lora", "~lora: settings cannot be removed"),
        ("data=null", "data=null: no such option, expected one of file, hub, orders"),
        ("hydra.run.dir=x", "hydra.run.dir: ftx makes its run directories itself"),
        ("hydra.job.chdir=true", "hydra.job.chdir: ftx makes its run directories itself"),
        ("data.path=7", "data.path must be a file or a list of files, written [a.jsonl,b.jsonl], or null, got 7"),
        ("data.eval_path=[]", "data.eval_path must be a file or a list of files"),
        ("data.test_path=[a.jsonl,7]", "or null, got [a.jsonl,7]"),
        ("data.path={a: 1}", "data.path must be a file or a list of files"),
        ("data.path=true", "data.path must be a file or a list of files"),
        ("data.path=a.jsonl,b.jsonl", "or write one list as data.path=[a.jsonl,b.jsonl]"),
        ("data.weights=2", "data.weights must be a list, written [a,b], of a number or null, got 2"),
        ("data.weights=[1,0]", "data.weights must be above 0, got 0"),
        ("data.weights=[1,inf]", "data.weights must be a finite number, got inf"),
        ("data.allow_overlap=null", "data.allow_overlap must be true or false, got null"),
        ("data.on_bad_row=drop", "data.on_bad_row must be one of error, skip; got drop"),
        ("data.template_kwargs=7", "data.template_kwargs must be a mapping, got 7"),
        ("custom=null", "custom must be a mapping, got null"),
        ("~data.template_kwargs", "~data.template_kwargs: settings cannot be removed"),
        ("data.train_split=train", "data.train_split: no such key. Did you mean data.split?"),
        ("dataset_text_field=q", "dataset_text_field: no such key. Did you mean data.columns.text?"),
        ("enable_thinking=false", "enable_thinking: no such key. Here: data.template_kwargs.enable_thinking=false."),
        ("metric.at=last", "metric.at must be one of best, final; got last"),
        ("checkpoint.save_total_limit=0", "checkpoint.save_total_limit must be at least 1, got 0"),
        ("lora.rank", "lora.rank: expected key=value"),
        ("lora=none", None),
    ],
)
def test_refusals_name_field_value_and_remedy(word: str, expected: str | None) -> None:
    if expected is None:
        composed(word)
        return
    (problem,) = problems(word)
    assert problem.startswith(expected) or expected in problem


@pytest.mark.parametrize(
    "foreign",
    [
        *(
            "per_device_train_batch_size",
            "gradient_accumulation_steps",
            "max_length",
            "load_in_4bit",
            "bf16",
            "packing",
        ),
        *("chat_template", "dataset_num_proc", "conversations", "add_generation_prompt", "assistant_only_loss"),
    ],
)
def test_names_from_elsewhere_get_an_answer(foreign: str) -> None:
    (problem,) = problems(f"{foreign}=1")
    assert "--help" not in problem


def test_all_problems_are_reported_at_once() -> None:
    assert len(problems("optim.lrr=1", "lora.rank=0", "optim=sgdd", "optim.epochs=-1")) == 4


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("data=orders", "data.path=x.jsonl"), "data.path=x.jsonl inside data=orders"),
        (("model.name=other/model",), "model.name=other/model inside model=tiny"),
        (("model=hub",), "model.name is not set"),
        (("model=hub", "model.name=./nowhere"), "model.name=./nowhere: no such folder"),
        (("data=hub",), "data.name is not set"),
        (("data=file",), "data.path is not set"),
        (("data=file", "data.path="), "data.path is empty"),
        (("output_root=",), "output_root is empty"),
        (("labbook=",), "labbook is empty"),
        (("data=file", "data.path=nowhere.jsonl"), "data.path=nowhere.jsonl: no such file"),
        (("lora=none", "lora.rank=8"), "lora.rank is set, but lora=none"),
        (("lora.target_modules=[]",), "lora.target_modules=[] adapts nothing"),
        (("lora=none", "optim=loraplus"), "optim=loraplus gives B its own learning rate"),
        (("hardware.micro_batch_size=3",), "hardware.micro_batch_size=3 does not divide optim.batch_size=8"),
        (("metric.name=exact_match", "score=none"), "metric: exact_match is not computed"),
        (("metric.direction=max",), "metric.direction=max contradicts eval_loss"),
        (("early_stop.min_delta=0.1",), "early_stop.min_delta is set without early_stop.patience"),
        (("data.split_seed=1",), "data.split_seed is set, but the validation rows are given"),
        (("data.eval_fraction=0.5",), "data.eval_fraction is set, but the validation rows are given"),
        (("data.columns.prompt=q",), "data.columns.prompt is set, but data=orders has its own columns"),
        (("data=orders", "data.name=other"), "data.name=other inside data=orders"),
        (("optim=adafactor", "optim.beta1=0.8"), "optim.beta1 is set, but optim=adafactor"),
        (("optim.loraplus_ratio=4",), "optim.loraplus_ratio is set, but only optim=loraplus"),
        (("model.dtype=fp32", "hardware.precision=bf16"), "model.dtype=fp32 and hardware.precision=bf16 contradict"),
        (("model.dtype=bf16", "hardware.precision=fp32"), "model.dtype=bf16 and hardware.precision=fp32 contradict"),
        (("hardware.device=tpu",), "hardware.device must be auto, cpu, cuda, cuda:N or mps; got tpu"),
    ],
)
def test_settings_that_contradict_each_other(words: tuple[str, ...], expected: str) -> None:
    assert any(problem.startswith(expected) for problem in problems(*words))


def test_one_file_for_training_and_validation_is_refused(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "a", "completion": "b"}\n')
    words = ("data=file", f"data.path={rows}", f"data.eval_path={tmp_path}/./rows.jsonl")
    assert any("is also a file of data.path" in problem for problem in problems(*words))


def test_custom_keys_are_free() -> None:
    assert composed("custom.beta=0.1", "+custom.inner.x=[1,2]").custom == {"beta": 0.1, "inner": {"x": [1, 2]}}


@pytest.mark.parametrize(
    "text", ["it's a test", "rank 8, then 16 (maybe)", 'say "x"', "back\\slash", "end\\", "o\\'clock", "a=b", "null "]
)
def test_prose_needs_no_quotes_of_hydras_grammar(text: str) -> None:
    assert composed(f"notes={text}", f"hypothesis={text}").notes == text
    assert composed("notes='quoted, text'").notes == "quoted, text"


def test_a_group_of_keys_can_be_given_as_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}")
    words = ("data=file", f"data.path={tmp_path}/rows.jsonl", "data.columns={prompt: question}")
    assert composed(*words).data.columns.prompt == "question"


@pytest.mark.parametrize(
    ("variant", "alpha", "scaling"),
    [("standard", 128.0, 2.0), ("dora", 128.0, 2.0), ("pissa", 64.0, 1.0), ("rslora", 64.0, 8.0)],
)
def test_alpha_follows_the_rank_so_that_the_scaling_stays(variant: str, alpha: float, scaling: float) -> None:
    from ftx.config.resolve import scaling as scaling_of

    config = composed(f"lora={variant}", "lora.rank=64")
    assert config.lora.alpha == alpha
    assert scaling_of(variant, 64, alpha) == scaling
    default = composed(f"lora={variant}")
    assert default.lora.alpha is not None
    assert scaling_of(variant, 16, default.lora.alpha) == scaling


def test_an_alpha_of_ones_own_stays() -> None:
    assert composed("lora.rank=64", "lora.alpha=16").lora.alpha == 16


def test_all_weights_have_a_learning_rate_of_their_own() -> None:
    assert composed("lora=none").optim.lr == 2e-5
    assert composed("lora=none", "optim.lr=1e-3").optim.lr == 1e-3


def test_data_seed_follows_the_seed_unless_set() -> None:
    assert composed("seed=7").data_seed == 7
    assert composed("seed=7", "data_seed=1").data_seed == 1


def test_every_option_of_conf_composes(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "a", "completion": "b"}\n')
    needs = {
        "model/hub": ["model.name=some/model"],
        "data/file": [f"data.path={rows}"],
        "data/hub": ["data.name=some/data"],
        "score/none": [],
    }
    options = sorted(file.relative_to(packaged_config_dir()) for file in packaged_config_dir().glob("*/*.yaml"))
    assert len(options) > 20
    for option in options:
        group, name = option.parent.name, option.stem
        words = [f"{group}={name}", *needs.get(f"{group}/{name}", [])]
        if (group, name) == ("model", "smollm2"):
            words.append(f"model.name={packaged_config_dir()}")  # the weights are fetched separately
            assert any("not a saved model" in problem for problem in problems(*words))
            continue
        if group == "study":
            assert problems(*words) == [f"study={name}: a study is several runs; add -m"]
            words = ["-m", *words]
            line = parse_command_line(words)
            with open_composer(line) as composer:
                assert len(sketch_study(line, composer).design.trials) > 1
        composed(*words)


def test_a_folder_of_ones_own_adds_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf" / "optim").mkdir(parents=True)
    (tmp_path / "conf" / "optim" / "mine.yaml").write_text("name: adamw\nlr: 3e-3\n")
    monkeypatch.chdir(tmp_path)
    assert composed("optim=mine").optim.lr == 3e-3
    (tmp_path / "conf" / "optim" / "typo.yaml").write_text("name: adamw\nlrr: 3e-3\n")
    with pytest.raises(ConfigError, match="lrr"):
        composed("optim=typo")


def test_an_option_of_ones_own_never_hides_behind_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf" / "lora").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    ours = (packaged_config_dir() / "lora" / "standard.yaml").read_text()
    (tmp_path / "conf" / "lora" / "standard.yaml").write_text(ours)
    assert composed("lora=standard").lora.rank == 16
    (tmp_path / "conf" / "lora" / "standard.yaml").write_text(ours + "rank: 64\n")
    assert "conf/lora/standard.yaml: ftx has an option of that name" in problems("lora=standard")[0]


def test_a_folder_with_signs_of_hydras_grammar_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a=1, (b)" / "conf" / "optim"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("lr: 1e-3\n")
    monkeypatch.chdir(folder.parents[1])
    assert composed("optim=mine").optim.lr == 1e-3


def test_flags_may_stand_anywhere() -> None:
    line = parse_command_line(["lora.rank=8", "-m", "seed=0,1", "--json", "--config-dir=x"])
    assert line == CommandLine(["lora.rank=8", "seed=0,1"], multirun=True, json=True, config_dir="x")


@pytest.mark.parametrize("words", [["--fast"], ["--config-dir"], ["--run"], ["-cn", "x"], ["--json", "--cfg", "job"]])
def test_flags_that_make_no_sense_are_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError):
        parse_command_line(words)


def test_hydras_views_may_leave_out_their_kind() -> None:
    assert parse_command_line(["--info", "lora.rank=8"]).view == ["--info", "all"]
    assert parse_command_line(["--info", "defaults-tree"]).view == ["--info", "defaults-tree"]
    assert parse_command_line(["--cfg=hydra"]).view == ["--cfg", "hydra"]


def test_contradictions_are_looked_for_in_every_job_of_a_sweep(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    assert composed("-m", "data=file", f"data.path={tmp_path}/a.jsonl,{tmp_path}/b.jsonl").data.path
    assert "lora.rank is set, but lora=none" in problems("-m", "lora=standard,none", "lora.rank=8")[0]


def test_announcements(tmp_path: Path) -> None:
    own = tmp_path / "rows.jsonl"
    own.touch()
    assert announcements(composed()) == []
    assert "knows nothing but sentences" in announcements(composed(f"data.path={own}"))[0]


def test_levels_of_a_sweep_are_checked_one_by_one() -> None:
    assert problems("-m", "lora.rank=8,0,x") == [
        "lora.rank must be at least 1 and at most 4096, got 0 (lora=none fine-tunes all weights instead)",
        "lora.rank must be a whole number, got x (lora=none fine-tunes all weights instead)",
    ]
    assert "under -m a comma separates runs" in problems("-m", "lora.target_modules=q_proj,v_proj")[0]
