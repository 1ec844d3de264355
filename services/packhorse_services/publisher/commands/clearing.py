"""How far a clear goes: for what the caller has seen, never for what is yet to come (R19)."""

import re
from dataclasses import dataclass

from packhorse.errors import Permanent
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache, QueueLength
from packhorse_services.publisher.queues.queue import Queues, SubscriberQueue

_TAG = re.compile(r'(?:W/)?"(-?[0-9]{1,19})-(-?[0-9]{1,19})-[0-9a-f]{8}"')


class NotEditable(Permanent):
    """The subscriber takes no clear commands."""


class HeadMoved(Permanent):
    """The queue's head is not the one that the caller saw."""


class BeyondNewest(Permanent):
    """The offset is above all that is in the log; packages to come can't be cleared."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The last offset to remove, and how many packages of the queue that are now."""

    offset: int
    packages: QueueLength


def bound_of(
    queue: SubscriberQueue, queues: Queues, *, up_to: int | None, seen_tag: str | None
) -> Bound:
    """Return up to where `queue` is cleared.

    Without `up_to`: up to the newest in the queue that `seen_tag` names, else the newest now.
    Raises `NotEditable`, `HeadMoved`, `BeyondNewest`.
    """
    name = queue.subscriber.name
    if not queue.subscriber.editable:
        raise NotEditable(
            f"{name} is not editable: its queue can't be cleared from here, since "
            "subscribers of one farm would end up with different content; where that is wanted, "
            "start it with PACKHORSE_EDITABLE=true. To pass over what waits for it alone: "
            f"PUT /subscribers/{name}/stop, then PATCH /subscribers/{name}/offset, then "
            f"PUT /subscribers/{name}/resume"
        )
    offset = _limit(queue, up_to, _newest_seen(queue, seen_tag))
    return Bound(offset, _between(queues.feed.cache, queue.subscription.offset, offset))


def _between(cache: QueueCache, done: int, last: int) -> QueueLength:
    """Return how many packages lie above `done` and not above `last`; none if `last` is lower."""
    behind, all_of_it = cache.extent(max(done, last)), cache.extent(done)
    return QueueLength(
        max(0, all_of_it.at_least - behind.at_least), max(0, all_of_it.at_most - behind.at_most)
    )


def _newest_seen(queue: SubscriberQueue, tag: str | None) -> int | None:
    """Return the newest offset that the caller saw. Raises `HeadMoved`."""
    if tag is None or tag.strip() == "*":
        return None
    seen = _TAG.fullmatch(tag.strip())
    head = queue.head.offset if queue.head else -1
    if seen is None or int(seen[1]) != head:
        raise HeadMoved("the queue's head is another one by now; read the queue again")
    return int(seen[2])


def _limit(queue: SubscriberQueue, up_to: int | None, newest_seen: int | None) -> int:
    newest = max(queue.last, queue.subscription.offset)
    if up_to is None:
        return (
            newest
            if newest_seen is None
            else min(newest, max(newest_seen, queue.subscription.offset))
        )
    end = max(queue.end, queue.subscription.offset)
    if up_to > end:
        raise BeyondNewest(f"the log ends at offset {end}; name that or less")
    return up_to
