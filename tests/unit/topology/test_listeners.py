"""Listeners that are quick, slow, late, broken, or never come back."""

import threading

import pytest

from packhorse.topology.events import EventKind, TopologyEvent
from packhorse.topology.listeners import Listeners
from tests.harness.topology.observations import topology
from tests.harness.topology.scripted import ME
from tests.harness.waiting import eventually

INIT, CHANGING, CHANGED, PROPERTIES = EventKind
FIRST, SECOND = topology(ME), topology(ME, "a")


class Recorder:
    def __init__(self) -> None:
        self.heard: list[TopologyEvent] = []

    def __call__(self, event: TopologyEvent) -> None:
        self.heard.append(event)

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.heard]


class Stuck(Recorder):
    """Returns from its first event when it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.back = threading.Event(), threading.Event()

    def __call__(self, event: TopologyEvent) -> None:
        super().__call__(event)
        self.go.wait(300)
        self.back.set()


def change(listeners: Listeners, times: int = 1) -> None:
    for _ in range(times):
        listeners.post(TopologyEvent(CHANGING, FIRST, None))
        listeners.post(TopologyEvent(CHANGED, FIRST, SECOND))


def test_a_stuck_listener_delays_nobody_and_keeps_two_events_at_most() -> None:
    listeners, stuck, quick = Listeners(), Stuck(), Recorder()
    listeners.add(stuck)
    listeners.add(quick)
    listeners.post(TopologyEvent(INIT, None, FIRST))
    eventually(lambda: stuck.heard, what="the listener is stuck")
    change(listeners, times=1_000)
    eventually(lambda: quick.heard and quick.heard[-1].new == SECOND, what="the quick one")
    assert stuck.kinds() == [INIT]
    stuck.go.set()
    listeners.stop(120.0)
    assert stuck.kinds() == [INIT, CHANGING, CHANGED]


def test_stop_does_not_wait_for_a_stuck_listener() -> None:
    listeners, stuck = Listeners(), Stuck()
    listeners.add(stuck)
    listeners.post(TopologyEvent(INIT, None, FIRST))
    eventually(lambda: stuck.heard)
    listeners.stop(0.05)
    assert not stuck.back.is_set()
    stuck.go.set()


@pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(3)])
def test_a_listener_that_raises_hears_the_next_event(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    listeners, heard = Listeners(), Recorder()

    def broken(event: TopologyEvent) -> None:
        heard(event)
        raise error

    listeners.add(broken)
    listeners.post(TopologyEvent(INIT, None, FIRST))
    eventually(lambda: heard.kinds() == [INIT])
    eventually(lambda: caplog.records, what="it is logged")
    change(listeners)
    listeners.stop(120.0)
    assert heard.kinds() == [INIT, CHANGING, CHANGED]


def test_a_late_listener_begins_with_init_or_waits_for_a_view() -> None:
    listeners, late, later = Listeners(), Recorder(), Recorder()
    listeners.post(TopologyEvent(INIT, None, FIRST))
    listeners.add(late)
    eventually(lambda: late.kinds() == [INIT])
    listeners.post(TopologyEvent(CHANGING, FIRST, None))
    listeners.add(later)
    listeners.post(TopologyEvent(CHANGED, FIRST, SECOND))
    listeners.stop(120.0)
    assert late.kinds() == [INIT, CHANGING, CHANGED]
    assert later.heard == [TopologyEvent(INIT, None, SECOND)]


def test_a_listener_that_was_removed_hears_nothing_more() -> None:
    listeners, gone, quick = Listeners(), Recorder(), Recorder()
    listeners.add(gone)
    listeners.add(quick)
    listeners.post(TopologyEvent(INIT, None, FIRST))
    eventually(lambda: gone.heard)
    listeners.remove(gone)
    change(listeners)
    listeners.stop(120.0)
    assert gone.kinds() == [INIT]
    assert quick.heard[-1].new == SECOND


def test_after_the_end_nobody_is_added_and_no_thread_is_left() -> None:
    listeners, quick = Listeners(), Recorder()
    listeners.add(quick)
    listeners.post(TopologyEvent(INIT, None, FIRST))
    listeners.stop(120.0)
    listeners.stop(120.0)
    listeners.add(Recorder())
    names = [thread.name for thread in threading.enumerate()]
    assert "topology-listener" not in names
    assert quick.kinds() == [INIT]
