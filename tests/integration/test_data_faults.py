"""Faults of data that once ended in a plausible table: each is trained, or refused, the right way."""

import contextlib
import csv
import gzip
import hashlib
import json
import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from effects.asking import Aggregate, without_drawing
from ftx.record.history import Event, read_history
from ftx.record.layout import RunDir
from ftx.record.ledger import Ledger
from ftx.train import start
from processes import SURROUNDINGS, Finished, run_entry

pytestmark = pytest.mark.train

Rows = Sequence[dict[str, Any]]
TINY = Path(str(resources.files("ftx") / "bundled" / "tiny"))
STEADY = ("optim.scheduler=constant", "optim.warmup_ratio=0", "optim.lr=2e-3", "lora.dropout=0")
SMALL = ("score=none", "hardware.threads=1", *STEADY)
TWO_STEPS = ("optim.max_steps=2", *SMALL)
ONE_STEP = ("optim.max_steps=1", "optim.batch_size=64", *SMALL)


def words(number: int, word: str = "is") -> str:
    """A text of so many tokens of the bundled tokenizer."""
    return " ".join([word] * number)


def row(prompt: int, completion: int) -> dict[str, str]:
    """A row of 4 more tokens: <|user|> prompt <|end|> <|assistant|> completion <|end|>."""
    return {"prompt": words(prompt), "completion": words(completion)}


def chat(*roles: str) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": f"{role} {number}"} for number, role in enumerate(roles)]}


def write(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


@dataclass(frozen=True)
class Trained:
    """A finished run."""

    run: RunDir
    out: str

    @property
    def record(self) -> dict[str, Any]:
        return json.loads(self.run.record.read_text())

    @property
    def dataset(self) -> dict[str, Any]:
        return self.record["dataset"]

    @property
    def events(self) -> list[Event]:
        return read_history(self.run.history)[0]

    @property
    def losses(self) -> list[tuple[int, str, float, int | None]]:
        """Every loss, to the last bit, with the number of tokens that it is a mean of where that is known."""
        return [
            (event.step, event.split, event.metrics["loss"], event.metrics.get("target_tokens"))
            for event in self.events
        ]

    def target_tokens(self) -> int:
        """What carried loss in the first step."""
        return next(event.metrics["target_tokens"] for event in self.events if event.split == "train")


def train(folder: Path, root: str, *arguments: str, **more: str) -> Trained:
    """A run that finishes, the newest in `root`."""
    done = run_entry("ftx.train", *arguments, f"output_root={root}", folder=folder, **more)
    assert done.status == 0, done.err + done.out
    newest = Ledger.scan(folder / root).runs[0].run
    return Trained(newest, done.out)


def refused(folder: Path, *arguments: str, module: str = "ftx.train") -> list[str]:
    """What a refusal says, line by line, and that it leaves nothing behind."""
    before = set(folder.iterdir())
    done = run_entry(module, *arguments, folder=folder)
    assert done.status == 2, done.out + done.err
    assert set(folder.iterdir()) == before
    assert "Traceback" not in done.err
    return done.err.splitlines()


def inspected(folder: Path, *arguments: str) -> dict[str, Any]:
    done = run_entry("ftx.inspect", "--json", *arguments, folder=folder)
    assert done.status == 0, done.err
    return json.loads(done.out)


def texts(found: dict[str, Any]) -> list[str]:
    """Every row shown, as one text."""
    return ["".join(piece["text"] for piece in each["pieces"]) for each in found["rows"]]


@pytest.fixture
def aggregate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Aggregate:
    """`ftx.aggregate` in this process, without drawing."""
    without_drawing(monkeypatch)
    return Aggregate(capsys)


# One content, six files.

CONTENT = [
    {"prompt": f'{words(number)}, "please" ä\nnow', "completion": f"{words(number % 5 + 1)}\nü"} for number in range(24)
]


def messy(path: Path) -> None:
    """A BOM, CRLF, three blank lines, no line end at the end."""
    lines = [json.dumps(each, ensure_ascii=False) for each in CONTENT]
    text = "\ufeff\r\n" + "\r\n".join([*lines[:7], "", "  ", *lines[7:]])
    path.write_bytes(text.encode())


def as_csv(path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, ["completion", "prompt"])
        table.writeheader()
        table.writerows(CONTENT)


FORMS: dict[str, Callable[[Path], object]] = {
    "clean.jsonl": lambda path: write(path, CONTENT),
    "messy.jsonl": messy,
    "rows.json": lambda path: path.write_text(json.dumps(CONTENT, indent=1)),
    "rows.csv": as_csv,
    "rows.parquet": lambda path: pq.write_table(pa.Table.from_pylist(CONTENT), path),
    "rows.jsonl.gz": lambda path: path.write_bytes(gzip.compress(write(path, CONTENT).read_bytes())),
}
HALF = "data.eval_fraction=0.25"


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    folder = tmp_path_factory.mktemp("forms")
    found = {}
    for name, make in FORMS.items():
        make(folder / name)
        found[name] = train(folder, f"of-{name}", f"data.path={name}", HALF, *TWO_STEPS)
    return found


@pytest.mark.parametrize("name", list(FORMS)[1:])
def test_a_file_is_its_rows_whatever_its_form(forms: dict[str, Trained], name: str) -> None:
    clean, other = forms["clean.jsonl"], forms[name]
    assert len(clean.losses) == 4  # before, two steps, after
    assert clean.losses == other.losses
    assert clean.record["fingerprint"] == other.record["fingerprint"]
    one, two = clean.dataset, other.dataset
    assert one["content"] == two["content"]
    (file,), (other_file,) = one.pop("files"), two.pop("files")
    differing = {key for key in one if one[key] != two[key]}
    assert differing == {"path", "sha256"}
    blank_lines = {"blank_lines"} if name == "messy.jsonl" else set()
    assert {key for key in file if file[key] != other_file[key]} == {"path", "sha256"} | blank_lines
    assert other_file["blank_lines"] == (3 if blank_lines else 0)
    path = other.run.path.parents[1] / name
    assert two["sha256"] == other_file["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_pad_may_be_the_end_token(forms: dict[str, Trained]) -> None:
    clean = forms["clean.jsonl"]
    folder = clean.run.path.parents[1]
    shutil.copytree(TINY, folder / "padded")
    settings = folder / "padded" / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"pad_token": "<|end|>"}))
    model = ("model=hub", f"model.name={folder / 'padded'}")
    other = train(folder, "of-padded", "data.path=clean.jsonl", HALF, *model, *TWO_STEPS)
    assert other.losses == clean.losses
    saved = json.loads((other.run.adapter / "tokenizer_config.json").read_text())
    assert saved["pad_token"] == saved["eos_token"] == "<|end|>"
    shown = inspected(folder, "data.path=clean.jsonl", HALF, *model, "--rows=30")
    assert all(each["pieces"][-1]["text"].endswith("\nü<|end|>") for each in shown["rows"])
    assert all(each["pieces"][-1]["supervised"] for each in shown["rows"])


# One file, edited between two runs in a way that only its bytes tell.


def edit_in_place(path: Path, old: str, new: str) -> None:
    stat, text = path.stat(), path.read_text()
    assert old in text
    assert len(old) == len(new)
    path.write_text(text.replace(old, new))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)


def entries(folder: Path) -> dict[str, tuple[int, int]]:
    """What the cache holds: each entry with when it was built."""
    found = [path for path in (folder / "cache" / "data").iterdir() if path.name != "locks"]
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


@dataclass(frozen=True)
class Edited:
    folder: Path
    runs: dict[str, Trained]
    entries: dict[str, dict[str, tuple[int, int]]]


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Edited:
    folder = tmp_path_factory.mktemp("edited")
    rows = write(folder / "rows.jsonl", [row(number, 3) for number in range(1, 17)])
    write(folder / "dev.jsonl", [row(30, 2), row(31, 2)])
    runs, cached = {}, {}
    for name, *more in (
        ("before",), ("again",), ("after",), ("uncached", "data.cache_gb=0"), ("unrehearsed", "preflight=false"),
    ):  # fmt: skip
        if name == "after":
            edit_in_place(rows, '"completion": "is is is"', '"completion": "is it is"')
        files = ("data.path=rows.jsonl", "data.eval_path=dev.jsonl")
        cache = str(folder / "cache")
        runs[name] = train(folder, name, *files, *more, *TWO_STEPS, FTX_CACHE=cache)
        cached[name] = entries(folder)
    return Edited(folder, runs, cached)


def test_an_edit_that_only_the_bytes_tell_is_trained(edited: Edited) -> None:
    before, after = edited.runs["before"], edited.runs["after"]
    assert before.dataset["sha256"] != after.dataset["sha256"]
    assert after.dataset["sha256"] == hashlib.sha256((edited.folder / "rows.jsonl").read_bytes()).hexdigest()
    assert before.dataset["content"]["train"]["ordered"] != after.dataset["content"]["train"]["ordered"]
    assert before.dataset["content"]["validation"] == after.dataset["content"]["validation"]
    prints = [run.record["fingerprint"] for run in (before, after)]
    assert prints[0]["train"] != prints[1]["train"]
    assert prints[0]["evaluation"] == prints[1]["evaluation"]
    (start, step, *_), (other_start, other_step, *_) = before.losses, after.losses
    assert start == other_start
    assert step[2] != other_step[2]
    shown = inspected(edited.folder, "data.path=rows.jsonl", "data.eval_path=dev.jsonl", "--rows=1")
    assert texts(shown)[0] == "<|user|>is<|end|><|assistant|>is it is<|end|>"


def test_a_second_run_builds_nothing_and_is_the_same(edited: Edited) -> None:
    assert edited.runs["again"].losses == edited.runs["before"].losses
    assert len(edited.entries["before"]) == 1
    assert edited.entries["again"] == edited.entries["before"]
    assert len(edited.entries["after"]) == 2
    assert edited.entries["before"].items() <= edited.entries["after"].items()


@pytest.mark.parametrize("name", ["uncached", "unrehearsed"])
def test_neither_cache_nor_rehearsal_changes_a_bit(edited: Edited, name: str) -> None:
    run, usual = edited.runs[name], edited.runs["after"]
    assert run.losses == usual.losses
    assert run.record["fingerprint"] == usual.record["fingerprint"]
    assert edited.entries[name] == edited.entries["after"]
    assert ("longest batch: 8 rows of " in run.out) == (name == "uncached")
    assert "longest batch: 8 rows of " in usual.out


def test_runs_on_other_evaluation_rows_are_not_averaged_in_silence(aggregate: Aggregate, edited: Edited) -> None:
    folder = edited.folder
    for name in ("before", "again", "after"):
        shutil.copytree(edited.runs[name].run.path, folder / "loose" / name)
    edit_in_place(folder / "dev.jsonl", '"is is"', '"is it"')
    files = ("data.path=rows.jsonl", "data.eval_path=dev.jsonl", "lora.rank=8")
    other = train(folder, "loose", *files, *TWO_STEPS)
    assert other.record["fingerprint"]["evaluation"] != edited.runs["after"].record["fingerprint"]["evaluation"]
    with contextlib.chdir(folder):
        found = aggregate("--runs", "loose", "--format", "json").data
    (problem,) = (each for each in found["problems"] if each["kind"] == "evaluation")
    assert "measured on other rows or tokens than the rest, so not compared" in problem["detail"]
    assert problem["runs"] == [other.record["run_id"]]
    assert other.record["result"]["value"] not in [value for each in found["effects"] for value in each["values"]]


# Evaluation rows among the training rows.

# Ten prompts, each twice; of the last four, the second has a space more.
TWICE = [row(number, 2) for number in range(1, 11)]
TWICE += [row(number, 2) for number in range(1, 7)]
TWICE += [{**row(number, 2), "prompt": words(number) + " "} for number in range(7, 11)]


def test_duplicates_stay_on_one_side(tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", TWICE)
    run = train(tmp_path, "outputs", "data.path=rows.jsonl", "data.eval_fraction=0.2", *ONE_STEP)
    found = run.dataset
    assert found["train_examples"] + found["validation_examples"] == 20
    assert found["overlap"] == []
    assert found["split"] == {"fraction": 0.2, "seed": 0, "group_by": None}
    for split in ("train", "validation"):
        assert found["repeats"][split]["prompts"] == found[f"{split}_examples"] / 2 > 0
    assert sum(repeats["rows"] for repeats in found["repeats"].values()) == 6
    assert f"train: rows with the prompt of an earlier row: {found['repeats']['train']['prompts']}, of them" in run.out


def test_evaluation_on_training_rows_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", TWICE)
    write(tmp_path / "copy.jsonl", [row(40, 2), *TWICE[-2:]])
    same = refused(tmp_path, "data.path=rows.jsonl", "data.eval_path=rows.jsonl")
    assert same == [
        "ftx: data.eval_path=rows.jsonl is also a file of data.path: a model scored on its own training rows proves "
        "nothing (data.allow_overlap=true, if you mean it)"
    ]
    shared = "2 of 3 validation prompts are also in train: copy.jsonl:2 = rows.jsonl:9; copy.jsonl:3 = rows.jsonl:10"
    remedy = "take them out of one of the two, or say data.allow_overlap=true if you mean it"
    files = ("data.path=rows.jsonl", "data.eval_path=copy.jsonl")
    assert f"ftx: {shared}: {remedy}" in refused(tmp_path, *files)
    planned = refused(tmp_path, "-m", "lora.rank=8,16", *files, module="ftx.plan")
    assert planned[0].endswith(f" seed=0: {shared}: {remedy}")


def test_evaluation_on_training_rows_is_counted_where_it_is_allowed(tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", TWICE)
    files = ("data.path=rows.jsonl", "data.eval_path=rows.jsonl", "data.allow_overlap=true")
    run = train(tmp_path, "outputs", *files, *ONE_STEP)
    (overlap,) = run.dataset["overlap"]
    assert (overlap["first"], overlap["second"], overlap["rows"], overlap["of"]) == ("train", "validation", 20, 20)
    assert "20 of 20 validation prompts are also in train: rows.jsonl:1 = rows.jsonl:1; " in run.out


# Truncation. Prompts of 1 to 64 tokens, answers of 3 and an end token: rows of prompt + 7, answers from prompt + 3 on.
# At a limit L, prompts of L - 3 and more lose their answer; those of L - 6, L - 5 and L - 4 lose 1, 2 and 3 tokens.

LONG = [row(number, 3) for number in range(1, 65)]


@pytest.mark.parametrize(
    "limit", [pytest.param(16, marks=pytest.mark.slow), 24, pytest.param(48, marks=pytest.mark.slow)]
)
def test_truncation_is_counted_said_and_trained_so(tmp_path: Path, limit: int) -> None:
    write(tmp_path / "rows.jsonl", LONG)
    write(tmp_path / "dev.jsonl", [row(70, 3)])
    files = ("data.path=rows.jsonl", "data.eval_path=dev.jsonl")
    cut = (f"data.max_seq_len={limit}", "data.on_long=truncate")
    lost, kept = 64 - (limit - 4), limit - 4
    said = f"{64 - (limit - 7)} of 64 train rows are longer than data.max_seq_len={limit} tokens: {lost} lost their "
    said += f"whole answer and are dropped, 3 were cut, 3 of them inside the answer, {4 * lost + 6} target tokens lost"
    (problem,) = refused(tmp_path, *files, *cut)
    assert problem.startswith(f"ftx: {said}")
    assert "more than data.max_dropped=0.05 allows" in problem
    run = train(tmp_path, "outputs", *files, *cut, "data.max_dropped=1", *ONE_STEP)
    assert f"\n{said} (" in run.out
    assert run.out.index(said) < run.out.index("step 1/1")
    counts = run.dataset["lengths"]["train"]
    assert [counts[name] for name in ("rows", "kept", "dropped", "truncated", "answers_cut")] == [64, kept, lost, 3, 3]
    assert run.dataset["train_examples"] == kept
    assert run.target_tokens() == counts["target_tokens"] == 4 * kept - 6
    validation = run.dataset["lengths"]["validation"]
    assert (validation["kept"], validation["tokens"], validation["too_long"]) == (1, 77, 0)


def test_a_limit_that_leaves_no_answer_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", LONG[12:])  # prompts of 13 tokens and more
    write(tmp_path / "dev.jsonl", [row(70, 3)])
    cut = ("data.max_seq_len=16", "data.on_long=truncate", "data.max_dropped=1")
    assert refused(tmp_path, "data.path=rows.jsonl", "data.eval_path=dev.jsonl", *cut) == [
        "ftx: no train row has a token to learn from: all 52 were dropped for their length; raise the limit or shorten "
        "the rows"
    ]


# Rows that cannot be used.

GOOD = json.dumps(row(2, 2))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "\n".join([GOOD, GOOD, '{"prompt": "a", "completion": 7}', f"{GOOD},", GOOD]),
            [
                "ftx: rows.jsonl:3: completion is a number (7), expected text",
                f"ftx: rows.jsonl:4: not JSON: Extra data at column {len(GOOD) + 1}",
                "ftx: 2 of 5 rows cannot be used: 1 x completion is not text, 1 x not JSON",
            ],
            id="type and comma",
        ),
        pytest.param(
            f"[{GOOD}]",
            ["ftx: rows.jsonl holds a JSON array; expected one JSON object a line: rename it to .json"],
            id="array",
        ),
        pytest.param(
            '{"prompt": "a", "completion": ""}\n{"prompt": "b", "completion": " \\t\\n"}\n{"prompt": "c"}',
            [
                "ftx: rows.jsonl:1: completion is empty, so there is nothing to learn",
                "ftx: rows.jsonl:2: completion is empty, so there is nothing to learn",
                "ftx: rows.jsonl:3: has no field completion",
                "ftx: 3 of 3 rows cannot be used: 2 x completion is empty, 1 x no field completion",
            ],
            id="nothing to learn",
        ),
        pytest.param("\n \n", ["ftx: rows.jsonl has no rows"], id="blank"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_used_are_named(tmp_path: Path, text: str, expected: list[str]) -> None:
    (tmp_path / "rows.jsonl").write_text(text)
    assert refused(tmp_path, "data.path=rows.jsonl", *TWO_STEPS) == expected


def test_skipping_does_not_make_something_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "completion": ""}\n' * 30)
    said = refused(tmp_path, "data.path=rows.jsonl", "data.on_bad_row=skip", "data.max_dropped=1", *TWO_STEPS)
    assert len(said) == 20 + 2
    assert said[-2:] == [
        "ftx: ... and 10 more bad rows",
        "ftx: 30 of 30 rows cannot be used: 30 x completion is empty",
    ]


@pytest.mark.parametrize("form", ["rows.jsonl", "rows.json", "rows.parquet"])
def test_a_key_that_a_row_lacks_is_not_rendered(tmp_path: Path, form: str) -> None:
    (tmp_path / "calls.jinja").write_text(
        "{%- for turn in messages -%}<|{{ turn.role }}|>{% if 'tool_calls' in turn %}{{ turn.tool_calls | tojson }}"
        "{% endif %}{{ turn.content }}<|end|>{%- endfor -%}{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
    )
    asked, answered = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    calling = {**answered, "tool_calls": [{"name": "f"}]}
    rows = [{"messages": [asked, calling]}, {"messages": [asked, answered]}]
    write(tmp_path / "alone.jsonl", rows[1:])
    if form == "rows.parquet":
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / form)
    else:
        (tmp_path / form).write_text(json.dumps(rows) if form == "rows.json" else "\n".join(map(json.dumps, rows)))
    more = ("data.template=calls.jinja", "data.allow_overlap=true")
    found = inspected(tmp_path, f"data.path={form}", "data.eval_path=alone.jsonl", *more)
    first, second, alone = texts(found)
    assert first == '<|user|>a<|end|><|assistant|>[{"name": "f"}]b<|end|>'
    assert second == alone == "<|user|>a<|end|><|assistant|>b<|end|>"


# Templates.

CHATS = [chat("user", "assistant", "user", "assistant") for _ in range(6)]


def test_turns_that_a_template_forbids_are_named(tmp_path: Path) -> None:
    (tmp_path / "strict.jinja").write_text(
        "{%- for turn in messages -%}{%- if turn.role == 'system' -%}{{ raise_exception('no system turns') }}"
        "{%- elif (turn.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('turns must alternate') }}"
        "{%- endif -%}<|{{ turn.role }}|>{{ turn.content }}<|end|>{%- endfor -%}"
        "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
    )
    rows = [*CHATS, chat("user", "user", "assistant"), chat("system", "user", "assistant")]
    write(tmp_path / "chat.jsonl", rows)
    write(tmp_path / "dev.jsonl", [chat("user", "assistant")])
    files = ("data.path=chat.jsonl", "data.eval_path=dev.jsonl", "data.template=strict.jinja")
    assert refused(tmp_path, *files, *TWO_STEPS) == [
        "ftx: chat.jsonl:7: the chat template refuses the turns user, user, assistant: turns must alternate",
        "ftx: chat.jsonl:8: the chat template refuses the turns system, user, assistant: no system turns",
        "ftx: 2 of 8 rows cannot be used: 2 x the chat template refuses the turns",
    ]


def test_generation_markers_are_not_needed_and_the_template_used_is_saved(tmp_path: Path) -> None:
    rows = [chat(*["user", "assistant"] * turns) for turns in (1, 2, 3, 4)]
    write(tmp_path / "chat.jsonl", rows)
    write(tmp_path / "dev.jsonl", [chat("user", "assistant", "user", "assistant", "user", "assistant")])
    template = (TINY / "chat_template.jinja").read_text()
    unmarked = template.replace("{%- generation -%}", "").replace("{%- endgeneration -%}", "")
    assert len(unmarked) < len(template)
    (tmp_path / "mine.jinja").write_text(unmarked)
    files = ("data.path=chat.jsonl", "data.eval_path=dev.jsonl", "data.allow_overlap=true")
    usual = train(tmp_path, "usual", *files, *ONE_STEP)
    mine = train(tmp_path, "mine", *files, "data.template=mine.jinja", *ONE_STEP)
    assert mine.losses == usual.losses
    shown = inspected(tmp_path, *files, "data.template=mine.jinja", "--rows=4")["rows"]
    supervised = [each["supervised_tokens"] for each in shown if each["split"] == "train"]
    assert supervised == sorted(set(supervised))  # more answers, more tokens
    assert mine.target_tokens() == sum(supervised) > 0
    for run, text in ((mine, unmarked), (usual, template)):
        assert (run.run.adapter / "chat_template.jinja").read_text() == text
        assert run.dataset["template_sha256"] == hashlib.sha256(text.encode()).hexdigest()


# Several files, and what is kept of them.

FIRST, SECOND = [row(number, 1) for number in (1, 2, 3, 4)], [row(number, 5) for number in range(11, 21)]


def drawn(each: dict[str, str]) -> bool:
    """Whether a weight of a half keeps a row: by its content and data.split_seed."""
    content = json.dumps(["prompt_completion", each["prompt"], each["completion"]])
    return int(hashlib.sha256(f"0\ndraw {content}".encode()).hexdigest(), 16) < 2**255


@pytest.fixture(scope="module")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Trained], list[int]]:
    """Two runs that keep their files, and what stands in the folder of copies after each: inode and time of each."""
    folder = tmp_path_factory.mktemp("weighted")
    write(folder / "first.jsonl", FIRST)
    (folder / "second.jsonl.gz").write_bytes(gzip.compress(write(folder / "second.jsonl", SECOND).read_bytes()))
    write(folder / "dev.jsonl", [row(30, 2)])
    files = ("data.path=[first.jsonl,second.jsonl.gz]", "data.eval_path=dev.jsonl", "data.weights=[2,0.5]")
    runs, copies = [], []
    for seed in (0, 1):
        runs.append(train(folder, "outputs", *files, "data.snapshot=true", f"seed={seed}", *ONE_STEP))
        found = sorted((folder / "outputs" / ".data").iterdir())
        copies.append([(path.name, path.stat().st_ino, path.stat().st_mtime_ns) for path in found])
    assert copies[0] == copies[1]
    return folder, runs, copies[0]


def test_weights_say_how_often_the_rows_of_a_file_stand_in_an_epoch(
    weighted: tuple[Path, list[Trained], list[Any]],
) -> None:
    _, runs, _ = weighted
    kept = [each for each in SECOND if drawn(each)]
    assert 0 < len(kept) < 10
    for run in runs:
        assert run.dataset["weights"] == [2, 0.5]
        assert run.dataset["train_examples"] == 2 * 4 + len(kept)
        assert [file["rows"] for file in run.dataset["files"]] == [4, 10, 1]
        assert run.target_tokens() == 2 * 4 * (1 + 1) + len(kept) * (5 + 1)
        tokens = 2 * sum(number + 5 for number in (1, 2, 3, 4)) + sum(len(each["prompt"].split()) + 9 for each in kept)
        assert run.dataset["lengths"]["train"]["tokens"] == tokens


def test_snapshots_are_named_by_content_kept_once_and_no_runs(weighted: tuple[Path, list[Trained], list[Any]]) -> None:
    folder, runs, copies = weighted
    names = ("first.jsonl", "second.jsonl.gz", "dev.jsonl")
    hashes = [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names]
    expected = [f"{found}.{name.partition('.')[2]}" for found, name in zip(hashes, names, strict=True)]
    assert sorted(name for name, _, _ in copies) == sorted(expected)
    for run in runs:
        assert [file["snapshot"] for file in run.dataset["files"]] == [f"outputs/.data/{name}" for name in expected]
        for file in run.dataset["files"]:
            assert hashlib.sha256((folder / file["snapshot"]).read_bytes()).hexdigest() == file["sha256"]
    found = Ledger.scan(folder / "outputs")
    assert (len(found.runs), found.left_out) == (2, [])


@pytest.mark.slow
def test_every_run_of_a_study_of_files_is_counted(
    aggregate: Aggregate, weighted: tuple[Path, list[Trained], list[Any]]
) -> None:
    folder, _, _ = weighted
    levels = "data.path=[first.jsonl],[first.jsonl,second.jsonl]"
    done = run_entry("ftx.train", "-m", "data=file", levels, "data.eval_path=dev.jsonl", *ONE_STEP, folder=folder)
    assert done.status == 0, done.err + done.out
    with contextlib.chdir(folder):
        found = aggregate("--format", "json").data
    counts = {each["level"]: (each["n_ok"], each["cost"]["train_rows"]) for each in found["effects"]}
    assert counts == {"first.jsonl": (1, 4), "[first.jsonl,second.jsonl]": (1, 14)}


# A study of the length limit.


@dataclass(frozen=True)
class Study:
    folder: Path
    planned: Finished
    done: Finished


@pytest.fixture(scope="module")
def lengths(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("lengths")
    asked = ("-m", "data.max_seq_len=48,96", "data.on_long=truncate", "data.max_dropped=1", *ONE_STEP)
    planned = run_entry("ftx.plan", *asked, folder=folder)
    assert list(folder.iterdir()) == []
    return Study(folder, planned, run_entry("ftx.train", *asked, folder=folder))


# The baseline (1024) cuts nothing. At 48 tokens every bundled row is cut, and 25 of them lose their whole answer.
ROWS_BY_LIMIT = {1024: 156, 48: 131, 96: 156}


def test_a_plan_says_which_arm_loses_rows(lengths: Study) -> None:
    assert lengths.planned.status == 0, lengths.planned.err
    notes = [line for line in lengths.planned.out.splitlines() if "train rows are longer" in line]
    assert [line.partition(" train rows are")[0] for line in notes] == [
        "data.max_seq_len=48 seed=0: 156 of 156",
        "data.max_seq_len=96 seed=0: 19 of 156",
    ]
    assert "tokens: 25 lost their whole answer and are dropped, 131 were cut" in notes[0]
    assert "Note: data.max_seq_len=48 trains on 131 rows, the baseline on 156" in lengths.planned.out


def test_all_arms_are_measured_on_the_same_tokens(lengths: Study) -> None:
    assert lengths.done.status == 0, lengths.done.err
    runs = Ledger.scan(lengths.folder / "outputs").runs
    records = [found.record for found in runs]
    by_limit = {record.config["data"]["max_seq_len"]: record for record in records}
    assert by_limit.keys() == ROWS_BY_LIMIT.keys()
    for limit, record in by_limit.items():
        found = record.dataset["lengths"]
        assert (found["validation"]["kept"], found["validation"]["tokens"]) == (31, 2444)
        assert (found["test"]["kept"], found["test"]["tokens"], found["test"]["target_tokens"]) == (64, 4701, 2286)
        assert found["train"]["kept"] == ROWS_BY_LIMIT[limit]
    assert len({record.fingerprint["evaluation"] for record in records}) == 1
    assert len({record.fingerprint["train"] for record in records}) == 3
    assert len({read_history(found.run.history)[0][0].metrics["loss"] for found in runs}) == 1  # before any step


def test_the_table_of_effects_says_how_many_rows_an_arm_trained_on(aggregate: Aggregate, lengths: Study) -> None:
    with contextlib.chdir(lengths.folder):
        found = aggregate("--format", "json").data
    assert {each["level"]: each["cost"]["train_rows"] for each in found["effects"]} == ROWS_BY_LIMIT
    assert {each["n_ok"] for each in found["effects"]} == {1}
    kinds = [each["kind"] for each in found["problems"]]
    assert kinds.count("follows") == 1  # fewer trained tokens
    assert "evaluation" not in kinds


# A data set in a folder, as the Hub's library reads it.


def _train_from_folder(folder: str, arguments: list[str]) -> None:
    import datasets  # seconds, and in the fork server already

    datasets.config.HF_DATASETS_CACHE = Path(folder) / "loaded"
    os.environ.update(SURROUNDINGS)
    os.chdir(folder)
    with Path("out").open("w") as out, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = start(arguments)
    sys.exit(status)


def test_a_folder_of_parquet_is_a_hub_data_set_without_a_network(tmp_path: Path, forms: dict[str, Trained]) -> None:
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.Table.from_pylist(CONTENT), tmp_path / "rows" / "train-00000-of-00001.parquet")
    context = multiprocessing.get_context("forkserver")
    arguments = ["data.name=rows", HALF, *TWO_STEPS]
    process = context.Process(target=_train_from_folder, args=(str(tmp_path), arguments))
    process.start()
    process.join()
    assert process.exitcode == 0, (tmp_path / "out").read_text()
    (found,) = Ledger.scan(tmp_path / "outputs").runs
    dataset, clean = found.record.dataset, forms["clean.jsonl"]
    assert (dataset["path"], dataset["revision"]) == ("rows[train]", None)
    assert dataset["content"] == clean.dataset["content"]
    assert found.record.fingerprint == clean.record["fingerprint"]
    assert Trained(found.run, "").losses == clean.losses
    canonical = "".join(json.dumps(each, sort_keys=True) + "\n" for each in CONTENT)
    assert dataset["sha256"] == hashlib.sha256(canonical.encode()).hexdigest()
