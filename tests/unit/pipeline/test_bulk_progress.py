"""What a bulk distribution reports on its way."""

import io
import logging

import pytest
from rich.console import Console

from packhorse_services.pipeline.bulk.progress import Amount, PhaseProgress


class Hand:
    """A clock that the test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_a_terminal_there_is_a_line_every_few_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Hand()
    console = Console(file=io.StringIO())
    with (
        caplog.at_level(logging.INFO),
        PhaseProgress("append", Amount(10, 1000), console=console, clock=clock) as reporting,
    ):
        reporting.reached(Amount(2, 200))  # by an earlier run
        for second in range(1, 7):
            clock.now = 100.0 + second
            reporting.reached(Amount(2 + second, 200 + 100 * second))
    (line,) = caplog.records
    reported = {name: getattr(line, name) for name in ("parts", "of_parts", "nodes", "of_nodes")}
    assert reported == {"parts": 7, "of_parts": 10, "nodes": 700, "of_nodes": 1000}
    assert (line.nodes_per_s, line.eta_s) == (100, 3)  # type: ignore[attr-defined]


def test_a_terminal_shows_a_bar_with_parts_nodes_rate_and_the_time_left() -> None:
    clock, text = Hand(), io.StringIO()
    console = Console(file=text, force_terminal=True, width=120, color_system=None)
    with PhaseProgress("export", Amount(4, 400), console=console, clock=clock) as reporting:
        reporting.reached(Amount(0, 0))
        clock.now += 2
        reporting.reached(Amount(2, 200))
        reporting.waits("the queue is [full]")
    shown = text.getvalue()
    assert "2/4 parts" in shown
    assert "200 of 400 nodes, 100/s" in shown
    assert "left" in shown
    assert "the queue is [full]" in shown


def test_the_same_reason_is_reported_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Hand()
    with PhaseProgress(
        "append", Amount(1, 1), console=Console(file=io.StringIO()), clock=clock
    ) as reports:
        for reason in ("full", "full", "away", "away"):
            reports.waits(reason)
        clock.now += 61
        reports.waits("away")
    assert [record.reason for record in caplog.records] == ["full", "away", "away"]  # type: ignore[attr-defined]
