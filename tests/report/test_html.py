"""The report as a page: what it says, and that it needs nothing but itself."""

from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

import pytest

from ftx.effects.observations import FactorLevels, Metric, Observation, Observations, Problem
from ftx.effects.table import Options, StudyEffects, effects_of
from ftx.record.study_record import StudyRecord
from ftx.report.html import answer, html_report

BASE = [0.700, 0.704, 0.696, 0.702, 0.698]
BETTER = [0.750, 0.756, 0.745, 0.752, 0.747]
WORSE = [0.650, 0.656, 0.645, 0.652, 0.647]
CLOSE = [0.703, 0.705, 0.699, 0.706, 0.697]
VOID = {"meta", "br", "img", "hr", "link", "input"}


class Page(HTMLParser):
    """Collects text, tags and ids, and fails where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.headings: list[str] = []
        self.links: list[str] = []
        self.said: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            if name == "id":
                self.ids[value or ""] += 1
            if name in ("href", "src"):
                self.links.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.said.append(data)
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)

    @property
    def text(self) -> str:
        """Everything that a reader sees, spaces as one."""
        return " ".join(" ".join(self.said).split())


def judged(
    arms: dict[Any, Sequence[object]],
    *,
    name: str = "lora.rank",
    baseline: Any = 16,
    direction: str = "max",
    margin: float | None = None,
    problems: Sequence[Problem] = (),
) -> StudyEffects:
    rows = [
        Observation(
            levels={name: level},
            replicate=seed,
            status="finished" if isinstance(value, float) else str(value),
            value=value if isinstance(value, float) else None,
            cost={"seconds": 12.5, "trainable_parameters": 1000.0 * (1 + list(arms).index(level))},
            run=f"outputs/{seed}-{list(arms).index(level)}",
        )
        for level, values in arms.items()
        for seed, value in enumerate(values)
    ]
    return effects_of(
        Observations(
            name="study-1",
            design="ofat",
            metric=Metric("accuracy", direction),
            factors=(FactorLevels(name, tuple(arms), baseline),),
            rows=tuple(rows),
            problems=tuple(problems),
        ),
        Options(margin=margin),
    )


@pytest.fixture
def study() -> StudyRecord:
    return StudyRecord(
        study="study-1",
        design="ofat",
        factors=[{"name": "lora.rank", "keys": ["lora.rank"], "levels": [], "baseline": 16, "baseline_level": "16"}],
        baseline={"overrides": ["hardware.threads=1"], "fingerprint": "f", "config": {}},
        replicates={"seed": [0, 1, 2, 3, 4]},
        metric={"name": "accuracy", "direction": "max", "at": "best"},
        launches=[
            {
                "date": "2026-12-01T13:37:40Z",
                "command": ["python", "-m", "ftx.train", "-m", "lora.rank=8,16,32", "seed=0,1,2,3,4", "notes=a b"],
            }
        ],
    )


@pytest.mark.parametrize(
    ("values", "direction", "margin", "said"),
    [
        (BETTER, "max", None, "8 is better than the baseline 16: accuracy is higher by 0.05 (95% interval 0.0"),
        (WORSE, "max", None, "8 is worse than the baseline 16: accuracy is lower by 0.05 (95% interval 0.0"),
        (WORSE, "min", None, "8 is better than the baseline 16: accuracy is lower by 0.05 (95% interval 0.0"),
        (CLOSE, "max", None, "8 cannot be told from the baseline 16 (difference +0.002, n 5); this study finds diff"),
        (CLOSE, "max", 0.02, "8 and the baseline 16 are equivalent within 0.02 (difference +0.002, n 5)."),
        ([0.72, 0.73, "diverged", "failed", 0.71], "max", None, "8 is unstable: 2 of 5 runs failed, so no effect"),
        (BETTER[:2], "max", None, "8 has not enough seeds for a verdict (difference +0.051, n 2)."),
        (["missing"] * 5, "max", None, "8 has not enough seeds for a verdict."),
        (BASE, "max", None, "8 and the baseline 16 gave the very same results: "),
    ],
    ids=["better", "worse", "lower is better", "noise", "equivalent", "unstable", "few", "missing", "degenerate"],
)
def test_the_answer_says_the_verdict(values: Sequence[object], direction: str, margin: float | None, said: str) -> None:
    effects = judged({16: BASE, 8: values}, direction=direction, margin=margin)
    assert answer(effects, "lora.rank").startswith(said)


def test_the_answer_starts_with_the_best_level() -> None:
    effects = judged({16: BASE, 8: WORSE, 32: BETTER, 64: [value + 0.1 for value in BETTER]})
    parts = answer(effects, "lora.rank").split("; ")
    assert [part.split(" than")[0] for part in parts] == ["64 is better", "32 is better", "8 is worse"]


def test_a_baseline_that_fails_is_named() -> None:
    effects = judged({16: [*BASE[:4], "diverged"], 8: BETTER})
    said = "the baseline 16, and so the comparison with 8, is unstable: 1 of 5 runs failed, so no effect is claimed."
    assert answer(effects, "lora.rank") == said


def test_one_level_has_no_answer() -> None:
    assert answer(judged({16: BASE}), "lora.rank") == "lora.rank has one level, so nothing can be said about it."


def test_the_page_answers_first_and_shows_everything(study: StudyRecord) -> None:
    effects = judged({16: BASE, 8: WORSE, 32: BETTER}, problems=[Problem("differs", "device: cpu, cuda", ("r1", "r2"))])
    page = Page(html_report(effects, study))
    assert page.headings == [
        "study-1",
        "Differences from the baseline",
        "Main effects",
        "What it costs",
        "Table",
        "Runs",
        "What to know before comparing",
        "What to do next",
        "How to repeat it",
    ]
    assert page.tags["svg"] == 3
    for said in (
        "32 is better than the baseline 16",
        "15 planned runs",
        "outputs/4-2",
        "finished",
        "device: cpu, cuda",
        "r1, r2",
        "lora.rank=8 is safe to drop",
        "python -m ftx.train -m lora.rank=8,16,32 seed=0,1,2,3,4 'notes=a b'",
        "python scripts/aggregate.py --study study-1",
        "12.5",
    ):
        assert said in page.text
    assert page.text.index("32 is better") < page.text.index("Differences from the baseline")
    assert {name: count for name, count in page.ids.items() if count > 1} == {}


def test_the_page_needs_nothing_else(study: StudyRecord) -> None:
    text = html_report(judged({16: BASE, 8: WORSE}), study)
    page = Page(text)
    assert "http" not in text
    assert page.tags["script"] == page.tags["link"] == page.tags["img"] == page.tags["iframe"] == 0
    assert page.links
    assert all(link.removeprefix("#") in page.ids for link in page.links)
    assert "@import" not in text
    assert "var(--ink)" in text
    assert "prefers-color-scheme: dark" in text


def test_whatever_people_call_things_is_text() -> None:
    name, level = "<b>", '"><script>alert(1)</script>'
    problem = Problem("<i>", "<u>", ("<s>",))
    page = Page(html_report(judged({"a": BASE, level: WORSE}, name=name, baseline="a", problems=[problem]), None))
    assert page.tags["b"] == page.tags["script"] == page.tags["i"] == page.tags["u"] == page.tags["s"] == 0
    assert "<b>" in page.text
    assert level in page.text


def test_a_table_from_elsewhere_has_no_commands() -> None:
    page = Page(html_report(judged({16: BASE, 8: [0.702, 0.699, 0.705, 0.697, 0.703]}), None, drawn={}))
    assert page.tags["pre"] == 0
    assert "come from no study of ftx" in page.text
    assert "Nothing was found that makes these runs incomparable." in page.text


def test_many_runs_start_folded(study: StudyRecord) -> None:
    arms = {level: BASE if level == 16 else [value + level / 1000 for value in CLOSE] for level in range(8, 18)}
    assert "<details>\n<summary>50 planned runs" in html_report(judged(arms), study, drawn={})
    assert "<details open>\n<summary>10 planned runs" in html_report(judged({16: BASE, 8: CLOSE}), study, drawn={})
