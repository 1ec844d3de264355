"""The path vector: every shape converges, also after a loss; nothing outlives itself."""

import logging
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhorse.topology.announcement_schema import MAX_PATH
from packhorse.topology.announcements import Announcement, Route
from packhorse.topology.routing import Chooser, Heard, reported_on
from packhorse_services.topology.connectors.reception import kept_of
from tests.harness.depth import examples
from tests.harness.topology.clusters import cluster

Link = tuple[int, int]
Keep = Callable[[Announcement, str], Announcement]


def honest(announcement: Announcement, own: str) -> Announcement:
    """What a cluster keeps of announcements."""
    return kept_of(announcement, cluster(own))


def credulous(announcement: Announcement, own: str) -> Announcement:
    """A broken build: paths are forgotten, and with them that news came through oneself."""
    further = tuple(
        Route((announcement.local_cluster.id, route.cluster.id), route.cluster)
        for route in announcement.further
        if route.cluster.id != own
    )
    return Announcement(announcement.owner, announcement.local_cluster, further)


class Network:
    """`links` are exchanges, both ways at once. Whoever dies is silent, and is timed out."""

    def __init__(self, size: int, links: Iterable[Link], keep: Keep = honest) -> None:
        self.names = [f"c{number}" for number in range(size)]
        self.links = sorted({(min(link), max(link)) for link in links if link[0] != link[1]})
        self.alive = set(range(size))
        self._keep = keep
        self._heard: list[dict[str, Heard]] = [{} for _ in range(size)]

    def routes(self, number: int) -> tuple[Route, ...]:
        return Chooser().routes(tuple(self._heard[number].values()), self.names[number])

    def known(self, number: int) -> set[str]:
        return {route.cluster.id for route in self.routes(number)}

    def exchange(self, link: Link) -> bool:
        """Let both exchange; true when that brought news."""
        if not set(link) <= self.alive:
            return False
        first, second = (self._reported(*ends) for ends in (link, link[::-1]))
        news = [self._hears(link[1], first), self._hears(link[0], second)]
        return any(news)

    def kill(self, number: int) -> None:
        """It is gone, and its neighbours' time-outs have passed."""
        self.alive.discard(number)
        for heard in self._heard:
            heard.pop(f"{self.names[number]}-1", None)

    def cut(self, link: Link) -> None:
        """The connector is gone; both ends have timed out."""
        self.links.remove(link)
        for end, other in (link, link[::-1]):
            self._heard[end].pop(f"{self.names[other]}-1", None)

    def converge(self, order: Sequence[Link] = ()) -> int:
        """Exchange until nothing is news; return in how many rounds, at most 50."""
        for link in order:
            if link in self.links:
                self.exchange(link)
        for number in range(50):
            news = [self.exchange(link) for link in self.links]
            if not any(news):
                return number
        return 50

    def reachable(self, number: int) -> set[str]:
        """The truth."""
        seen, waiting = {number}, [number]
        while waiting:
            here = waiting.pop()
            for link in self.links:
                if here in link and set(link) <= self.alive:
                    (there,) = set(link) - {here}
                    if there not in seen:
                        seen.add(there)
                        waiting.append(there)
        return {self.names[one] for one in seen - {number}}

    def _reported(self, teller: int, listener: int) -> Announcement:
        name = self.names[teller]
        further = reported_on(self.routes(teller), name, self.names[listener])
        return Announcement(f"{name}-1", cluster(name), further)

    def _hears(self, listener: int, reported: Announcement) -> bool:
        kept = self._keep(reported, self.names[listener])
        before = self._heard[listener].get(reported.owner)
        self._heard[listener][reported.owner] = Heard(kept, "", 0)
        return before is None or before.announcement.content() != kept.content()


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
