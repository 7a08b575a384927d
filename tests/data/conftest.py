"""What the tests of data share: the bundled tokenizer, loaded once, and a cache of each test's own."""

import copy
from pathlib import Path
from typing import Any

import pytest

from ftx.config.schema import ModelConfig


@pytest.fixture(scope="session")
def loaded_tokenizer() -> Any:
    from ftx.model.base import load_tokenizer  # seconds

    return load_tokenizer(ModelConfig(name="tiny", bundled=True))


@pytest.fixture
def tokenizer(loaded_tokenizer: Any) -> Any:
    """The bundled tokenizer, to be changed at will."""
    return copy.deepcopy(loaded_tokenizer)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this test's cache entries."""
    monkeypatch.setenv("FTX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "data"
