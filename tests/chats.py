"""A chat, and the bundled tokenizer to be given any template: what the tests of templates and masks share."""

import copy
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from ftx.data.rows import Turn

TEMPLATES = Path(str(resources.files("trl"))) / "chat_templates"
CHAT: list[Turn] = [
    {"role": "user", "content": "one plus one?"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "and one more?"},
    {"role": "assistant", "content": "three"},
]


@cache
def _bundled() -> Any:
    return AutoTokenizer.from_pretrained(str(resources.files("ftx") / "bundled" / "tiny"))


def bundled_tokenizer() -> Any:
    """One of one's own, to be changed at will."""
    return copy.deepcopy(_bundled())


def trl_template(name: str) -> str:
    """A chat template that TRL ships."""
    return (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
