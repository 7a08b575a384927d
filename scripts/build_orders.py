"""Write the `orders` dataset: spoken orders as prompts, their fields as one line of JSON as completions.

Every completion has the same keys in the same order, and says null, false or "standard" where the prompt says
nothing.

    python scripts/build_orders.py --out src/ftx/bundled/orders
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import replace
from pathlib import Path

from orders_text import ORDERS_VOICE, PLAIN_VOICE, Order, describe, sample_order

SPLIT_ROWS = {"train": 156, "validation": 31, "test": 64}
LONG_SHARE = 0.13
CHANGE_SHARE = 0.1

# Mostly the wordings that pretraining knows, and now and then one that it lacks.
VOICE = replace(
    ORDERS_VOICE,
    express=(*PLAIN_VOICE.express * 2, "Rush it."),
    standard=(*PLAIN_VOICE.standard, "Take your time."),
    gift=(*PLAIN_VOICE.gift * 3, "It needs a ribbon."),
    no_gift=PLAIN_VOICE.no_gift,
    changes=PLAIN_VOICE.changes,
)


def completion(order: Order) -> str:
    """All fields of the order as one line of JSON."""
    return json.dumps(order.fields(), separators=(",", ":"))


def sample_row(rng: random.Random) -> dict[str, str]:
    """One example. A few are long, with more items and small talk, so that a limit on length costs something."""
    long = rng.random() < LONG_SHARE
    n_lines = rng.randint(3, 4) if long else rng.choice((1, 1, 2, 2, 3))
    order = sample_order(rng, n_lines=n_lines, change_share=CHANGE_SHARE)
    n_asides = rng.randint(3, 6) if long else 0
    return {"prompt": describe(order, VOICE, rng, n_asides=n_asides), "completion": completion(order)}


def build_splits(rng: random.Random) -> dict[str, list[dict[str, str]]]:
    """The rows of every split; no prompt occurs twice, within a split or across them."""
    rows: dict[str, dict[str, str]] = {}
    while len(rows) < sum(SPLIT_ROWS.values()):
        row = sample_row(rng)
        rows.setdefault(row["prompt"], row)
    remaining = iter(rows.values())
    return {split: [next(remaining) for _ in range(n_rows)] for split, n_rows in SPLIT_ROWS.items()}


def main() -> None:
    """Parse the command line and write one JSONL file per split."""
    parser = argparse.ArgumentParser(description="Write the orders dataset.")
    parser.add_argument("--out", type=Path, default=Path("src/ftx/bundled/orders"), help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    arguments.out.mkdir(parents=True, exist_ok=True)
    for split, rows in build_splits(random.Random(arguments.seed)).items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (arguments.out / f"{split}.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
