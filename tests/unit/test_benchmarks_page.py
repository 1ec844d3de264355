"""docs/benchmarks.md shows the lines of one run, and judges them by the targets."""

import json
from typing import Any

import pytest

from tests.bench.page import PAGE, PLOT, drawing, filled, read, tables
from tests.bench.targets import TARGETS, Target

_RUN = "python -m tests.bench."


def test_the_page_is_made_of_its_lines() -> None:
    page = PAGE.read_text()
    assert page == filled(page, read()), "run `make benchmarks` and commit the result"
    assert PLOT.read_text() == drawing(read())


def test_the_page_has_all_that_make_bench_measures() -> None:
    recipe = (PAGE.parents[1] / "Makefile").read_text().partition("\nbench: $(VENV)")[2]
    lines = recipe.partition("\n\n")[0].splitlines()
    measured = {line.strip().removeprefix(_RUN).split()[0] for line in lines if _RUN in line}
    assert set(tables(PAGE.read_text())) == measured | {"targets"}
    assert {line["bench"] for line in read()} == measured


@pytest.mark.parametrize(
    ("limit", "good", "bad"), [("≤ 1,500 µs", 1_500, 1_501), ("≥ 0.17", 0.17, 0.169)]
)
def test_a_target_is_met_at_its_limit_and_missed_behind_it(
    limit: str, good: float, bad: float
) -> None:
    target = Target("a figure", "publish.alone.cpu_us", limit)
    assert target.met(good)
    assert not target.met(bad)


def test_a_missed_target_says_why() -> None:
    line: dict[str, Any] = {"bench": "importing", "name": "kafka_11", "value": 1.0, "unit": "s"}
    lines = [{**line, "cpu_us": 171.0}, *read()]
    page = "<!-- table: targets -->\n<!-- end -->\n"
    [row] = [one for one in filled(page, lines).splitlines() if "11 nodes" in one]
    assert "| ≤ 170 µs | 171 | **missed**: " in row


def test_figures_are_shown_with_their_anchor_and_units() -> None:
    line = {"bench": "x", "name": "by_hand", "value": 12345.6, "unit": "records/s"}
    beside = {"anchor": "a log", "anchor_value": 5000.0, "ratio": 2.469}
    lines = [json.loads(json.dumps({**line, **beside, "cpu_us": 61.23, "load": 1.0}))]
    shown = filled("<!-- table: x -->\n<!-- end -->\n", lines).splitlines()
    assert "| by hand | 12,300 records/s | 2.47 × a log (5,000) | CPU 61.2 µs |" in shown


def test_all_targets_are_of_figures_that_are_measured() -> None:
    for target in TARGETS:
        target.measured(read())
