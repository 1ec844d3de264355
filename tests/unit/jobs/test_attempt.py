"""What threads, the worker and handles share of an attempt."""

from datetime import timedelta

import pytest

from packhorse.jobs.job import JobLost, JobProgress
from packhorse.jobs.names import InvalidProperties
from packhorse.jobs.store.notes import LONGEST_TEXT, MOST_LINES, Notes
from packhorse.jobs.work.attempt import RunningAttempt, StopReason
from tests.harness.clock import ManualClock
from tests.harness.jobs.made import NOON, claimed


def test_it_is_closed_once() -> None:
    running = RunningAttempt(claimed())
    running.require_open()
    assert running.close()
    assert not running.close()
    with pytest.raises(JobLost, match="has ended"):
        running.require_open()


def test_a_lost_attempt_is_not_open() -> None:
    running = RunningAttempt(claimed())
    assert running.request_stop(StopReason.LOST)
    with pytest.raises(JobLost):
        running.require_open()


def test_a_stop_is_heard_and_its_reasons_are_kept() -> None:
    running = RunningAttempt(claimed())
    assert not running.stop_requested
    assert not running.wait(0)
    assert running.request_stop(StopReason.LEAVING)
    assert running.request_stop(StopReason.REQUESTED)
    assert not running.request_stop(StopReason.REQUESTED)
    assert running.stop_requested
    assert running.wait(120)
    assert running.stop_requested_for(StopReason.REQUESTED)
    assert not running.stop_requested_for(StopReason.TIME)


def test_what_is_notes_is_taken_once() -> None:
    clock = ManualClock()
    running = RunningAttempt(claimed(extra={"old": 1}), clock)
    assert running.take_notes() == Notes()
    clock.advance(2)
    running.say_progress(JobProgress(steps=10), timedelta(seconds=3))
    running.say_progress(JobProgress(step=3, message="three"), None)
    running.say_progress(JobProgress(step=4), None)  # the message stays
    running.say_line("a")
    running.say_property("new", [2])
    notes = running.take_notes()
    assert notes.progress == JobProgress(
        step=4, steps=10, message="three", eta=NOON + timedelta(seconds=5)
    )
    assert (notes.log, notes.extra) == (("a",), {"old": 1, "new": [2]})
    assert running.take_notes() == Notes()


def test_what_could_not_be_stored_comes_again_with_what_is_newer() -> None:
    running = RunningAttempt(claimed())
    running.say_line("1")
    running.say_progress(JobProgress(step=1), None)
    running.say_property("x", 1)
    running.give_back(running.take_notes())
    notes = running.take_notes()
    assert (notes.log, notes.extra) == (("1",), {"x": 1})
    running.say_line("2")
    running.say_property("x", 2)
    running.give_back(notes)
    again = running.take_notes()
    assert again.log == ("1", "2")
    assert again.progress == JobProgress(step=1)
    assert again.extra == {"x": 2}


def test_what_is_notes_is_bounded() -> None:
    running = RunningAttempt(claimed())
    for number in range(MOST_LINES + 50):
        running.say_line(f"{number:04d}" + "x" * LONGEST_TEXT)
    running.say_line("a\0b\ud800")
    running.say_progress(JobProgress(message="m" * (LONGEST_TEXT + 1)), None)
    notes = running.take_notes()
    assert len(notes.log) == MOST_LINES
    assert notes.log[0].startswith("0051")
    assert len(notes.log[0]) == LONGEST_TEXT
    assert notes.log[-1] == "a�b?"
    assert notes.progress is not None
    assert len(notes.progress.message) == LONGEST_TEXT
    with pytest.raises(InvalidProperties, match="bytes"):
        running.say_property("large", "x" * 70_000)
    with pytest.raises(InvalidProperties):
        running.say_property("", 1)
    assert running.take_notes() == Notes()
