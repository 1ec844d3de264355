"""A fault that lasts is told at its beginning, ever more rarely, and at its end."""

import logging

import pytest

from packhorse.runtime.outage import Outage
from tests.harness.clock import ManualClock


def test_a_fault_is_told_of_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    outage = Outage(logging.getLogger("x"), "nothing works", "all works again", clock)
    with caplog.at_level(logging.INFO):
        outage.ended()
        assert not outage.lasts
        told = []
        for second in range(100):
            before = len(caplog.records)
            outage.failed(f"reason {second}")
            told += [second] if len(caplog.records) > before else []
            clock.advance(1)
        assert outage.lasts
        outage.ended()
        assert not outage.lasts
        outage.ended()
    assert told == [0, 5, 15, 35, 75]
    assert caplog.records[1].getMessage() == "nothing works: reason 5"
    assert caplog.records[-1].getMessage() == "all works again, after 100 s"
    assert len(caplog.records) == 6


def test_a_failure_long_after_is_another_fault(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    outage = Outage(logging.getLogger("x"), "nothing works", "all works again", clock)
    for _ in range(3):
        outage.failed("why")
        clock.advance(301)
    assert len(caplog.records) == 3


def test_what_failed_long_ago_is_not_said_to_have_lasted(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    outage = Outage(logging.getLogger("x"), "nothing works", "all works again", clock)
    with caplog.at_level(logging.INFO):
        outage.failed("why")
        clock.advance(36_000)
        outage.ended()
    assert not outage.lasts
    assert caplog.messages == ["nothing works: why"]
