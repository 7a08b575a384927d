"""The measurement of the launcher's cost runs, and says what it measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "simulate_launcher.py"


@pytest.mark.parametrize(
    ("jobs", "words", "mode"),
    [(6, [], "pool"), (3, ["--through-hydra"], "through Hydra")],
    ids=["pool", "through Hydra"],
)
def test_it_measures_a_few_jobs(tmp_path: Path, jobs: int, words: list[str], mode: str) -> None:
    command = [sys.executable, str(SCRIPT), "--jobs", str(jobs), "--slots", "2", "--json", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cost = json.loads(done.stdout)
    assert (cost["mode"], cost["jobs"], cost["failed"], cost["slots"]) == (mode, jobs, 0, 2)
    assert cost["preload"][:2] == ["hydra", "omegaconf"]
    assert 0 < cost["job_median"] <= cost["job_p95"] <= cost["wall_time"]
    assert 0 < cost["first_job"] <= cost["wall_time"]
    assert cost["jobs_per_second"] == pytest.approx(jobs / cost["wall_time"])
    assert cost["fresh_process_to_job"] == pytest.approx(cost["fresh_process_median"] / cost["job_median"])
    assert list(tmp_path.iterdir()) == []
