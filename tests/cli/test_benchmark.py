"""The benchmark runs, and says what it measured."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "benchmark.py"


def benchmark(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_it_measures_a_few_runs(tmp_path: Path) -> None:
    done = benchmark("aggregate", "--runs", "16", "--shape", "one", "--repeats", "1", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["studies"], found["arms"], found["seeds"], found["runs"], found["rows"]) == (1, 4, 4, 16, 4)
    assert found["seconds"] == found["seconds_of_each"][0] > 0
    assert found["runs_per_second"] == pytest.approx(found["runs"] / found["seconds"])
    assert found["megabytes_read"] * 1e6 / found["runs"] == pytest.approx(9000, rel=0.25)
    assert 30 < found["peak_megabytes"] < 500
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("runs", "shape", "expected"),
    [
        (10000, "studies", (100, 20, 5)),
        (10000, "one", (1, 100, 100)),
        (11, "studies", (1, 2, 5)),
        (1, "studies", (1, 1, 1)),
        (2, "one", (1, 2, 1)),
    ],
)
def test_the_runs_are_shared_out(runs: int, shape: str, expected: tuple[int, int, int]) -> None:
    assert runpy.run_path(str(SCRIPT.parent / "benchmarks" / "aggregate.py"))["layout"](runs, shape) == expected


def test_it_measures_a_few_rows(tmp_path: Path) -> None:
    done = benchmark("data", "--rows", "200", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found["ways"]) == ["read", "build", "cached", "datasets"]
    assert found["rows"] == 200
    for way in found["ways"].values():
        assert way["rows_per_second"] == pytest.approx(200 / way["seconds"])
    assert list(tmp_path.iterdir()) == []


def test_wrong_use_is_2(tmp_path: Path) -> None:
    done = benchmark("aggregate", "--runs", "0", folder=tmp_path)
    assert (done.returncode, "must be at least 1" in done.stderr) == (2, True)
