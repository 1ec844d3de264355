"""Clusters that announce clusters to each other, without I/O: the path vector alone."""

from collections.abc import Callable, Iterable, Sequence

from packhorse.topology.announcements import Announcement, Route
from packhorse.topology.routing import Chooser, Heard, reported_on
from packhorse_services.topology.connectors.reception import kept_of
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
