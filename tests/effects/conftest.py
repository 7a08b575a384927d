"""Every test stands in an empty folder and may ask `ftx.aggregate`."""

from pathlib import Path

import pytest

from effects.asking import Aggregate, without_drawing


@pytest.fixture
def aggregate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Aggregate:
    monkeypatch.chdir(tmp_path)
    without_drawing(monkeypatch)
    return Aggregate(capsys)


@pytest.fixture
def drawing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Aggregate:
    """The same with plots and page."""
    monkeypatch.chdir(tmp_path)
    return Aggregate(capsys)
