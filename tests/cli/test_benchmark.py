"""The benchmark runs, and says what it measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "benchmark.py"


def benchmark(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("shape", "expected"), [("studies", (1, 2, 5, 2)), ("one", (1, 4, 3, 4))])
def test_it_measures_a_few_runs(tmp_path: Path, shape: str, expected: tuple[int, ...]) -> None:
    runs = {"studies": "11", "one": "12"}[shape]
    done = benchmark("aggregate", "--runs", runs, "--shape", shape, "--repeats", "1", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    studies, arms, seeds, rows = expected
    assert (found["studies"], found["arms"], found["seeds"], found["rows"]) == (studies, arms, seeds, rows)
    assert found["runs"] == studies * arms * seeds
    assert found["seconds"] == found["seconds_of_each"][0] > 0
    assert found["runs_per_second"] == pytest.approx(found["runs"] / found["seconds"])
    assert found["megabytes_read"] * 1e6 / found["runs"] == pytest.approx(9000, rel=0.25)
    assert 30 < found["peak_megabytes"] < 500
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [[], ["aggregate", "--runs", "0"], ["aggregate", "--shape", "round"]])
def test_wrong_use_is_2(tmp_path: Path, words: list[str]) -> None:
    assert benchmark(*words, folder=tmp_path).returncode == 2
