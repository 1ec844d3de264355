"""Discovery over a real database, with either store: all instances hear the same."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from packhorse.db.connect import connect
from packhorse.topology import open as opening
from packhorse.topology.announcement_store import forget, keep
from packhorse.topology.announcements import Announcement
from packhorse.topology.configuration import Store, TopologyConfiguration
from packhorse.topology.discovery import Discovery
from packhorse.topology.events import EventKind, TopologyEvent
from packhorse.topology.lease import transitions
from packhorse.topology.open import open_discovery
from packhorse.topology.properties import FixedProperties
from tests.harness.topology.clusters import cluster
from tests.harness.waiting import eventually

TIMES: dict[Store, tuple[float, float]] = {"lease": (0.3, 60.0), "voting": (0.5, 10.0)}
"""Nobody dies here; but a first voting takes a time-out."""
SEQUENCE = [("c",), ("c", "a"), ("c", "a", "b"), ("a", "b"), ("b",)]


class Instance:
    """One instance and all that it heard."""

    def __init__(self, url: str, store: Store, name: str, prefix: str = "1") -> None:
        interval_s, timeout_s = TIMES[store]
        settings = TopologyConfiguration(
            instance_id=name,
            topology_store=store,
            topology_interval_s=interval_s,
            topology_timeout_s=timeout_s,
            min_event_delay_s=0.1,
            leader_prefix=prefix,
        )
        self.discovery: Discovery = open_discovery(
            url, settings, [FixedProperties({"packhorse.role": name})]
        )
        self.heard: list[TopologyEvent] = []
        self.discovery.add_listener(self.heard.append)

    def order(self) -> tuple[str, ...]:
        view = self.discovery.current_view()
        return () if view is None else view.local_cluster.ids

    def remotes(self) -> list[str] | None:
        view = self.discovery.current_view()
        return None if view is None else [one.id for one in view.remote_clusters]

    def views(self) -> list[tuple[str, ...]]:
        news = (one.new for one in self.heard if one.kind is not EventKind.PROPERTIES_CHANGED)
        return [view.local_cluster.ids for view in news if view is not None]


@contextmanager
def running(*instances: Instance) -> Iterator[None]:
    """Start them one after the other, so that their order is known."""
    try:
        for number, one in enumerate(instances, start=1):
            one.discovery.start()
            eventually(lambda one=one, number=number: len(one.order()) == number, timeout=180)
        yield
    finally:
        for one in instances:
            one.discovery.stop(120)
            assert one.discovery.failure() is None


@pytest.mark.parametrize("store", TIMES)
def test_all_hear_the_same_of_joining_and_leaving(database_url: str, store: Store) -> None:
    instances = c, a, b = [Instance(database_url, store, name) for name in "cab"]
    with running(*instances):
        for one in instances:
            eventually(lambda one=one: one.order() == ("c", "a", "b"), timeout=180)
        a.discovery.set_property("load", "7")
        eventually(lambda: load_of_a(b) == "7", timeout=180)
        c.discovery.stop(120)
        for one in (a, b):
            eventually(lambda one=one: one.order() == ("a", "b"), timeout=180)
    for one in instances:
        kinds = [event.kind for event in one.heard]
        assert kinds[0] is EventKind.INIT
        assert kinds[-1] is EventKind.CHANGING
        assert one.views() == [view for view in SEQUENCE if view in one.views()]


@pytest.mark.parametrize("store", TIMES)
def test_all_hear_at_once_of_other_clusters(
    database_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_LOOK_S", 3600.0)
    instances = [Instance(database_url, store, name) for name in "ab"]
    with running(*instances), connect(database_url, "tests", autocommit=True) as connection:
        keep(connection, Announcement("far-1", cluster("far")), "", "10.0.0.1", 3600)
        for one in instances:
            eventually(lambda one=one: one.remotes() == ["far"])
        forget(connection, "far-1", "")
        for one in instances:
            eventually(lambda one=one: one.remotes() == [])


def load_of_a(instance: Instance) -> str | None:
    view = instance.discovery.current_view()
    if view is None:
        return None
    (a,) = view.find(lambda one: one.id == "a")
    return a.properties.get("load")


def test_with_leases_a_preferred_instance_leads_once_the_leader_has_left(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transitions, "_PATIENCE", "60s")  # else a slow renewal keeps the order
    leader, second = (Instance(database_url, "lease", name) for name in "ab")
    preferred = Instance(database_url, "lease", "c", prefix="0")
    with running(leader, second, preferred):
        eventually(lambda: second.order() == ("a", "b", "c"), timeout=180)
        leader.discovery.stop(120)
        for one in (second, preferred):
            eventually(lambda one=one: one.order() == ("c", "b"), timeout=180)
