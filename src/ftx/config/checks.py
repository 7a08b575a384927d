"""Rules that concern more than one key: what is refused, and what is only announced."""

import difflib
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from ftx.config.keys import WHOLE, flat, run_keys, schema_keys
from ftx.config.resolve import METRIC_DIRECTIONS, paths_of
from ftx.config.schema import RunConfig, StudyConfig
from ftx.config.values import shown

FILE_ENDINGS = (".jsonl", ".json", ".csv", ".parquet")
"""Of data files, each also with .gz behind it."""
TEMPLATES = ("model", "training", "plain")
"""What data.template may be besides a file."""

_SET_BY_FTX = (
    "add_generation_prompt",
    "chat_template",
    "continue_final_message",
    "conversation",
    "max_length",
    "messages",
    "padding",
    "return_dict",
    "return_tensors",
    "tokenize",
    "tools",
    "truncation",
)
_FOLDER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}")
_FETCH_SMOLLM2 = (
    "scripts/fetch_smollm2.py in ftx's repository fetches it; from the Hub it is model=hub "
    "model.name=HuggingFaceTB/SmolLM2-135M-Instruct"
)


def cross_field_problems(config: RunConfig) -> list[str]:
    """Everything in a resolved configuration that contradicts itself, one line each."""
    rules = (
        _empty,
        _metric,
        _model,
        _adapter,
        _optimiser,
        _without_effect,
        _data_source,
        _data_files,
        _weights,
        _template,
        _early_stop,
        _precision,
        _device,
    )
    return [problem for rule in rules for problem in rule(config)]


def study_problems(study: StudyConfig) -> list[str]:
    """Everything in a study's own settings that contradicts itself, one line each."""
    problems = []
    if study.slots != "auto" and not (study.slots.isdigit() and int(study.slots) >= 1):
        problems.append(f"study.slots must be auto or a whole number of at least 1, got {study.slots}")
    if not study.replicates:
        problems.append("study.replicates=[] repeats nothing; [seed] is the default")
    for name in dict.fromkeys(study.replicates):
        if study.replicates.count(name) > 1:
            problems.append(f"study.replicates names {name} {study.replicates.count(name)} times; once is right")
        if name not in run_keys():
            close = difflib.get_close_matches(name, run_keys(), n=1)
            meant = f"did you mean {close[0]}?" if close else "expected one such as seed or data_seed"
            problems.append(f"study.replicates: {name} is not a key of a run that the schema knows; {meant}")
    together = {name for names in study.coupled for name in names}
    problems += [
        f"study.coupled: {name} is a replicate key (study.replicates), which belongs to no factor"
        for name in study.replicates
        if name in together
    ]
    if study.name is not None and not _FOLDER_NAME.fullmatch(study.name):
        problems.append(
            f"study.name must be a folder name of letters, digits, '.', '_' and '-', at most 80, got {study.name!r}"
        )
    return problems


def announcements(config: RunConfig) -> list[str]:
    """What is allowed but may surprise, one line each."""
    lines = []
    if config.model.bundled and config.data.source != "bundled":
        lines.append(
            "The bundled tiny model knows nothing but sentences about orders; on data of your own its numbers only "
            "show that the pipeline works. model=smollm2 is a small real model."
        )
    return lines


def is_local_model(name: str) -> bool:
    """Whether `model.name` means a folder and not a Hub repository."""
    return name.startswith((".", "/", "~")) or Path(name).is_dir()


def _empty(config: RunConfig) -> Iterator[str]:
    settings = flat(asdict(config))
    names = ("path", "eval_path", "test_path", "name", "split", "eval_split", "test_split", "group_by", "template")
    for name in ("output_root", "labbook", "model.name", *(f"data.{name}" for name in names)):
        if "" in paths_of(settings[name]):
            yield f"{name} is empty: give it a value, or leave it out"


def _metric(config: RunConfig) -> Iterator[str]:
    metric = config.metric
    for name in (metric.name, *metric.secondary):
        if name not in METRIC_DIRECTIONS:
            yield f"metric.secondary: {name} is not a metric; expected some of {', '.join(METRIC_DIRECTIONS)}"
        elif name == "exact_match" and name not in config.score.metrics:
            yield "metric: exact_match is not computed; add score.metrics=[exact_match]"
    own = METRIC_DIRECTIONS.get(metric.name)
    if own is not None and metric.direction != own:
        yield f"metric.direction={metric.direction} contradicts {metric.name}, whose direction is {own}; leave it out"


def _model(config: RunConfig) -> Iterator[str]:
    model = config.model
    if model.bundled and (model.name != "tiny" or model.revision):
        given = f"model.revision={model.revision}" if model.revision else f"model.name={model.name}"
        yield f"{given} inside model=tiny, which is bundled: use model=hub model.name=NAME_OR_FOLDER"
    elif model.name is None:
        yield "model.name is not set: model=hub needs model.name=NAME_OR_FOLDER"
    elif not model.bundled and is_local_model(model.name):
        folder = Path(model.name).expanduser()
        if not folder.is_dir():
            remedy = _FETCH_SMOLLM2 if "SmolLM2-135M-Instruct" in model.name else "check the path"
            yield f"model.name={model.name}: no such folder ({remedy})"
        elif not (folder / "config.json").is_file():
            yield f"model.name={model.name}: no config.json in that folder, so it is not a saved model"


def _adapter(config: RunConfig) -> Iterator[str]:
    lora = config.lora
    if lora.variant == "none":
        return
    if not lora.target_modules:
        yield "lora.target_modules=[] adapts nothing; [all-linear] is the default, lora=none trains all weights"
    elif "all-linear" in lora.target_modules and len(lora.target_modules) > 1:
        yield "lora.target_modules: all-linear stands alone; leave it out to name modules one by one"


def _without_effect(config: RunConfig) -> Iterator[str]:
    """Settings that were changed and that nothing would read: two levels of such a key are the same run."""
    data, optim = config.data, config.optim
    given_validation = data.source == "bundled" or data.eval_path is not None or data.eval_split is not None
    rules: list[tuple[bool, tuple[str, ...], str]] = [
        (
            config.lora.variant == "none",
            ("lora.rank", "lora.alpha", "lora.dropout", "lora.target_modules"),
            "lora=none trains all weights without an adapter",
        ),
        (optim.name == "adafactor", ("optim.beta1", "optim.beta2"), "optim=adafactor has no such moments"),
        (optim.name != "loraplus", ("optim.loraplus_ratio",), "only optim=loraplus has two learning rates"),
        (
            given_validation,
            ("data.eval_fraction", "data.split_seed", "data.group_by"),
            "the validation rows are given, nothing is split",
        ),
        (
            data.source == "bundled",
            tuple(name for name in schema_keys() if name.startswith("data.columns.")),
            "data=orders has its own columns: data=file takes yours",
        ),
        (data.source == "bundled", ("data.on_bad_row",), "data=orders has no bad rows"),
        (data.source != "file", ("data.weights",), "only data=file mixes files"),
        (data.source != "hub", ("data.split", "data.eval_split", "data.test_split"), "only data=hub has splits"),
        (data.source != "hub", ("data.revision",), "only data=hub has revisions"),
    ]
    settings = flat(asdict(config), whole=WHOLE)
    for ignored, names, why in rules:
        for name in names:
            if ignored and settings[name] != schema_keys()[name].default:
                yield f"{name} is set, but {why}"


def _optimiser(config: RunConfig) -> Iterator[str]:
    if config.optim.name == "loraplus" and config.lora.variant == "none":
        yield "optim=loraplus gives B its own learning rate, and lora=none has no B: use optim=adamw"
    rows, passes = config.optim.batch_size, config.hardware.micro_batch_size
    if passes is not None and rows % passes:
        yield (
            f"hardware.micro_batch_size={passes} does not divide optim.batch_size={rows}: "
            "an optimiser step is a whole number of passes"
        )


def _data_source(config: RunConfig) -> Iterator[str]:
    data = config.data
    if data.source == "file" and data.path is None:
        yield "data.path is not set: data=file needs data.path=FILE.jsonl"
    if data.source == "file" and data.name is not None:
        yield "data.name belongs to data=hub; data=file takes data.path, data.eval_path, data.test_path"
    if data.source == "hub" and data.name is None:
        yield "data.name is not set: data=hub needs data.name=NAME"
    if data.source == "bundled" and data.name != "orders":
        yield f"data.name={data.name} inside data=orders, which is bundled: use data=hub data.name=NAME"
    for name in ("path", "eval_path", "test_path"):
        value = getattr(data, name)
        if value is not None and data.source == "bundled":
            yield (
                f"data.{name}={shown(value)} inside data=orders, whose other splits are bundled: "
                "use data=file data.path=FILE (and data.eval_path, data.test_path)"
            )
        elif value is not None and data.source == "hub":
            yield f"data.{name} belongs to data=file; data=hub takes data.split, data.eval_split, data.test_split"


def _data_files(config: RunConfig) -> Iterator[str]:
    if config.data.source != "file":
        return
    seen: dict[Path, str] = {}
    expected = f"expected one that ends in {', '.join(FILE_ENDINGS)}, or one of these and .gz"
    for name in ("path", "eval_path", "test_path"):
        for given in filter(None, paths_of(getattr(config.data, name))):
            path = Path(given).expanduser()
            if not path.is_file():
                yield f"data.{name}={given}: {'is a folder' if path.is_dir() else 'no such file'}; {expected}"
            elif not path.name.removesuffix(".gz").endswith(FILE_ENDINGS):
                yield f"data.{name}={given}: {expected}"
            elif (other := seen.get(path.resolve())) == name:
                yield (
                    f"data.{name} names {given} twice: name it once (data.weights says how often the rows of each "
                    "file of data.path stand in an epoch)"
                )
            elif other is not None and not config.data.allow_overlap:
                yield (
                    f"data.{name}={given} is also a file of data.{other}: a model scored on its own training "
                    "rows proves nothing (data.allow_overlap=true, if you mean it)"
                )
            else:
                seen[path.resolve()] = name


def _weights(config: RunConfig) -> Iterator[str]:
    weights, files = config.data.weights, len(paths_of(config.data.path))
    if config.data.source == "file" and weights is not None and len(weights) != files:
        yield f"data.weights={shown(weights)} has {len(weights)} numbers for {files} in data.path: one a file"


def _template(config: RunConfig) -> Iterator[str]:
    template = config.data.template
    if template and template not in TEMPLATES and not Path(template).expanduser().is_file():
        yield f"data.template={template}: no such file; expected one of {', '.join(TEMPLATES)}, or a .jinja file"
    for name in config.data.template_kwargs:
        if name in _SET_BY_FTX:
            yield f"data.template_kwargs.{name}: ftx sets that itself, row by row; leave it out"


def _early_stop(config: RunConfig) -> Iterator[str]:
    if config.early_stop.min_delta and config.early_stop.patience is None:
        yield "early_stop.min_delta is set without early_stop.patience, so nothing would ever stop"


def _precision(config: RunConfig) -> Iterator[str]:
    dtype, precision = config.model.dtype, config.hardware.precision
    if dtype == precision or "auto" in (dtype, precision):
        return
    if config.lora.variant != "none" or dtype == "bf16":
        yield (
            f"model.dtype={dtype} and hardware.precision={precision} contradict each other: the base weights' dtype is "
            "the precision it computes in; set one of them"
        )


def _device(config: RunConfig) -> Iterator[str]:
    device = config.hardware.device
    kind, _, index = device.partition(":")
    if kind not in ("auto", "cpu", "cuda", "mps") or (index and (kind != "cuda" or not index.isdigit())):
        yield f"hardware.device must be auto, cpu, cuda, cuda:N or mps; got {device}"
