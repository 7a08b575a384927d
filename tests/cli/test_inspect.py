"""python -m ftx.inspect in a process: rows as the model sees them, numbers counted by hand, and nothing on disk."""

import io
import json
import multiprocessing
import os
import pty
import re
import shutil
import sys
import threading
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import ftx.inspect
from ftx.report.console import say
from ftx.report.inspection import inspection_report
from processes import SURROUNDINGS, Finished, run_entry

pytestmark = pytest.mark.train

Inspect = Callable[..., Finished]
TINY = Path(str(resources.files("ftx") / "bundled" / "tiny"))
ORDERS = Path(str(resources.files("ftx") / "bundled" / "orders"))
FIRST = json.loads((ORDERS / "train.jsonl").read_text().splitlines()[0])
WIDE = "200"  # columns, so that no row of a table is wrapped


@pytest.fixture
def inspect(tmp_path: Path) -> Inspect:
    """`python -m ftx.inspect` in a folder that has rows and nothing else."""

    def call(*arguments: str, **environment: str) -> Finished:
        return run_entry("ftx.inspect", *arguments, folder=tmp_path, **{"COLUMNS": WIDE, **environment})

    return call


def words(number: int, word: str = "is") -> str:
    """A text of so many tokens of the bundled tokenizer."""
    return " ".join([word] * number)


def row(prompt: int, completion: int) -> dict[str, str]:
    """A row of 4 more tokens: <|user|> prompt <|end|> <|assistant|> completion <|end|>."""
    return {"prompt": words(prompt), "completion": words(completion)}


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def table(text: str) -> dict[str, list[str]]:
    """The splits table by the first column."""
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line[:1] == "│"]
    return {name: values for name, *values in cells}


def findings(text: str) -> list[tuple[str, str, str]]:
    """Grade, topic and detail of every finding."""
    _, _, below = text.partition("\nFindings")
    found = re.findall(r"^(ok|note|problem) +(\w+) +(.+?) *$", below, re.MULTILINE)
    assert found
    return found


def of_grade(text: str, grade: str) -> list[tuple[str, str]]:
    return [(topic, detail) for found, topic, detail in findings(text) if found == grade]


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("bundled")
    return run_entry("ftx.inspect", folder=folder, COLUMNS=WIDE, FTX_CACHE=str(folder.parent / "inspect-cache"))


def test_the_bundled_data_is_without_fault(bundled: Finished) -> None:
    assert bundled.status == 0, bundled.err
    assert bundled.err == ""
    assert {grade for grade, _, _ in findings(bundled.out)} == {"ok"}
    assert ("rows", "orders/test.jsonl: 64 rows for test") in of_grade(bundled.out, "ok")
    assert "The run: 60 steps in 3 epochs, 2 of warmup, 3 evaluations after the first." in bundled.out
    assert table(bundled.out)["rows"] == ["156", "31", "64"]


def test_nothing_is_written_but_the_cache(bundled: Finished) -> None:
    assert list(bundled.folder.iterdir()) == []
    cache = bundled.folder.parent / "inspect-cache" / "data"
    assert len([path for path in cache.iterdir() if path.name != "locks"]) == 1


def test_without_colours_what_carries_loss_stands_in_brackets(bundled: Finished) -> None:
    asked = f"<|user|>{FIRST['prompt']}<|end|><|assistant|>"
    unwrapped = bundled.out.replace("\n", " ").replace("  ", " ")
    assert f"{asked}[[{FIRST['completion']}<|end|>]]" in unwrapped
    assert bundled.out.count("[[") == bundled.out.count("]]") == 6  # 2 rows of 3 splits
    assert "train row orders/train.jsonl:1: 69 tokens, 35 carry loss" in bundled.out
    assert "\x1b" not in bundled.out


class _Screen:
    """A pseudo-terminal that a process may print to."""

    def __enter__(self) -> "_Screen":
        self._ours, self._theirs = pty.openpty()
        self.name = os.ttyname(self._theirs)
        self._read: list[bytes] = []
        self._reader = threading.Thread(target=self._listen)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._theirs)
        self._reader.join()
        os.close(self._ours)

    def _listen(self) -> None:
        try:
            while some := os.read(self._ours, 4096):
                self._read.append(some)
        except OSError:  # everybody has closed the other side
            pass

    @property
    def text(self) -> str:
        return b"".join(self._read).decode().replace("\r\n", "\n")


def _on_screen(screen: str, folder: str, arguments: list[str]) -> None:
    terminal = os.open(screen, os.O_WRONLY | os.O_NOCTTY)
    os.dup2(terminal, 1)
    os.environ.pop("NO_COLOR", None)
    os.environ.update(SURROUNDINGS | {"TERM": "xterm-256color", "COLUMNS": WIDE})
    os.chdir(folder)
    status = ftx.inspect.start(arguments)
    sys.stdout.flush()
    sys.exit(status)


def test_with_colours_what_carries_loss_has_a_style_of_its_own(bundled: Finished, tmp_path: Path) -> None:
    with _Screen() as screen:
        context = multiprocessing.get_context("forkserver")
        process = context.Process(target=_on_screen, args=(screen.name, str(tmp_path), ["--rows=1"]))
        process.start()
        process.join()
    assert process.exitcode == 0
    assert "[[" not in screen.text
    styled = re.findall(r"\x1b\[([\d;]+)m([^\x1b]*)\x1b\[0m", screen.text)
    carrying = "".join(text for style, text in styled if style == "1;30;42")  # bold black on green
    beginning, end = FIRST["completion"][:20], FIRST["completion"][-20:]
    assert carrying.startswith(beginning)
    assert f"{end}<|end|>" in carrying
    assert "<|user|>" not in carrying
    assert f"<|user|>{FIRST['prompt'][:20]}" in "".join(text for style, text in styled if style == "2")  # dim


def seen(done: Finished) -> dict[str, Any]:
    """The JSON on stdout, which is all of it."""
    return json.loads(done.out)


def test_json_has_the_rows_as_pieces(inspect: Inspect) -> None:
    done = inspect("--json", "--rows", "3")
    assert (done.status, done.err) == (0, "")
    found = seen(done)
    assert [(each["split"], each["where"]) for each in found["rows"]] == [
        (split, f"orders/{split}.jsonl:{number}") for split in ("train", "validation", "test") for number in (1, 2, 3)
    ]
    for each in found["rows"]:
        name, _, line = each["where"].partition(":")
        source = json.loads((ORDERS / Path(name).name).read_text().splitlines()[int(line) - 1])
        pieces = [(piece["text"], piece["supervised"]) for piece in each["pieces"]]
        assert pieces == [
            (f"<|user|>{source['prompt']}<|end|><|assistant|>", False),
            (f"{source['completion']}<|end|>", True),
        ]
    assert {finding["grade"] for finding in found["findings"]} == {"ok"}
    assert found["training"]["evaluation_steps"] == [20, 40, 60]


def test_a_name_in_brackets_is_a_name_and_no_style(inspect: Inspect, tmp_path: Path) -> None:
    found = {**seen(inspect("--json", "--rows=0")), "data": "user/rows[bold]"}
    out = io.StringIO()
    say(Console(file=out), *inspection_report(found, colours=False))
    assert out.getvalue().startswith("user/rows[bold] for tiny")


def test_what_a_terminal_would_obey_is_shown(inspect: Inspect, tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", {"prompt": "a\r\x1b[31mb\t[bold]c\x7f", "completion": "d\r\ne\r"})
    write(tmp_path / "dev.jsonl", row(1, 1))
    done = inspect("data.path=rows.jsonl", "data.eval_path=dev.jsonl")
    assert "\n<|user|>a␍␛[31mb␉[bold]c␡<|end|><|assistant|>[[d␍↵\ne␍<|end|>]]\n" in done.out


def test_every_answer_of_a_chat_is_a_piece(inspect: Inspect, tmp_path: Path) -> None:
    turns = [("system", "be brief"), ("user", "one?"), ("assistant", "1"), ("user", "and?"), ("assistant", "2")]
    chat = {"messages": [{"role": role, "content": content} for role, content in turns]}
    write(tmp_path / "chat.jsonl", chat)
    write(tmp_path / "dev.jsonl", {"messages": [{"role": "user", "content": "x"}, *chat["messages"][2:3]]})
    (first, _) = seen(inspect("--json", "data.path=chat.jsonl", "data.eval_path=dev.jsonl"))["rows"]
    pieces = [(piece["text"], piece["supervised"]) for piece in first["pieces"]]
    assert pieces == [
        ("<|system|>be brief<|end|><|user|>one?<|end|><|assistant|>", False),
        ("1<|end|>", True),
        ("<|user|>and?<|end|><|assistant|>", False),
        ("2<|end|>", True),
    ]
    assert first["supervised_tokens"] == 2 + 2


@pytest.mark.parametrize(("asked", "shown"), [(["--rows", "0"], 0), (["--rows=1"], 1), (["--rows", "99"], 3), ([], 2)])
def test_so_many_rows_of_each_split_are_shown(inspect: Inspect, tmp_path: Path, asked: list[str], shown: int) -> None:
    write(tmp_path / "rows.jsonl", *(row(number, 1) for number in (1, 2, 3)))
    write(tmp_path / "dev.jsonl", row(4, 1))
    done = inspect("data.path=rows.jsonl", "data.eval_path=dev.jsonl", *asked)
    assert done.status == 0
    assert len(re.findall(r"^train row rows\.jsonl:\d: ", done.out, re.MULTILINE)) == shown
    assert len(re.findall(r"^validation row dev\.jsonl:1: 9 tokens", done.out, re.MULTILINE)) == min(shown, 1)
    assert table(done.out)["rows"] == ["3", "1"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--rows"], "--rows needs a whole number of at least 0, got nothing"),
        (["--rows="], "--rows needs a whole number of at least 0, got nothing"),
        (["--rows", "-1"], "--rows needs a whole number of at least 0, got -1"),
        (["--rows=1.5"], "--rows needs a whole number of at least 0, got 1.5"),
        (["--rows", "²"], "--rows needs a whole number of at least 0, got ²"),
        (["--rows", "seed=1"], "--rows needs a whole number of at least 0, got seed=1"),
        (["-m", "seed=0,1"], "-m: ftx.inspect looks at one run; python -m ftx.plan -m says what it finds in a study"),
        (["--cfg"], "--cfg: a view of one configuration; python -m ftx.train shows it"),
        (["--commands"], "--commands: no such flag; settings are typed as key=value, see --help"),
        (["data.path=nowhere.jsonl"], "data.path=nowhere.jsonl: no such file; expected one that ends in"),
    ],
)
def test_refused_in_a_line(inspect: Inspect, arguments: list[str], expected: str) -> None:
    done = inspect(*arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"ftx: {expected}")
    assert len(done.err.splitlines()) == 1


def test_help_is_the_text_of_the_command(inspect: Inspect) -> None:
    done = inspect("--help", "--rows", "1")
    assert done.status == 0
    assert done.out.startswith("python -m ftx.inspect: what the model will really see")


def test_bad_rows_are_a_problem_beside_everything_else(inspect: Inspect, tmp_path: Path) -> None:
    good, bad = json.dumps(row(1, 1)), '{"prompt": "a", "completion": 7}'
    (tmp_path / "rows.jsonl").write_text(f"{good}\n\n{bad}\n{good}, \n{good}\n")
    write(tmp_path / "dev.jsonl", row(30, 2))
    done = inspect("data.path=rows.jsonl", "data.eval_path=dev.jsonl", COLUMNS="400")
    assert (done.status, done.err) == (2, "")
    ((topic, detail),) = of_grade(done.out, "problem")
    assert topic == "rows"
    assert detail.startswith("rows.jsonl: 2 of 4 rows cannot be used (1 x completion is not text, 1 x not JSON)")
    for line in ("rows.jsonl:3: completion is a number (7), expected text", "rows.jsonl:4: not JSON: Extra data"):
        assert f"cannot be used: {line}" in done.out
    assert table(done.out)["rows"] == ["2", "1"]


SHORT = [row(number, 2) for number in range(1, 21)]  # rows of 7 to 26 tokens; 3 of each carry loss


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        pytest.param(
            ["data.eval_path=overlap.jsonl"],
            (
                "overlap",
                "1 of 2 validation prompts are also in train: overlap.jsonl:2 = rows.jsonl:5: take them",
            ),
            id="overlap",
        ),
        pytest.param(
            ["data.max_seq_len=24"],
            ("lengths", "2 of 20 train rows are longer than data.max_seq_len=24 tokens: 2 dropped, 6 target tokens"),
            id="too many dropped",
        ),
        pytest.param(
            ["data.max_seq_len=24", "data.on_long=error"],
            ("lengths", "2 of 20 train rows are longer than data.max_seq_len=24 tokens: raise data.max_seq_len"),
            id="none may be long",
        ),
        pytest.param(
            ["data.max_seq_len=6", "data.max_dropped=1"],
            ("supervised", "no train row has a token to learn from: all 20 were dropped for their length; raise"),
            id="nothing to learn left",
        ),
    ],
)
def test_a_problem_is_shown_with_everything_else(
    inspect: Inspect, tmp_path: Path, settings: list[str], problem: tuple[str, str]
) -> None:
    write(tmp_path / "rows.jsonl", *SHORT)
    write(tmp_path / "dev.jsonl", row(30, 2))
    write(tmp_path / "overlap.jsonl", row(30, 2), row(5, 1))
    arguments = ["data.path=rows.jsonl", "data.eval_path=dev.jsonl", *settings]
    done = inspect(*arguments)
    assert (done.status, done.err) == (2, "")
    (found,) = of_grade(done.out, "problem")
    assert found[0] == problem[0]
    assert found[1].startswith(problem[1])
    assert {topic for topic, _ in of_grade(done.out, "ok")} >= {"rows", "duplicates", "lora", "output", "hub"}
    assert "validation row " in done.out
    assert table(done.out)["rows"][0] == "20"
    as_json = inspect(*arguments, "--json")
    assert as_json.status == 2
    assert [each["topic"] for each in seen(as_json)["findings"] if each["grade"] == "problem"] == [problem[0]]
    assert {path.name for path in tmp_path.iterdir()} == {"rows.jsonl", "dev.jsonl", "overlap.jsonl"}


def test_a_run_that_nothing_is_left_for_has_no_steps(inspect: Inspect, tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", *SHORT)
    write(tmp_path / "dev.jsonl", row(30, 2))
    done = inspect("data.path=rows.jsonl", "data.eval_path=dev.jsonl", "data.max_seq_len=6", "--json")
    training = seen(done)["training"]
    assert (training["rows"], training["steps"], training["evaluation_steps"]) == (0, 0, [])


def test_a_path_alone_is_a_file(inspect: Inspect, tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", *SHORT)
    alone, typed = inspect("data.path=rows.jsonl"), inspect("data.path=rows.jsonl", "data=file")
    assert alone.status == 0, alone.err
    assert alone.out == typed.out
    assert "rows.jsonl for tiny" in alone.out


@pytest.fixture
def base_model(tmp_path: Path) -> str:
    """The bundled model without its chat template."""
    shutil.copytree(TINY, tmp_path / "base")
    (tmp_path / "base" / "chat_template.jinja").unlink()
    return f"model.name={tmp_path / 'base'}"


def test_chat_turns_need_a_template_and_plain_is_one(inspect: Inspect, tmp_path: Path, base_model: str) -> None:
    chats = [
        {"messages": [{"role": "user", "content": words(number)}, {"role": "assistant", "content": "No."}]}
        for number in range(1, 21)
    ]
    write(tmp_path / "chat.jsonl", *chats)
    refused = inspect("data.path=chat.jsonl", "model=hub", base_model)
    assert (refused.status, refused.out) == (2, "")
    assert refused.err.startswith(
        "ftx: chat.jsonl:1: chat turns need a chat template, and this model has none: use data.template=plain or "
    )
    assert "ftx: 20 of 20 rows cannot be used: 20 x no chat template" in refused.err
    works = inspect("data.path=chat.jsonl", "model=hub", base_model, "data.template=plain", "--json")
    assert works.status == 0, works.err
    pieces = [(piece["text"], piece["supervised"]) for piece in seen(works)["rows"][0]["pieces"]]
    assert pieces[0][1] is False
    assert re.fullmatch(r"User: (is ?)+\nAssistant:", pieces[0][0])
    assert pieces[1] == (" No.<|end|>", True)


def test_a_base_model_takes_rows_of_text_as_they_are(inspect: Inspect, tmp_path: Path, base_model: str) -> None:
    write(tmp_path / "rows.jsonl", {"prompt": "a b", "completion": " c"})
    write(tmp_path / "dev.jsonl", {"prompt": "d", "completion": " e"})
    done = inspect("data.path=rows.jsonl", "data.eval_path=dev.jsonl", "model=hub", base_model)
    assert done.status == 0, done.err
    assert "\na b[[ c<|end|>]]\n" in done.out
    assert ("template", "no chat template: every answer stands whole in its row and is ended by an end token") in (
        of_grade(done.out, "ok")
    )


# Ten rows by their tokens: the prompt's and the completion's and 4 of the template's; completion + 1 carry loss.
TEN = [row(prompt, 3) for prompt in (3, 4, 5, 6, 7, 8, 9, 10)]
TEN += [{"prompt": f"  {words(3)} ", "completion": words(1)}, row(10, 3)]  # a prompt again; a row again
# 10 11 12 13 14 15 16 17, then 8 and 17; in order 8 10 11 12 13 14 15 16 17 17


def test_the_table_counted_by_hand(inspect: Inspect, tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", *TEN)
    write(tmp_path / "dev.jsonl", row(30, 2), row(5, 1), row(4, 1))
    arguments = ["data.path=rows.jsonl", "data.eval_path=dev.jsonl", "data.max_seq_len=16", "data.max_dropped=0.2"]
    done = inspect(*arguments, "data.allow_overlap=true", "optim.batch_size=4")
    assert done.status == 0, done.err
    spaces = 2  # of the repeated prompt, before and behind it
    lengths = sorted([10, 11, 12, 13, 14, 15, 16, 17, 8 + spaces, 17])
    kept = lengths[:8]
    assert table(done.out) == {
        "rows": ["10", "3"],
        "rows used": ["8", "3"],
        "rows that repeat a prompt": ["2", "0"],
        "tokens": [str(sum(kept)), str(36 + 10 + 9)],
        "tokens that carry loss": [str(7 * 4 + 2), str(3 + 2 + 2)],
        "longest allowed row": ["16", "512"],
        "rows that are longer": ["2", "0"],
        "median length in tokens": [str(lengths[4]), "10"],
        "90% of rows are at most": [str(lengths[8]), "36"],
        "99% of rows are at most": [str(lengths[9]), "36"],
        "longest row": ["17", "36"],
    }
    shared = "2 of 3 validation prompts are also in train: dev.jsonl:2 = rows.jsonl:3; dev.jsonl:3 = rows.jsonl:2"
    assert of_grade(done.out, "note") == [
        ("duplicates", "train: rows with the prompt of an earlier row: 2, of them equal in all: 1"),
        ("overlap", f"{shared} (allowed by data.allow_overlap)"),
        (
            "lengths",
            "2 of 10 train rows are longer than data.max_seq_len=16 tokens: 2 dropped, 8 target tokens lost (21.1%)",
        ),
        ("warmup", "1 of 6 steps rise to optim.lr=0.0002, then cosine: so few steps are hardly a schedule "
         "(optim.scheduler=constant optim.warmup_ratio=0)"),
        ("metric", "eval_loss decides, lower is better, on 3 validation rows: so few say little of a difference "
         "(data.eval_path, data.eval_fraction)"),
    ]  # fmt: skip
    # 8 rows in steps of 4, three times.
    assert "One epoch: " + f"{sum(kept)} tokens, 30 with loss, 2 steps. The run: 6 steps in 3 epochs" in done.out
