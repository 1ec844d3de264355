"""Signals that end a program without an event loop."""

import os
import signal
import threading

from packhorse.runtime.signals import set_by_signals

DEADLINE_S = 120.0


def test_the_first_signal_sets_the_event() -> None:
    stop = threading.Event()
    with set_by_signals(stop):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(DEADLINE_S)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


def test_a_signal_inside_a_wait_does_not_lock_up() -> None:
    """The main thread holds the event's own lock; a handler that sets it would wait for ever."""
    stop = threading.Event()
    with set_by_signals(stop):
        with stop._cond:  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(DEADLINE_S)


def test_afterwards_all_is_as_before() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    stop = threading.Event()
    with set_by_signals(stop):
        assert signal.getsignal(signal.SIGTERM) is not before[signal.SIGTERM]
    assert {number: signal.getsignal(number) for number in before} == before
    assert "signals" not in {thread.name for thread in threading.enumerate()}
    assert not stop.is_set()
