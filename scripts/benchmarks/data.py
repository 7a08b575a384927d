"""Reading, splitting and tokenising N rows of JSON lines: time and memory, side by side with `datasets`.

The rows are generated prompts and completions of some 70 words in all. Each way runs in a process of its own, which has
imported everything and loaded the bundled tokenizer before its clock starts:

  read      every row read and checked, nothing tokenised
  build     read, split by content, rendered through the chat template, masked, tokenised and written to the cache
  cached    the same again, out of the cache
  datasets  load_dataset, train_test_split and map with apply_chat_template of the prompt and of the whole row, which is
            what a script without ftx does (no checks, no frozen split); its own cache is empty

Peak memory is the process's, imports included, less what it was when the clock started. Files were written just before,
so the system has them in memory.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table

WAYS = ("read", "build", "cached", "datasets")
WORDS = [
    "order",
    "box",
    "tea",
    "mug",
    "knife",
    "plate",
    "lamp",
    "chair",
    "desk",
    "shelf",
    "rope",
    "paper",
    "brush",
    "glass",
    "spoon",
    "towel",
    "soap",
    "candle",
]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this subcommand."""
    parser.add_argument("--rows", type=int, default=200_000, help="how many rows (default: 200000)")
    parser.add_argument("--repeats", type=int, default=1, help="how often to measure each way (default: 1)")


def measure(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], Table]:
    """What was measured, as data and as a table."""
    if options.rows < 100 or options.repeats < 1:
        raise ValueError("--rows must be at least 100 and --repeats at least 1")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "rows.jsonl"
    write_rows(file, options.rows)
    ways: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for repeat in range(options.repeats):
        for way in WAYS:
            ways[way].append(in_a_process(way, file, folder / f"cache{repeat}"))
    found = {
        "rows": options.rows,
        "megabytes": file.stat().st_size / 1e6,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "repeats": options.repeats,
        "ways": {way: summary(options.rows, several) for way, several in ways.items()},
    }
    return found, in_words(found)


def write_rows(path: Path, rows: int) -> None:
    """Different prompts with answers made of their words."""
    noise = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            words = noise.choices(WORDS, k=noise.randrange(20, 60))
            row = {"prompt": f"Order {number}: {' '.join(words)}.", "completion": " ".join(sorted(set(words)))}
            file.write(json.dumps(row) + "\n")


def in_a_process(way: str, file: Path, cache: Path) -> dict[str, float]:
    """Seconds and megabytes of one way."""
    environment = os.environ | {"FTX_CACHE": str(cache), "HF_DATASETS_CACHE": str(cache / "datasets")}
    done = subprocess.run(
        [sys.executable, __file__, way, str(file)], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{way} ended with {done.returncode}: {done.stderr[-2000:]}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def summary(rows: int, several: list[dict[str, float]]) -> dict[str, Any]:
    """Medians, and the largest memory."""
    seconds = statistics.median(each["seconds"] for each in several)
    return {
        "seconds": seconds,
        "seconds_of_each": [each["seconds"] for each in several],
        "rows_per_second": rows / seconds,
        "peak_megabytes": max(each["megabytes"] for each in several),
    }


def in_words(found: dict[str, Any]) -> Table:
    """A row a way, with its time as a ratio to `datasets`."""
    table = Table(
        title=f"{found['rows']:,} rows, {found['megabytes']:,.0f} MB, {found['cores']} cores, median of "
        f"{found['repeats']}",
        title_justify="left",
    )
    for heading in ("way", "seconds", "rows/s", "peak MB", "datasets takes"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    reference = found["ways"]["datasets"]["seconds"]
    for way, each in found["ways"].items():
        table.add_row(
            way,
            f"{each['seconds']:.2f}",
            f"{each['rows_per_second']:,.0f}",
            f"{each['peak_megabytes']:,.0f}",
            f"{reference / each['seconds']:.2f} x",
        )
    return table


def reading(file: Path) -> Callable[[], Any]:
    """Every row read and checked."""
    from ftx.config.schema import ColumnsConfig
    from ftx.data.files import DataFile
    from ftx.data.rows import RowReader

    reader = RowReader(ColumnsConfig())
    return lambda: sum(1 for where, fields in DataFile(file).records() if reader.row(where, fields))


def preparing(file: Path) -> Callable[[], Any]:
    """What a run does with its rows."""
    from ftx.config.schema import DataConfig, ModelConfig
    from ftx.data.prepare import prepare
    from ftx.model.base import load_tokenizer

    tokenizer = load_tokenizer(ModelConfig(name="tiny", bundled=True))
    return lambda: prepare(DataConfig(path=str(file)), tokenizer, None)


def with_datasets(file: Path) -> Callable[[], Any]:
    """What a script without ftx does."""
    from datasets import disable_progress_bars, load_dataset

    from ftx.config.schema import ModelConfig
    from ftx.model.base import load_tokenizer

    disable_progress_bars()
    tokenizer = load_tokenizer(ModelConfig(name="tiny", bundled=True))

    def tokenised(row: dict[str, str]) -> dict[str, list[int]]:
        turns = [{"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": row["completion"]}]
        prompt = tokenizer.apply_chat_template(turns[:1], add_generation_prompt=True, return_dict=False)
        whole = tokenizer.apply_chat_template(turns, return_dict=False)
        return {"input_ids": whole, "labels": [-100] * len(prompt) + whole[len(prompt) :]}

    def everything() -> Any:
        rows = load_dataset("json", data_files=str(file), split="train").train_test_split(0.1, seed=0)
        return rows.map(tokenised, remove_columns=["prompt", "completion"])

    return everything


def peak_megabytes() -> float:
    """Of this process until now."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def main(way: str, file: Path) -> None:
    """Time one way and print what it took."""
    makers = {"read": reading, "build": preparing, "cached": preparing, "datasets": with_datasets}
    act = makers[way](file)
    before = peak_megabytes()
    began = time.perf_counter()
    act()
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "megabytes": peak_megabytes() - before}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
