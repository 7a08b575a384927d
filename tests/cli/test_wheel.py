"""An installed wheel works away from the checkout: conf/, the model and the data travel inside."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from processes import run_module

ROOT = Path(__file__).parents[2]


@pytest.mark.train
def test_a_wheel_trains_away_from_the_checkout(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    assert (site / "ftx" / "conf" / "train.yaml").is_file()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    words = ["debug=smoke", "score=none", "hardware.threads=1"]
    done = run_module("ftx.train", *words, folder=elsewhere, PYTHONPATH=str(site))
    assert done.status == 0, done.out + done.err
    record = done.record()
    assert record["config_commit"] is None
    assert "repository" in record["code"]["config"]["reason"]
