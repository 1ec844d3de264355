"""What a worker would claim now: from which queues and topics, and how many jobs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from packhorse.jobs.consumers import Consumers, handled_topics_in
from packhorse.jobs.queue import Layout, QueueConfiguration, QueueType
from packhorse.jobs.store.claims import Claimed, ClaimRequest
from packhorse.jobs.work.running_jobs import Slots
from packhorse.topology.discovery import Discovery
from packhorse.topology.view import TopologyView

Consumes = Callable[[str], bool]
"""Returns whether a topic has a consumer on any instance."""

Leads = Callable[[str], bool]
"""Returns whether this instance is the first, in the cluster's order, that does a topic."""


class KnownInstances(Protocol):
    """What is known now; asked before each claim."""

    def leads(self) -> Leads:
        """Return for which topics this instance is the leader, by a view that holds."""
        ...

    def consumes(self) -> Consumes | None:
        """Return what live instances consume; None while that is not known."""
        ...


class Alone:
    """Nothing is known, as in a program that takes no part in a topology: it leads nobody."""

    def leads(self) -> Leads:
        """Return that it leads no topic."""
        return lambda _: False

    def consumes(self) -> Consumes | None:
        """Return None."""
        return None


class InCluster:
    """What the view of the own cluster says, while it holds."""

    def __init__(self, discovery: Discovery, consumers: Consumers) -> None:
        """Take the registry of this instance, whose announcement may not be in the view yet."""
        self._discovery, self._consumers = discovery, consumers
        self._known: tuple[TopologyView, Leads] | None = None

    def leads(self) -> Leads:
        """Return which topics it leads as all see it: by what is announced, its own included."""
        view = self._discovery.current_view()
        if view is None:
            return lambda _: False
        if self._known is None or self._known[0] is not view:
            self._known = view, leading_in(view)
        return self._known[1]

    def consumes(self) -> Consumes | None:
        """Return what the instances of the view announce, and what this one does."""
        view = self._discovery.current_view()
        return None if view is None else announced_in(view, self._consumers)


def leading_in(view: TopologyView) -> Leads:
    """Return whether the local instance is the first of a view that does a topic."""
    local, handled = view.local_instance.id, handled_topics_in(view)

    @cache
    def leads(topic: str) -> bool:
        return next(
            (one == local for one, topics in handled.items() if topics.covers(topic)),
            False,
        )

    return leads


def announced_in(view: TopologyView, own: Consumers) -> Consumes:
    """Return what the instances of the local cluster consume, the own registry included."""
    handled_topics = {own.handled_topics(), *handled_topics_in(view).values()}
    return lambda topic: any(topics.covers(topic) for topics in handled_topics)


_SHORTEST_S = 0.25
"""Hints come in crowds, and a new topic or queue is no everyday thing."""


class JobQueueCache:
    """Queues and topics as they were read last; times are monotonic seconds."""

    def __init__(
        self, consumers: Consumers, cluster_view: KnownInstances, longest_s: float = 5.0
    ) -> None:
        """Take after how long all is read anew without a hint."""
        self._consumers, self._cluster_view = consumers, cluster_view
        self._longest_s, self._planner = longest_s, ClaimPlanner()
        self._layout: Layout | None = None
        self._offers: Sequence[Offer] = ()
        self._changed = False
        self._read_at = float("-inf")
        self._hinted = False

    def hint(self) -> None:
        """Queues or topics may have changed; may be called by any thread."""
        self._hinted = True

    def change(self) -> None:
        """Consumers elsewhere may have changed; may be called by any thread."""
        self._changed = True

    def is_outdated(self, now: float) -> bool:
        """Return whether queues and topics are to be read again."""
        return now >= self.next_update()

    def next_update(self) -> float:
        """Return when they are to be read again."""
        return self._read_at + (_SHORTEST_S if self._hinted else self._longest_s)

    def updating(self) -> None:
        """Note that they will be read now: what is hinted from here on is not in it for sure."""
        self._hinted = False

    def update(self, layout: Layout, now: float) -> None:
        """Take them as they were read."""
        self._layout, self._read_at, self._changed = layout, now, True

    def requests(self, slots: Slots) -> list[ClaimRequest]:
        """Return what to claim, given the places."""
        if self._changed and self._layout is not None:
            self._changed = False
            self._offers = offers(self._layout, self._does, self._cluster_view.consumes())
        return self._planner.requests(self._offers, slots)

    def leads(self) -> Leads:
        """Return for which topics this instance is the leader now."""
        return self._cluster_view.leads()

    def had(self, claimed: Claimed) -> None:
        """Note a job that was claimed: other topics come first the next time."""
        self._planner.had(claimed.job.queue, claimed.job.topic)

    def _does(self, topic: str) -> bool:
        return self._consumers.find(topic) is not None


@dataclass(frozen=True, slots=True)
class Offer:
    """A queue from which this instance can take jobs, as long as nothing changes."""

    configuration: QueueConfiguration
    topics: tuple[str, ...]
    unconsumed: tuple[str, ...] = ()
    """Of an ordered queue: known topics that no instance does."""


def offers(layout: Layout, does: Callable[[str], bool], consumes: Consumes | None) -> list[Offer]:
    """Return the queues that are not suspended and have topics that this instance does."""
    topics: dict[str, list[str]] = {name: [] for name in layout.queues}
    for topic, name in sorted(layout.topics.items()):
        topics[name].append(topic)
    found = []
    for name, queue in sorted(layout.queues.items()):
        own = tuple(topic for topic in topics[name] if does(topic))
        if own and not queue.suspended:
            configuration = queue.configuration
            nobodys: tuple[str, ...] = ()
            if configuration.type is QueueType.ORDERED and consumes is not None:
                nobodys = tuple(one for one in topics[name] if one not in own and not consumes(one))
            found.append(Offer(configuration, own, nobodys))
    return found


class ClaimPlanner:
    """Turns offers into requests; remembers which topic comes next."""

    def __init__(self) -> None:
        self._turns: dict[str, str] = {}
        self._first = 0

    def had(self, queue: str, topic: str) -> None:
        """Note the topic of a job that was claimed."""
        self._turns[queue] = topic

    def requests(self, offered: Sequence[Offer], slots: Slots) -> list[ClaimRequest]:
        """Return what to claim at once; together no more than there are places.

        Each queue gets its share of the places that are left; queues are first in turn.
        """
        if not offered:
            return []
        self._first = (self._first + 1) % len(offered)
        left, found = slots.free(), []
        for number, offer in enumerate((*offered[self._first :], *offered[: self._first])):
            share = max(min(left, 1), left // (len(offered) - number))
            request = self._request(offer, min(share, _places(offer.configuration, slots)))
            if request.places > 0:
                found.append(request)
                left -= request.places
        return found

    def _request(self, offer: Offer, places: int) -> ClaimRequest:
        name = offer.configuration.name
        turn = self._turns.get(name, "")
        kind = offer.configuration.type
        return ClaimRequest(name, offer.topics, places, offer.unconsumed, turn, type=kind)


def _places(configuration: QueueConfiguration, slots: Slots) -> int:
    if configuration.type is QueueType.ORDERED:
        return slots.free_of(configuration.name, 1)
    return slots.free_of(configuration.name, configuration.max_parallel)
