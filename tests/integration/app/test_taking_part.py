"""A program in the topology without jobs: what it announces, what it hears, and what it leads."""

import os
import queue

import pytest

from packhorse import App, Topology
from packhorse.runtime.configuration import InvalidConfiguration
from packhorse.topology.events import EventKind, TopologyEvent
from packhorse.topology.leader import NotLeader
from packhorse.topology.properties import InvalidProperty
from tests.harness.waiting import eventually

WAIT_S = 120.0
QUICK = {"topology_interval_s": 0.2, "topology_timeout_s": 30.0}
"""Whoever leaves says so; nobody is silent here, but a busy machine may stand still for seconds."""


class Growing:
    """A provider whose value is another one each time."""

    ranking = 0
    asked = 0

    def properties(self) -> dict[str, str | None]:
        self.asked += 1
        return {"load": str(self.asked), "rack": "of the provider", "none": None}


def test_it_announces_itself_and_knows_the_others(database_url: str) -> None:
    one = Topology(
        "web",
        properties={"rack": "7", "packhorse.role": "another"},
        providers=[Growing()],
        database_url=database_url,
        instance_id="web-1",
        **QUICK,
    )
    events: queue.SimpleQueue[TopologyEvent] = queue.SimpleQueue()
    one.on_change(events.put)
    assert not one.is_current()
    assert one.view() is None
    with one:
        first = one.current_view(wait=WAIT_S)
        assert first is not None
        me = first.local_instance
        assert (me.id, me.is_leader, one.is_current()) == ("web-1", True, True)
        assert me.properties["rack"] == "of the provider"  # a provider is above what stays
        assert me.properties["packhorse.role"] == "web"
        assert me.properties["packhorse.pid"] == str(os.getpid())
        assert events.get(timeout=WAIT_S).kind is EventKind.INIT
        app = App("worker", database_url=database_url, properties={"rack": "9"}, **QUICK)
        with app.running():
            app.topology.set_property("zone", "b")
            both = eventually(lambda: two_with(one, "zone"), timeout=WAIT_S, what="both are seen")
            assert [(who.properties["rack"], who.properties["packhorse.role"]) for who in both] == [
                ("of the provider", "web"),
                ("9", "worker"),
            ]
            assert app.topology.remove_property("zone")
        eventually(
            lambda: (view := one.current_view()) and len(view.instances) == 1,
            timeout=WAIT_S,
            what="the app has left",
        )


def two_with(topology: Topology, name: str) -> list:  # type: ignore[type-arg]
    view = topology.current_view()
    found = [] if view is None else list(view.instances)
    return found if len(found) == 2 and name in found[1].properties else []


def test_a_leader_task_may_be_asked_for_while_it_takes_part(database_url: str) -> None:
    first = Topology("web", database_url=database_url, instance_id="first", **QUICK)
    second = Topology("web", database_url=database_url, instance_id="second", **QUICK)
    with first:
        assert first.current_view(wait=WAIT_S) is not None  # it has joined before the second starts
        with second:
            one = first.leader("cleaning")
            eventually(one.is_mine, timeout=WAIT_S, what="the first leads")
            two = second.leader("cleaning")
            assert second.current_view(wait=WAIT_S) is not None
            assert not two.is_mine()
            with one.transaction() as connection:
                connection.execute("CREATE TABLE cleaned (id int)")
            with pytest.raises(NotLeader), two.transaction():
                pass
            first.close()
            eventually(two.is_mine, timeout=WAIT_S, what="the second leads")


def test_what_can_not_be_announced_or_found_is_told_at_once(database_url: str) -> None:
    with pytest.raises(InvalidProperty):
        Topology("web", properties={"a b": "c"}, database_url=database_url)
    with pytest.raises(InvalidProperty):
        App("web", properties={"a": "\0"}, database_url=database_url)
    with pytest.raises(InvalidConfiguration, match="no setting 'colour'"):
        Topology("web", database_url=database_url, colour="red")
