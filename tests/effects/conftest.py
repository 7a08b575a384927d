"""Every test stands in an empty folder and may ask `ftx.aggregate`."""

from pathlib import Path

import pytest

from effects.asking import Aggregate


@pytest.fixture
def aggregate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Aggregate:
    monkeypatch.chdir(tmp_path)
    return Aggregate(capsys)
