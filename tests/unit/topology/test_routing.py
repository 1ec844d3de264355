"""The path vector: every shape converges, also after a loss; nothing outlives itself."""

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhorse.topology.announcement_schema import MAX_PATH
from packhorse.topology.announcements import Announcement, Route
from packhorse.topology.routing import Chooser, Heard, reported_on
from tests.harness.depth import examples
from tests.harness.topology.clusters import cluster
from tests.harness.topology.path_network import Network, credulous

SIZES = st.integers(2, 7)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    size = draw(SIZES)
    ends = st.integers(0, size - 1)
    return Network(size, draw(st.lists(st.tuples(ends, ends), max_size=12)))


@settings(max_examples=examples(200), deadline=None)
@given(networks(), st.data())
def test_any_shape_converges_to_the_truth_again_and_again(
    network: Network, data: st.DataObject
) -> None:
    for _ in range(3):
        order = data.draw(st.permutations(network.links)) if network.links else []
        assert network.converge(order) <= 2 * len(network.names)
        for number in network.alive:
            assert network.known(number) == network.reachable(number)
        if network.links and data.draw(st.booleans()):
            network.cut(data.draw(st.sampled_from(network.links)))
        elif network.alive:
            network.kill(data.draw(st.sampled_from(sorted(network.alive))))


RING_WITH_A_TAIL = [(0, 1), (1, 2), (2, 3), (3, 0), (3, 4)]


def test_a_ring_forgets_the_dead() -> None:
    network = Network(5, RING_WITH_A_TAIL)
    network.converge()
    assert network.known(0) == {"c1", "c2", "c3", "c4"}
    network.kill(4)
    network.converge()
    assert network.known(0) == {"c1", "c2", "c3"}


def test_without_paths_a_ring_would_keep_the_dead_for_ever() -> None:
    """The check of the check: a build without path vectors is caught."""
    network = Network(5, RING_WITH_A_TAIL, keep=credulous)
    network.converge()
    network.kill(4)
    network.converge()
    assert "c4" in network.known(0)


def reported(name: str, *routes: Route, instance: str = "", changed_ms: int = 0) -> Heard:
    own = cluster(name, instance or f"{name}-1")
    return Heard(Announcement(own.ids[0], own, routes), "", changed_ms)


def test_the_shortest_path_wins_and_then_the_first_by_name() -> None:
    direct = reported("d")
    long = reported("a", Route(("a", "b", "d"), cluster("d", "stale")))
    assert Chooser().routes((long, direct), "x")[-1].path == ("d",)
    one = reported("a", Route(("a", "e"), cluster("e", "by-a")))
    two = reported("b", Route(("b", "e"), cluster("e", "by-b")))
    for order in ((one, two), (two, one)):
        assert Chooser().routes(order, "x")[-1].cluster.ids == ("by-a",)


def test_of_two_instances_of_a_cluster_the_newer_word_counts() -> None:
    old = reported("a", instance="a-1", changed_ms=1)
    new = reported("a", instance="a-2", changed_ms=2)
    for order in ((old, new), (new, old)):
        [route] = Chooser().routes(order, "x")
        assert route.cluster.ids == ("a-2",)


def test_an_instance_is_in_one_cluster_only() -> None:
    near = reported("near", instance="shared")
    far = reported("a", Route(("a", "far"), cluster("far", "shared")))
    assert [route.cluster.id for route in Chooser().routes((near, far), "x")] == ["a", "near"]


def test_nothing_is_announced_to_whom_it_came_through() -> None:
    routes = (Route(("a", "b"), cluster("b")), Route(("c",), cluster("c")))
    assert [one.path for one in reported_on(routes, "me", "a")] == [("me", "c")]
    assert [one.path for one in reported_on(routes, "me", "")] == [("me", "a", "b"), ("me", "c")]


def test_paths_have_an_end() -> None:
    path = tuple(f"p{number}" for number in range(MAX_PATH))
    assert reported_on((Route(path, cluster(path[-1])),), "me", "") == ()


def test_what_is_left_out_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """It is asked with each heartbeat; a peer must not fill the log, nor be ranked each time."""
    chooser = Chooser()
    many = tuple(reported(f"c{number:03}", instance="shared") for number in range(100))
    with caplog.at_level(logging.WARNING):
        first = chooser.routes(many, "x")
        again = chooser.routes(
            tuple(reported(f"c{n:03}", instance="shared") for n in range(100)), "x"
        )
        [line] = caplog.messages
        assert line.startswith("99 clusters are left out of the topology; c001: ")
        assert "shared" in line
        assert [route.cluster.id for route in first] == ["c000"]
        assert again is first
        chooser.routes(many[1:], "x")
    assert len(caplog.records) == 2
