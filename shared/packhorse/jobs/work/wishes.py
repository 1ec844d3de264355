"""What a worker would claim now: which topics of which queues, and how many; no I/O."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from packhorse.jobs.store.claims import Wish
from packhorse.jobs.store.queues import Layout, QueueConfiguration, QueueType
from packhorse.jobs.work.slots import Slots
from packhorse.jobs.work.surroundings import Consumes


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


class Wishes:
    """Turns offers into wishes; remembers whose turn it is."""

    def __init__(self) -> None:
        self._turns: dict[str, str] = {}
        self._first = 0

    def had(self, queue: str, topic: str) -> None:
        """Note the topic of a job that was claimed."""
        self._turns[queue] = topic

    def wishes(self, offered: Sequence[Offer], slots: Slots) -> list[Wish]:
        """Return what to claim at once; together no more than there are places.

        Each queue gets its share of the places that are left; queues are first in turn.
        """
        if not offered:
            return []
        self._first = (self._first + 1) % len(offered)
        left, found = slots.free(), []
        for number, offer in enumerate((*offered[self._first :], *offered[: self._first])):
            share = max(min(left, 1), left // (len(offered) - number))
            wish = self._wish(offer, min(share, _places(offer.configuration, slots)))
            if wish.places > 0:
                found.append(wish)
                left -= wish.places
        return found

    def _wish(self, offer: Offer, places: int) -> Wish:
        name = offer.configuration.name
        turn = self._turns.get(name, "")
        kind = offer.configuration.type
        return Wish(name, offer.topics, places, offer.unconsumed, turn, type=kind)


def _places(configuration: QueueConfiguration, slots: Slots) -> int:
    if configuration.type is QueueType.ORDERED:
        return slots.free_of(configuration.name, 1)
    return slots.free_of(configuration.name, configuration.max_parallel)
