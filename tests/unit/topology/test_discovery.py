"""The running component: what store, duplicates, listeners and time do to it."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest
from prometheus_client import REGISTRY

from packhorse.app.topology import Topology
from packhorse.topology.discovery import Discovery
from packhorse.topology.events import EventKind, TopologyEvent
from packhorse.topology.membership import DuplicateInstance, Observation, StoreUnavailable
from packhorse.topology.properties import InvalidProperty
from packhorse.topology.view import ClusterView
from tests.harness.clock import ManualClock
from tests.harness.topology.observations import seen
from tests.harness.topology.scripted import ME, cluster
from tests.harness.waiting import eventually

INIT, CHANGING, CHANGED, PROPERTIES = EventKind


class Controlled:
    """A membership whose next beats a test decides; it beats as fast as it may."""

    instance_id, interval_s = ME, 0.01

    def __init__(self) -> None:
        self.next: Callable[[], Observation] = lambda: seen(ME)
        self.beats, self.left = 0, False
        self.acknowledged: list[str] = []
        self.announced: Mapping[str, str] = {}
        self._woken = threading.Event()

    def beat(self, properties: Mapping[str, str]) -> Observation:
        self.announced = properties
        answer = self.next()
        self.beats += 1
        return answer

    def acknowledge(self, revision: str) -> None:
        self.acknowledged.append(revision)

    def wait(self, seconds: float) -> bool:
        woken = self._woken.wait(seconds)
        self._woken.clear()
        return woken

    def wake(self) -> None:
        self._woken.set()

    def leave(self) -> None:
        self.left = True

    def fail(self, error: Exception) -> None:
        def beat() -> Observation:
            raise error

        self.next = beat

    def beats_more(self, count: int = 3) -> None:
        wanted = self.beats + count
        eventually(lambda: self.beats >= wanted, interval=0.005)


class Remotes:
    def __init__(self) -> None:
        self.fails = False

    def is_fresh(self) -> bool:
        return False

    def clusters(self) -> Sequence[ClusterView]:
        if self.fails:
            raise StoreUnavailable("away")
        return (cluster("x", name="far"),)


@contextmanager
def running(member: Controlled, **options: object) -> Iterator[tuple[Discovery, list[EventKind]]]:
    discovery = Discovery(member, min_event_delay_s=0.0, **options)  # type: ignore[arg-type]
    heard: list[EventKind] = []
    discovery.add_listener(lambda event: heard.append(event.kind))
    discovery.start()
    try:
        eventually(lambda: heard or discovery.trouble(), interval=0.005)
        yield discovery, heard
    finally:
        discovery.stop(120.0)
        assert discovery.failure() is None


def listening(discovery: Discovery) -> list[EventKind]:
    """Return what one more listener hears, once the remote cluster has been seen."""

    def is_seen() -> bool:
        view = discovery.current_view()
        return view is not None and [one.id for one in view.clusters] == ["cluster-1", "far"]

    eventually(is_seen, what="the first look at the remote clusters may be late")
    heard: list[EventKind] = []
    discovery.add_listener(lambda event: heard.append(event.kind))
    eventually(lambda: heard == [INIT], interval=0.005)
    return heard


def metric(name: str) -> float:
    return REGISTRY.get_sample_value(f"packhorse_topology_{name}") or 0.0


def test_a_view_is_reported_and_ended_by_stop() -> None:
    member = Controlled()
    with running(member) as (discovery, heard):
        assert discovery.is_current()
        assert discovery.membership is member
        eventually(lambda: heard == [INIT] and member.acknowledged, interval=0.005)
        eventually(lambda: metric("leader") == metric("current") == metric("instances") == 1)
        assert member.acknowledged[0] == "1"
    assert member.left
    assert heard == [INIT, CHANGING]
    assert not discovery.is_current()
    assert metric("leader") == metric("current") == 0
    discovery.stop(1.0)


@pytest.mark.parametrize(
    "error", [StoreUnavailable("away"), DuplicateInstance("another one"), RuntimeError("a bug")]
)
def test_trouble_is_logged_once_and_the_loop_goes_on(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    member = Controlled()
    with caplog.at_level(logging.INFO), running(member) as (discovery, heard):
        member.fail(error)
        eventually(discovery.trouble, interval=0.005)
        calls: list[int] = []
        member.next = lambda failing=member.next: calls.append(1) or failing()  # type: ignore[misc]
        eventually(lambda: len(calls) > 5, interval=0.005)
        assert discovery.trouble() == f"{type(error).__name__}: {error}"
        assert discovery.is_current() == (not isinstance(error, DuplicateInstance))
        member.next = lambda: seen(ME, "a", revision="2")
        eventually(lambda: heard[-1:] == [CHANGED], interval=0.005)
    texts = [one.getMessage() for one in caplog.records]
    why = f"{type(error).__name__}: {error}"
    assert texts.count(f"the topology's heartbeat fails: {why}") == 1, "the text says why"
    assert len([text for text in texts if "fails" in text]) == 1
    assert texts.count("the topology's heartbeat succeeds again") == 1
    assert heard == [INIT, CHANGING, CHANGED, CHANGING]


def test_a_view_ends_in_time_though_the_store_hangs_and_so_does_stop() -> None:
    clock, member = ManualClock(), Controlled()
    hangs, hang = threading.Event(), threading.Event()
    until = clock.monotonic() + 10
    member.next = lambda: seen(ME, until=until)
    discovery = Discovery(member, min_event_delay_s=0.0, clock=clock)
    heard: list[EventKind] = []
    discovery.add_listener(lambda event: heard.append(event.kind))
    discovery.start()
    try:
        eventually(lambda: heard == [INIT], interval=0.005)

        def stuck() -> Observation:
            hangs.set()
            assert hang.wait(300)
            return seen(ME, "a", revision="2")

        member.next = stuck

        def has_ended() -> bool:
            clock.advance(1.1)  # again and again: who waits may count from what it reads now
            return hangs.is_set() and heard == [INIT, CHANGING]

        eventually(has_ended, interval=0.005)
        discovery.stop(0.2)
        assert not member.left, "the store still hangs"
    finally:
        hang.set()
    eventually(lambda: member.left, what="the heartbeat came back")
    assert heard == [INIT, CHANGING]


def test_properties_go_with_the_next_heartbeat() -> None:
    member = Controlled()
    member.next = lambda: seen(ME, properties={ME: dict(member.announced)})
    with running(member) as (discovery, heard):
        discovery.set_property("load", "7")
        eventually(lambda: discovery.view().local_instance.properties == {"load": "7"})  # type: ignore[union-attr]
        eventually(lambda: heard == [INIT, PROPERTIES], what="else the next one may join it")
        with pytest.raises(InvalidProperty):
            discovery.set_property("a b", "1")
        assert discovery.remove_property("load")
        eventually(lambda: heard == [INIT, PROPERTIES, PROPERTIES])


def test_remote_clusters_that_can_t_be_read_stay(caplog: pytest.LogCaptureFixture) -> None:
    member, remotes = Controlled(), Remotes()
    with running(member, remotes=remotes) as (discovery, _):
        heard = listening(discovery)
        remotes.fails = True
        eventually(lambda: reports(caplog), what="another thread has read them in vain")
        member.beats_more(5)
        view = discovery.current_view()
        assert view is not None
        assert [one.id for one in view.clusters] == ["cluster-1", "far"]
        assert heard == [INIT]
    assert reports(caplog) == 1


def reports(caplog: pytest.LogCaptureFixture) -> int:
    return len([one for one in caplog.records if "remote clusters" in one.getMessage()])


def test_remote_clusters_that_hang_delay_no_heartbeat() -> None:
    member, remotes, hang = Controlled(), Remotes(), threading.Event()
    with running(member, remotes=remotes) as (discovery, _):
        heard = listening(discovery)
        remotes.clusters = lambda: hang.wait(300) and ()  # type: ignore[method-assign,assignment]
        member.beats_more(20)
        member.next = lambda: seen(ME, "a", revision="2")
        eventually(lambda: heard == [INIT, CHANGING, CHANGED])
        assert discovery.is_current()
        hang.set()


def test_the_death_of_a_thread_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that is away is no death: all is tried again."""
    topology = Topology("web", database_url="postgresql://nowhere/none", instance_id="one")
    death = RuntimeError("can't start new thread")
    monkeypatch.setattr(topology.cluster.discovery, "failure", lambda: death)
    assert topology.cluster.failure() is topology.failure() is death


def test_a_listener_that_hangs_or_raises_stops_nothing() -> None:
    member, hang = Controlled(), threading.Event()

    def stuck(_event: TopologyEvent) -> None:
        hang.wait(300)

    def broken(_event: TopologyEvent) -> None:
        raise RuntimeError("broken")

    with running(member) as (discovery, heard):
        discovery.add_listener(stuck)
        discovery.add_listener(broken)
        member.next = lambda: seen(ME, "a", revision="2")
        eventually(lambda: heard == [INIT, CHANGING, CHANGED])
        discovery.remove_listener(stuck)
        hang.set()
