"""The way of the rows: read, split, rendered, tokenised once, cached; then what of them this run uses."""

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ftx.config.schema import DataConfig
from ftx.data.build import Builder
from ftx.data.cache import Cache, Entry, built_aside, cache_root
from ftx.data.findings import Finding, data_findings
from ftx.data.limits import drawn, limited
from ftx.data.render import Encoder
from ftx.data.sources import Source, sources_of
from ftx.data.splits import SPLITS
from ftx.data.store import TokenizedSplit
from ftx.data.templates import reads_the_date, template_sha256
from ftx.record.provenance import LOADED_SOURCES, package_versions

_LIBRARIES = ("transformers", "tokenizers", "jinja2", "pyarrow")


@dataclass(frozen=True)
class PreparedData:
    """Token ids of every split, what the record says of them, and what a person should know."""

    splits: Mapping[str, TokenizedSplit]
    record: dict[str, Any]
    findings: list[Finding]

    @property
    def train(self) -> TokenizedSplit:
        """Training rows."""
        return self.splits["train"]

    @property
    def validation(self) -> TokenizedSplit:
        """The rows that choose the checkpoint."""
        return self.splits["validation"]

    def has_answers(self, most: int | None) -> bool:
        """Whether all rows that are scored have an answer to compare with; plain text has none.

        Args:
            most: how many rows of each split are scored; None: all.
        """
        scored = [rows for name, rows in self.splits.items() if name != "train"]
        return all(rows.store.answered(rows.numbers[:most]) for rows in scored)

    @property
    def test(self) -> TokenizedSplit | None:
        """The rows that choose nothing; None where there are none."""
        return self.splits.get("test")


def prepare(config: DataConfig, tokenizer: Any, model_limit: int | None, *, lenient: bool = False) -> PreparedData:
    """Everything between the person's files and the first batch.

    Args:
        config: with or without a cache, which changes no token.
        tokenizer: with its template chosen (`templates.choose_template`).
        model_limit: the longest sequence that the model can take, in tokens.
        lenient: pass over bad rows whatever `config` says; if it says error, they are a problem among the findings.

    Raises:
        DataError: files or rows that cannot be used. What can be used but should not is among the findings.
    """
    sources = sources_of(config)
    entry = _entry(replace(config, on_bad_row="skip") if lenient else config, tokenizer, sources)
    limits = {
        "train": _smaller(config.max_seq_len, model_limit),
        "validation": (evaluation := _smaller(config.eval_max_seq_len, model_limit)),
        "test": evaluation,
    }
    splits: dict[str, TokenizedSplit] = {}
    lengths: dict[str, Any] = {}
    used = drawn(entry.stores["train"], config.weights, config.max_examples)
    for name in SPLITS:
        if name in entry.stores:
            store = entry.stores[name]
            numbers = used if name == "train" else np.arange(len(store))
            found = limited(store, numbers, limits[name], config.on_long)
            splits[name], lengths[name] = found.rows, found.counts
    record = _record(entry, sources, tokenizer, config, splits) | {"lengths": lengths}
    record["content"]["train"] |= {"used": hashlib.sha256(used.astype("<i8").tobytes()).hexdigest()}
    findings = [*_source_findings(config, sources, tokenizer), *data_findings(record, config)]
    if entry.aside is not None:
        findings.append(Finding("note", "cache", f"Tokenised data is not kept: {entry.aside}"))
    return PreparedData(splits, record, findings)


def _source_findings(config: DataConfig, sources: Sequence[Source], tokenizer: Any) -> Iterator[Finding]:
    """What the record of the rows does not show."""
    for source in sources:
        if config.source == "hub" and source.revision is None and not Path(str(config.name)).is_dir():
            detail = f"{source.records.origin}: which commit this is could not be found out, and is not recorded"
            yield Finding("note", "revision", f"{detail} (data.revision=COMMIT fixes it)")
    if reads_the_date(tokenizer):
        detail = "the chat template writes today's date: tomorrow the same run trains on other tokens"
        yield Finding(
            "note", "template", f"{detail} (data.template_kwargs.date_string='26 Jul 2024', where it has that)"
        )


def _entry(config: DataConfig, tokenizer: Any, sources: Sequence[Source]) -> Entry:
    encoder = Encoder(tokenizer, config.template_kwargs, config.supervise)
    hashes = [source.records.sha256() for source in sources]

    def build(folder: Path) -> dict[str, Any]:
        return Builder(config, encoder, folder).build(sources, hashes)

    if not tokenizer.is_fast:
        return built_aside(build, "this tokenizer is of the slow kind, which cannot say what it consists of")
    if config.cache_gb == 0:
        return built_aside(build)
    return Cache(cache_root(), int(config.cache_gb * 1e9)).entry(_key(config, tokenizer, sources, hashes), build)


def _key(config: DataConfig, tokenizer: Any, sources: Sequence[Source], hashes: Sequence[str]) -> str:
    """Of everything that decides what is stored: bytes, settings, tokenizer, template, code and libraries."""
    settings = {
        name: value
        for name, value in asdict(config).items()
        if name in ("columns", "on_bad_row", "group_by", "eval_fraction", "split_seed", "template_kwargs", "supervise")
    }
    parts = {
        "settings": settings,
        "sources": [(source.split, source.records.origin, source.revision) for source in sources],
        "bytes": list(hashes),
        "tokenizer": hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest(),
        "special": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        "template": template_sha256(tokenizer),
        "today": datetime.now(UTC).date().isoformat() if reads_the_date(tokenizer) else None,
        "cleaning": bool(getattr(tokenizer, "clean_up_tokenization_spaces", False)),
        "code": LOADED_SOURCES,
        "python": platform.python_version(),
        "libraries": package_versions(_LIBRARIES),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _record(
    entry: Entry,
    sources: Sequence[Source],
    tokenizer: Any,
    config: DataConfig,
    splits: Mapping[str, TokenizedSplit],
) -> dict[str, Any]:
    """The record's `dataset`, but for the lengths."""
    training = [file for file in entry.record["files"] if file["split"] == "train"]
    first = training[0]
    many = len(training) > 1
    joined = hashlib.sha256("".join(file["sha256"] for file in training).encode()).hexdigest()
    return {
        "path": ", ".join(file["path"] for file in training),
        "sha256": joined if many else first["sha256"],
        "revision": first["revision"],
        **{f"{name}_examples": len(splits.get(name, ())) for name in SPLITS},
        **entry.record,
        "weights": config.weights,
        "supervise": config.supervise,
        "template_sha256": template_sha256(tokenizer),
        "template_kwargs": config.template_kwargs,
    }


def _smaller(limit: int | None, model_limit: int | None) -> int | None:
    known = [bound for bound in (limit, model_limit) if bound is not None]
    return min(known) if known else None
