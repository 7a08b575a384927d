"""What the model will see of a run's rows, and what the run will make of them; nothing is trained."""

from dataclasses import asdict
from itertools import groupby
from typing import Any

from ftx.config.schema import RunConfig
from ftx.data.batches import Collator, examples
from ftx.data.render import IGNORED
from ftx.data.store import TokenizedSplit
from ftx.job.cadence import evaluation_steps, steps_per_epoch, total_steps, warmup_steps
from ftx.job.preparation import Inputs, findings_of, fingerprints_of


def inspection(config: RunConfig, inputs: Inputs, rows: int) -> dict[str, Any]:
    """What `ftx.inspect --json` prints; `rows` is how many rows of each split are shown."""
    data = inputs.data
    shown = [
        {"split": split, **row}
        for split, some in data.splits.items()
        for row in seen_rows(some, inputs.tokenizer, rows)
    ]
    return {
        "model": config.model.name,
        "data": data.record["path"],
        "template": config.data.template,
        "supervise": config.data.supervise,
        "splits": {split: _split(data.record, split) for split in data.splits},
        "training": _training(config, inputs),
        "fingerprint": fingerprints_of(config, inputs),
        "rows": shown,
        "bad_rows": [line for file in data.record["files"] for line in file["bad_rows"]["shown"]],
        "findings": [asdict(finding) for finding in findings_of(config, inputs)],
    }


def seen_rows(split: TokenizedSplit, tokenizer: Any, most: int) -> list[dict[str, Any]]:
    """The first rows as they come out of the collator: stretches of text, each with whether it carries loss."""
    rows = split[:most]
    if not rows:
        return []
    made = examples(split)
    batch = Collator(tokenizer.pad_token_id)([made[number] for number in range(len(rows))])
    seen = []
    for number, row in enumerate(rows):
        real = batch["attention_mask"][number].bool()
        ids, labels = batch["input_ids"][number][real].tolist(), batch["labels"][number][real].tolist()
        pieces = [
            {"text": tokenizer.decode([token for token, _ in piece]), "supervised": supervised}
            for supervised, piece in groupby(zip(ids, labels, strict=True), key=lambda pair: pair[1] != IGNORED)
        ]
        carrying = sum(label != IGNORED for label in labels)
        seen.append({"where": row.where, "tokens": len(ids), "supervised_tokens": carrying, "pieces": pieces})
    return seen


def _split(record: dict[str, Any], split: str) -> dict[str, Any]:
    return {**record["lengths"][split], "repeats": record["repeats"][split]}


def _training(config: RunConfig, inputs: Inputs) -> dict[str, Any]:
    rows, counts = len(inputs.data.train), inputs.data.record["lengths"]["train"]
    return {
        "rows": rows,
        "tokens_per_epoch": counts["tokens"],
        "target_tokens_per_epoch": counts["target_tokens"],
        "epochs": config.optim.epochs if config.optim.max_steps is None else None,
        "steps_per_epoch": steps_per_epoch(config, rows),
        "steps": total_steps(config, rows) if rows else 0,
        "warmup_steps": warmup_steps(config, rows) if rows else 0,
        "evaluation_steps": evaluation_steps(config, rows) if rows else [],
    }
